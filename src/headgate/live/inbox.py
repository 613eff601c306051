"""The inbox: facts from many threads, handed to the engine's one in batches, and answered."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from headgate.protocol import Event, NodeReported


@dataclass(slots=True, kw_only=True, eq=False)
class Letter:
    """Facts that stand or fall together; `handled` is done once the engine has handled them.

    One `from_user` may be taken back by cancelling `handled` before the engine has taken it up; a
    fact of the world may not.
    """

    events: tuple[Event, ...]
    from_user: bool = False
    handled: Future[None] = field(default_factory=Future)

    @property
    def refusable(self) -> bool:
        """Whether it may be refused when it cannot be made durable.

        So may what a user wants, and a report of a node's use: a later one replaces it.
        """
        return self.from_user or all(isinstance(event, NodeReported) for event in self.events)

    def answer(self, error: Exception | None = None) -> None:
        """Tell whoever still waits that the facts were handled, or why they were refused."""
        if self.handled.cancelled():
            return
        if error is None:
            self.handled.set_result(None)
        else:
            self.handled.set_exception(error)


class Inbox:
    """A queue of letters; `clock` gives seconds that never go back."""

    def __init__(self) -> None:
        self._letters: queue.SimpleQueue[Letter | None] = queue.SimpleQueue()
        self._last_s = 0.0
        self.batch: list[Letter] = []

    def now(self) -> float:
        """Return seconds since the epoch, never less than before in this process."""
        self._last_s = max(self._last_s, time.time())
        return self._last_s

    def post(self, events: Sequence[Event], *, from_user: bool = False) -> Future[None]:
        """Hand facts in, from any thread."""
        letter = Letter(events=tuple(events), from_user=from_user)
        self._letters.put(letter)
        return letter.handled

    def refuse(self, events: Sequence[Event], error: Exception) -> tuple[Event, ...]:
        """Refuse the letters of these events that may be; return the events of all others."""
        given = {id(event) for event in events}
        refused = [
            letter
            for letter in self.batch
            if letter.refusable and any(id(event) in given for event in letter.events)
        ]
        for letter in refused:
            letter.answer(error)
            given.difference_update(map(id, letter.events))
        self.batch = [letter for letter in self.batch if letter not in refused]
        return tuple(event for event in events if id(event) in given)

    def close(self) -> None:
        """Let `batches` end once it has given out what was posted before."""
        self._letters.put(None)

    def batches(self) -> Iterator[tuple[Event, ...]]:
        """Yield all facts that are there, waiting for the first; `batch` holds their letters."""
        while True:
            letter = self._letters.get()
            self.batch = []
            while letter is not None:
                kept = letter.handled.set_running_or_notify_cancel()  # from here on for good
                if kept or not letter.from_user:
                    self.batch.append(letter)
                try:
                    letter = self._letters.get_nowait()
                except queue.Empty:
                    break
            if self.batch:
                yield tuple(event for each in self.batch for event in each.events)
            if letter is None:
                return
