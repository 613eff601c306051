"""The error classes: three families, by who has to act.

HeadgateError
├── SpecError        a user's input is wrong: lists every problem of it
├── WorldError       the environment failed: a disk, a port, a Ray cluster
└── InvariantBroken  Headgate is wrong: carries the history of the object concerned
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

MOST_PROBLEMS = 100
"""An error lists at most this many problems; the last one then counts those left out."""

_MOST_NAMES = 1000  # that are compared with a misspelt one
_MOST_LISTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem, the place of an input that has it, and a hint how to fix it."""

    path: str
    problem: str
    hint: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path} (line {self.line})"
        hint = f"; {self.hint}" if self.hint else ""
        return f"{place}: {self.problem}{hint}" if place else f"{self.problem}{hint}"


class HeadgateError(Exception):
    """An error that a person can act on; `code` is stable, for programs."""

    code = "error"

    def __init__(
        self, problems: Iterable[Problem] | str, *, code: str | None = None, more: int = 0
    ) -> None:
        """Store the problems, at most MOST_PROBLEMS; a plain string is one without a place.

        `more` is the number of further problems that are not given.
        """
        if isinstance(problems, str):
            problems = (Problem(path="", problem=problems),)
        kept = tuple(problems)
        if len(kept) + more > MOST_PROBLEMS:
            hidden = len(kept) + more - (MOST_PROBLEMS - 1)
            rest = Problem(path="", problem=f"and {hidden} more problems")
            kept = (*kept[: MOST_PROBLEMS - 1], rest)
        self.problems: tuple[Problem, ...] = kept
        if code is not None:
            self.code = code
        super().__init__("\n".join(str(p) for p in self.problems))


class SpecError(HeadgateError):
    """A file, an option or a request of a user is wrong."""

    code = "bad_spec"


class WorldError(HeadgateError):
    """Something outside Headgate is missing or has failed."""

    code = "world"


class InvariantBroken(HeadgateError):
    """An invariant does not hold; the message ends with the history of the object concerned."""

    code = "invariant_broken"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the nearest known word, or lists the known ones.

    Of more than 1,000 names, only the first 1,000 in order are compared.
    """
    names = sorted(known)
    close = difflib.get_close_matches(word, names[:_MOST_NAMES], n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return f"known: {', '.join(names[:_MOST_LISTED])}{more}" if names else ""
