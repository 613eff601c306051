"""The QUEUED jobs of a queue in order of arrival, and which of them is activated next.

Jobs that wait for other jobs are not among them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator


class QueuedJobs:
    """Rows of jobs; every call is O(log jobs), except iterating.

    Removed jobs stay in the heaps until they reach the top.
    """

    __slots__ = ("_arrivals", "_by_user", "_users")

    def __init__(self) -> None:
        self._users: dict[int, int] = {}  # row of a queued job -> row of its user
        self._arrivals: list[int] = []
        self._by_user: dict[int, list[tuple[int, int]]] = {}  # user -> (-priority, row)

    def __len__(self) -> int:
        return len(self._users)

    def __iter__(self) -> Iterator[int]:
        """Yield the rows in order of arrival; O(n log n)."""
        return iter(sorted(self._users))

    def add(self, job: int, user: int, priority: int) -> None:
        """Add a job; it may have arrived before others that were added earlier."""
        self._users[job] = user
        heapq.heappush(self._arrivals, job)
        heapq.heappush(self._by_user.setdefault(user, []), (-priority, job))

    def remove(self, job: int) -> None:
        """Remove a job, at any position; nothing changes for one that is not there."""
        if job not in self._users:
            return
        own = self._by_user[self._users.pop(job)]
        while own and own[0][1] not in self._users:
            heapq.heappop(own)

    def earliest(self) -> int | None:
        """Return the job that arrived first."""
        while self._arrivals and self._arrivals[0] not in self._users:
            heapq.heappop(self._arrivals)
        return self._arrivals[0] if self._arrivals else None

    def next(self) -> int | None:
        """Return the job of highest priority of the user whose job arrived first."""
        earliest = self.earliest()
        return None if earliest is None else self._by_user[self._users[earliest]][0][1]
