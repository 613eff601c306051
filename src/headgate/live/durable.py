"""The engine on its journal: rebuilt from it, and written to it before anything is handled."""

from __future__ import annotations

import hashlib
import logging
import pickle
import time
from pathlib import Path

import headgate
from headgate.base.errors import WorldError
from headgate.engine import Engine
from headgate.journal import Journal
from headgate.live.inbox import Inbox
from headgate.protocol import Event

log = logging.getLogger(__name__)

_SNAPSHOT_EVERY = 2000  # events: what a recovery replays at most
_RETRY_S = 1.0
_CORE = ("base", "model", "protocol", "state", "engine")


class DurableEngine:
    """An engine that can be killed at any moment and comes back as it was."""

    def __init__(self, path: Path) -> None:
        """Open or make a journal and replay it; WorldError as of `Journal.open`."""
        self.journal = Journal.open(path)
        self._fingerprint = _fingerprint()
        self.engine, self._snapshot_seq = self._restore()
        self._seq = self._snapshot_seq
        self.replayed_events = 0
        for seq, batch in self.journal.batches(after=self._snapshot_seq):
            self.engine.handle(*batch)
            self.replayed_events += seq - self._seq
            self._seq = seq
        self.full: WorldError | None = None  # what the journal said when it was last written to

    def _restore(self) -> tuple[Engine, int]:
        found = self.journal.latest_snapshot(self._fingerprint)
        if found is None:
            return Engine(), 0
        engine: Engine = pickle.loads(found[1])
        return engine, found[0]

    def record(self, inbox: Inbox, batch: tuple[Event, ...]) -> tuple[Event, ...]:
        """Make a batch durable and return it.

        While the disk is full, facts from users are refused (their letters say so) and those of the
        world wait: nothing is handled that could be forgotten.
        """
        while True:
            try:
                self._seq = self.journal.append(batch) if batch else self._seq
                self.full = None
                return batch
            except WorldError as error:
                self.full = error
                log.error("journal: %s", error)  # the message says it all
                for letter in inbox.batch:
                    if letter.from_user:
                        letter.answer(error)
                inbox.batch = [letter for letter in inbox.batch if not letter.from_user]
                batch = tuple(e for letter in inbox.batch for e in letter.events)
                if batch:
                    time.sleep(_RETRY_S)

    def keep(self) -> None:
        """Save a snapshot when enough has happened since the last; a failure costs only time."""
        if self._seq - self._snapshot_seq < _SNAPSHOT_EVERY:
            return
        try:
            state = pickle.dumps(self.engine, protocol=pickle.HIGHEST_PROTOCOL)
            self.journal.save_snapshot(self._seq, state, self._fingerprint)
            self._snapshot_seq = self._seq
        except WorldError as error:
            log.warning("no snapshot was saved: %s", error)


def _fingerprint() -> str:
    """Return what changes whenever the code does that a snapshot's meaning rests on."""
    digest = hashlib.blake2b(digest_size=16)
    root = Path(headgate.__file__).parent
    for package in _CORE:
        for source in sorted((root / package).glob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()
