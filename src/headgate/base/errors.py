"""The error tree: three families, one for whoever has to act.

HeadgateError
├── SpecError        a user's input is wrong: every problem of it at once
├── WorldError       the outside failed: a disk, a port, a Ray cluster
└── InvariantBroken  we are wrong: carries the story of the thing concerned
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with one place of an input, and what to do about it."""

    path: str
    problem: str
    hint: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path} (line {self.line})"
        hint = f"; {self.hint}" if self.hint else ""
        return f"{place}: {self.problem}{hint}" if place else f"{self.problem}{hint}"


class HeadgateError(Exception):
    """An error that a person can act on; `code` is stable and meant for programs."""

    code = "error"

    def __init__(self, problems: Iterable[Problem] | str, *, code: str | None = None) -> None:
        """Keep every problem; a plain string is one problem without a place."""
        if isinstance(problems, str):
            problems = (Problem(path="", problem=problems),)
        self.problems: tuple[Problem, ...] = tuple(problems)
        if code is not None:
            self.code = code
        super().__init__("\n".join(str(p) for p in self.problems))


class SpecError(HeadgateError):
    """A file, an option or a request of a user is wrong."""

    code = "bad_spec"


class WorldError(HeadgateError):
    """Something outside Headgate is missing or failed."""

    code = "world"


class InvariantBroken(HeadgateError):
    """A law of ours does not hold; the message ends with the thing's story."""

    code = "invariant_broken"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the nearest known word, or lists the known ones."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(names)}" if names else ""
