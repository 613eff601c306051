"""The engine on its journal: rebuilt from it, and written to it before anything is applied."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from headgate.base.errors import WorldError
from headgate.engine import Engine
from headgate.journal import Journal, decode_snapshot, encode_snapshot
from headgate.live.inbox import Inbox
from headgate.protocol import Event, JournalGap
from headgate.state import Snapshot, State, thaw

log = logging.getLogger(__name__)

_SNAPSHOT_EVERY = 2000  # events: what a recovery replays at most, and a little
_RETRY_S = 1.0


class DurableEngine:
    """An engine that can be killed at any moment and comes back as it was."""

    def __init__(self, path: Path) -> None:
        """Open or make a journal and replay it; WorldError as of `Journal.open`."""
        self.journal = Journal.open(path)
        try:
            self._rebuild()
        except BaseException:
            self.journal.close()
            raise
        self.full: WorldError | None = None  # what the journal said when it was last written to
        self._saver = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self._saving: Future[None] | None = None
        self._skip_gap()

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
                return thaw(decode_snapshot(data), on_paper=False), seq
            except ValueError as error:
                log.warning("the snapshot after event %d is passed over: %s", seq, error)
        if self.journal.first_kept > 1:
            raise self.journal.unusable("no snapshot can be read")
        return None, 0

    def _skip_gap(self) -> None:
        """Where the end of the journal is missing, say so, and skip what it may have numbered."""
        missing = self.journal.missing_events
        if not missing:
            return
        log.error(
            "the last %d events of the journal are missing: its write-ahead log was damaged or"
            " removed; going on from event %d and from what job masters still report",
            missing,
            self._seq,
        )
        gap = JournalGap(at=self.engine.state.now, events=missing)
        self._seq = self.journal.append((gap,))
        self.engine.replay((gap,))

    def record(self, inbox: Inbox, batch: tuple[Event, ...]) -> tuple[Event, ...]:
        """Make a batch durable and return it.

        While the disk is full, facts from users are refused (their letters say so) and those of the
        world wait: nothing is applied that could be forgotten.
        """
        while True:
            try:
                self._seq = self.journal.append(batch)
                self.full = None
                return batch
            except WorldError as error:
                self.full = error
                log.error("journal: %s", error)  # the message says it all
                batch = inbox.refuse(batch, error)
                if batch:
                    time.sleep(_RETRY_S)

    def save_periodically(self) -> None:
        """Save a snapshot, in a thread of its own, when enough has happened since the last."""
        if self._seq - self._snapshot_seq < _SNAPSHOT_EVERY:
            return
        if self._saving is None or self._saving.done():
            self._snapshot_seq = self._seq
            self._saving = self._saver.submit(self._save, self._seq, self.engine.snapshot())

    def _save(self, seq: int, snapshot: Snapshot) -> None:
        """Save a snapshot and delete the events that it makes superfluous.

        A failure costs only room, and time when the journal is replayed.
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
        """Wait for a snapshot that is being saved and let go of the journal."""
        self._saver.shutdown()
        self.journal.close()
