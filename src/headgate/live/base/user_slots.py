"""Slots that users share: whatever one of them does, the others get theirs.

A free slot goes to the user who holds the fewest, of several to the one who was served longest ago.
No user holds more than a part of them, and only so many requests of a user wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager

from headgate.base.errors import Problem, SpecError

MOST_WAITING = 256
"""Requests of a user that wait for slots of one kind, at most."""


class UserSlots:
    """A number of slots, for event loops and for threads; users are names or numbers."""

    def __init__(self, what: str, total: int, *, each: int, waiting: int = MOST_WAITING) -> None:
        """Have `total` slots, `each` user at most so many; messages call their use `what`.

        A request beyond `waiting` ones of its user that wait is rejected.
        """
        self._what, self.total, self._each, self._most_waiting = what, total, each, waiting
        self._lock = threading.Lock()
        self._held: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, deque[Future[None]]] = {}  # in the order of their coming
        self._served: dict[Hashable, int] = {}  # number of the last slot given, while known
        self._given = 0

    @asynccontextmanager
    async def slot(self, user: Hashable) -> AsyncIterator[None]:
        """Hold a slot, once there is one for this user; SpecError `too_many`."""
        turn = self._asked(user)
        try:
            if not turn.done():
                await asyncio.wrap_future(turn)
        except BaseException:
            self._leave(user, turn)
            raise
        try:
            yield
        finally:
            self._give_back(user)

    @contextmanager
    def slot_in_thread(self, user: Hashable, *, timeout_s: float | None) -> Iterator[None]:
        """Hold a slot as `slot` does; TimeoutError if there is none in time."""
        turn = self._asked(user)
        try:
            turn.result(timeout_s)
        except BaseException:
            self._leave(user, turn)
            raise
        try:
            yield
        finally:
            self._give_back(user)

    def _asked(self, user: Hashable) -> Future[None]:
        """Return the turn of a user, which is done when it holds a slot."""
        turn: Future[None] = Future()
        with self._lock:
            queue = self._waiting.setdefault(user, deque())
            queue.append(turn)
            self._hand_out()
            if not turn.done() and len(queue) > self._most_waiting:
                queue.remove(turn)
                self._forget_if_idle(user)
                raise self._too_many(user)
        return turn

    def _leave(self, user: Hashable, turn: Future[None]) -> None:
        """End a turn that is not used, whether it holds a slot by now or not."""
        with self._lock:
            if turn in (queue := self._waiting.get(user, deque())):
                queue.remove(turn)
                self._forget_if_idle(user)
                return
        self._give_back(user)

    def _give_back(self, user: Hashable) -> None:
        with self._lock:
            self._held[user] -= 1
            self._hand_out()
            self._forget_if_idle(user)

    def _hand_out(self) -> None:
        """Give free slots to users who wait; the lock is held."""
        while self._held.total() < self.total:
            able = [user for user in self._waiting if self._held[user] < self._each]
            if not able:
                return
            user = min(able, key=lambda one: (self._held[one], self._served.get(one, 0)))
            turn = self._waiting[user].popleft()
            self._given += 1
            self._held[user] += 1
            self._served[user] = self._given
            self._forget_if_idle(user)
            if turn.set_running_or_notify_cancel():
                turn.set_result(None)
            # else: the wait was cancelled, and `_leave` gives the slot back

    def _forget_if_idle(self, user: Hashable) -> None:
        """Drop what is empty of a user, so that no user who is gone takes room."""
        if not self._waiting.get(user):
            self._waiting.pop(user, None)
            if not self._held[user]:
                del self._held[user]
                self._served.pop(user, None)

    def _too_many(self, user: Hashable) -> SpecError:
        waiting = f", and {self._most_waiting} that wait" if self._most_waiting else ""
        text = f"you have {self._held[user]} of them{waiting}: a user has no more at the same time"
        hint = "end some of them, or try again when they have ended"
        return SpecError([Problem(path=self._what, problem=text, hint=hint)], code="too_many")
