"""The inbox: facts from many threads, handed to the engine's one in batches, and answered."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from headgate.protocol import Event


@dataclass(slots=True, kw_only=True, eq=False)
class PostedEvents:
    """Facts that stand or fall together; `handled` is done once the engine has handled them.

    One `from_user` may be refused when it cannot be made durable, and taken back by cancelling
    `handled` while nobody has taken it up; a fact of the world may not.
    """

    events: tuple[Event, ...]
    from_user: bool = False
    handled: Future[None] = field(default_factory=Future)

    def resolve(self, error: Exception | None = None) -> None:
        """Tell whoever still waits that the facts were handled, or why they were refused."""
        if self.handled.cancelled():
            return
        if error is None:
            self.handled.set_result(None)
        else:
            self.handled.set_exception(error)


class Inbox:
    """A queue of posted; `clock` gives seconds that never go back."""

    def __init__(self) -> None:
        self._posted: queue.SimpleQueue[PostedEvents | None] = queue.SimpleQueue()
        self._last_s = 0.0
        self.batch: list[PostedEvents] = []

    def now(self) -> float:
        """Return seconds since the epoch, never less than before in this process."""
        self._last_s = max(self._last_s, time.time())
        return self._last_s

    def post(self, events: Sequence[Event], *, from_user: bool = False) -> Future[None]:
        """Hand facts in, from any thread."""
        posted = PostedEvents(events=tuple(events), from_user=from_user)
        self._posted.put(posted)
        return posted.handled

    def refuse(self, events: Sequence[Event], error: Exception) -> tuple[Event, ...]:
        """Refuse the users' posted that these events came in; return the events of all others."""
        given = {id(event) for event in events}
        refused = [
            posted
            for posted in self.batch
            if posted.from_user and any(id(event) in given for event in posted.events)
        ]
        for posted in refused:
            posted.resolve(error)
            given.difference_update(map(id, posted.events))
        self.batch = [posted for posted in self.batch if posted not in refused]
        return tuple(event for event in events if id(event) in given)

    def close(self) -> None:
        """Let `batches` end once it has given out what was posted before."""
        self._posted.put(None)

    def batches(self) -> Iterator[tuple[Event, ...]]:
        """Yield all facts that are there, waiting for the first; `batch` holds their posted."""
        while True:
            posted = self._posted.get()
            self.batch = []
            while posted is not None:
                kept = posted.handled.set_running_or_notify_cancel()  # from here on for good
                if kept or not posted.from_user:
                    self.batch.append(posted)
                try:
                    posted = self._posted.get_nowait()
                except queue.Empty:
                    break
            if self.batch:
                yield tuple(event for each in self.batch for event in each.events)
            if posted is None:
                return
