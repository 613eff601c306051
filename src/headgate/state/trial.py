"""Tentative attempts, which are rolled back unless they are kept."""

from __future__ import annotations

from collections.abc import Callable


class Trial:
    """A tentative attempt: `with` rolls it back at its end unless `keep()` was called."""

    __slots__ = ("end", "kept")

    def __init__(self, end: Callable[[bool], None]) -> None:
        """`end` is called at the end, with whether the attempt was kept."""
        self.end = end
        self.kept = False

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *error: object) -> None:
        self.end(self.kept)

    def keep(self) -> None:
        """Keep what was taken in the attempt."""
        self.kept = True
