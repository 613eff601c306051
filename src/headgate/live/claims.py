"""DatasetClaims on datasets: who uses one and who removes it never meet.

A look at a snapshot says nothing of what is posted and not handled yet. So whoever looks a dataset
up and acts on it claims its name first, until what follows is handled.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from headgate.base.errors import Problem, SpecError


class DatasetClaims:
    """The names in use: by many at a time, or by one that removes it; calls never wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: Counter[str] = Counter()
        self._removed: set[str] = set()

    @contextmanager
    def using(self, names: Collection[str]) -> Iterator[None]:
        """Use datasets, which may or may not be there; SpecError `in_use` while one is removed."""
        with self._lock:
            going = [name for name in names if name in self._removed]
            if going:
                raise SpecError([_about(name, "is being removed") for name in going], code="in_use")
            self._users.update(names)
        try:
            yield
        finally:
            with self._lock:
                self._users -= Counter(names)

    @contextmanager
    def removing(self, name: str) -> Iterator[None]:
        """Remove a dataset; SpecError `in_use` while it is used or removed."""
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
