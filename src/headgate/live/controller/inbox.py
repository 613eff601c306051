"""The inbox: events from many threads, passed to the engine's thread in batches."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from headgate.protocol import Event, NodeReported


@dataclass(slots=True, kw_only=True, eq=False)
class PostedEvents:
    """Events that are handled together or not at all; `handled` is done once that has happened.

    Events `from_user` may be withdrawn by cancelling `handled` before they are in a batch; events
    of the world may not.
    """

    events: tuple[Event, ...]
    from_user: bool = False
    handled: Future[None] = field(default_factory=Future)

    @property
    def rejectable(self) -> bool:
        """Whether the events may be rejected when they cannot be made durable.

        That holds for events of users, and for reports of nodes' use, which later ones replace.
        """
        return self.from_user or all(isinstance(event, NodeReported) for event in self.events)

    def resolve(self, error: Exception | None = None) -> None:
        """Resolve the future: the events were handled, or the error."""
        if self.handled.cancelled():
            return
        if error is None:
            self.handled.set_result(None)
        else:
            self.handled.set_exception(error)


class Inbox:
    """A queue of posted events, and the clock of the live world."""

    def __init__(self) -> None:
        self._posted: queue.SimpleQueue[PostedEvents | None] = queue.SimpleQueue()
        self._last_s = 0.0
        self.batch: list[PostedEvents] = []

    def now(self) -> float:
        """Return seconds since the epoch, never less than before in this process."""
        self._last_s = max(self._last_s, time.time())
        return self._last_s

    def post(self, events: Sequence[Event], *, from_user: bool = False) -> Future[None]:
        """Post events, from any thread; the future is done once the engine has handled them."""
        posted = PostedEvents(events=tuple(events), from_user=from_user)
        self._posted.put(posted)
        return posted.handled

    def refuse(self, events: Sequence[Event], error: Exception) -> tuple[Event, ...]:
        """Reject the rejectable events that were posted with any of these; return all others."""
        given = {id(event) for event in events}
        refused = [
            posted
            for posted in self.batch
            if posted.rejectable and any(id(event) in given for event in posted.events)
        ]
        for posted in refused:
            posted.resolve(error)
            given.difference_update(map(id, posted.events))
        self.batch = [posted for posted in self.batch if posted not in refused]
        return tuple(event for event in events if id(event) in given)

    def close(self) -> None:
        """Make `batches` end after the events posted before."""
        self._posted.put(None)

    def batches(self) -> Iterator[tuple[Event, ...]]:
        """Yield all posted events, waiting for the first; `batch` contains their posts."""
        while True:
            posted = self._posted.get()
            self.batch = []
            while posted is not None:
                kept = posted.handled.set_running_or_notify_cancel()  # no longer cancellable
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
