"""The engine on its journal: rebuilt from it; events are journaled before they are applied."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from headgate.base.errors import WorldError
from headgate.engine import Engine
from headgate.journal import Journal, decode_snapshot, encode_snapshot
from headgate.live.controller.inbox import Inbox
from headgate.protocol import Event, JournalGap
from headgate.state import Snapshot, State, thaw

log = logging.getLogger(__name__)

_SNAPSHOT_EVERY = 2000  # events: roughly the most that a recovery replays
_RETRY_S = 1.0


class DurableEngine:
    """An engine that recovers its state from the journal after a crash."""

    def __init__(self, path: Path) -> None:
        """Open or create a journal and replay it; WorldError as of `Journal.open` and `append`."""
        self.journal = Journal.open(path)
        try:
            self._rebuild()
            self._skip_gap()
        except BaseException:
            self.journal.close()
            raise
        self.full: WorldError | None = None  # error of the last write to the journal, if it failed
        self._saver = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self._saving: Future[None] | None = None

    def _rebuild(self) -> None:
        state, self._snapshot_seq = self._restore()
        self.engine = Engine(state)
        self._seq = self._snapshot_seq
        self.replayed_events = 0
        for seq, batch in self.journal.batches(after=self._snapshot_seq):
            self.engine.replay(batch)
            self.replayed_events += seq - self._seq
            self._seq = seq

    def _restore(self) -> tuple[State | None, int]:
        for seq, data in self.journal.snapshots():
            try:
                return thaw(decode_snapshot(data), hypothetical=False), seq
            except ValueError as error:
                log.warning("the snapshot after event %d is skipped: %s", seq, error)
        if self.journal.first_kept > 1:
            raise self.journal.unusable("no snapshot can be read")
        return None, 0

    def _skip_gap(self) -> None:
        """If the end of the journal is missing, log and record the gap and skip its numbers."""
        missing = self.journal.missing_events
        if not missing:
            return
        log.error(
            "the last %d events of the journal are missing: its write-ahead log was damaged or"
            " removed; continuing from event %d and from the reports of masters",
            missing,
            self._seq,
        )
        gap = JournalGap(at=self.engine.state.now, events=missing)
        self._seq = self.journal.append((gap,))
        self.engine.replay((gap,))

    def record(self, inbox: Inbox, batch: tuple[Event, ...]) -> tuple[Event, ...]:
        """Make a batch durable and return it.

        While the disk is full, events are rejected that may be (see `PostedEvents.rejectable`) and
        all others wait: no event is applied before it is durable.
        """
        while True:
            try:
                self._seq = self.journal.append(batch)
                self.full = None
                return batch
            except WorldError as error:
                self.full = error
                log.error("journal: %s", error)  # the message is complete without a traceback
                batch = inbox.refuse(batch, error)
                if not batch:
                    return batch
                time.sleep(_RETRY_S)

    def save_periodically(self) -> None:
        """Save a snapshot in its own thread if enough events were recorded since the last."""
        if self._seq - self._snapshot_seq < _SNAPSHOT_EVERY:
            return
        if self._saving is None or self._saving.done():
            self._snapshot_seq = self._seq
            self._saving = self._saver.submit(self._save, self._seq, self.engine.snapshot())

    def _save(self, seq: int, snapshot: Snapshot) -> None:
        """Save a snapshot and delete the events that it supersedes.

        A failure costs only disk space, and time when the journal is replayed.
        """
        failure = "no snapshot was saved"
        try:
            self.journal.save_snapshot(seq, encode_snapshot(snapshot))
            failure = "old events were not deleted"
            self.journal.cut()
        except WorldError as error:
            log.warning("%s: %s", failure, error)
        except Exception:
            log.exception("%s", failure)

    def close(self) -> None:
        """Wait for a snapshot that is being saved and close the journal."""
        self._saver.shutdown()
        self.journal.close()
