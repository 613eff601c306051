"""A paper: the command that reproduces it, and the pages of its experiments."""

from __future__ import annotations

from dataclasses import dataclass

PAGE, LIVE = "report.html", "live.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """A command and the pages that it writes, each of an experiment."""

    command: str
    pages: tuple[str, ...] = (PAGE,)
