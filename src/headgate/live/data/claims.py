"""Claims on datasets: a dataset is never used and removed at the same time.

A snapshot does not show events that are posted and not handled yet. So a thread that looks up a
dataset and acts on it claims its name first, until the engine has handled the resulting events.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from headgate.base.errors import Problem, SpecError


class DatasetClaims:
    """Names of datasets in use, by many threads or by one that removes it; calls never wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: Counter[str] = Counter()
        self._removed: set[str] = set()

    @contextmanager
    def using(self, names: Collection[str]) -> Iterator[None]:
        """Claim datasets, existing or not; SpecError `in_use` while one is being removed."""
        with self._lock:
            removed = [name for name in names if name in self._removed]
            if removed:
                raise SpecError(
                    [_about(name, "is being removed") for name in removed], code="in_use"
                )
            self._users.update(names)
        try:
            yield
        finally:
            with self._lock:
                self._users -= Counter(names)

    @contextmanager
    def removing(self, name: str) -> Iterator[None]:
        """Claim a dataset for removal; SpecError `in_use` while it is used or being removed."""
        with self._lock:
            if name in self._removed:
                raise SpecError([_about(name, "is being removed")], code="in_use")
            if self._users[name]:
                text = "is being read by a job that is submitted now, or being put"
                raise SpecError([_about(name, text)], code="in_use")
            self._removed.add(name)
        try:
            yield
        finally:
            with self._lock:
                self._removed.discard(name)


def _about(name: str, problem: str) -> Problem:
    return Problem(path=f"dataset {name}", problem=problem, hint="try again in a moment")
