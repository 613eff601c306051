"""The error classes: three families, by who has to act.

HeadgateError
├── SpecError        a user's input is wrong: lists every problem of it
├── WorldError       the environment failed: a disk, a port, a Ray cluster
└── InvariantBroken  Headgate is wrong: carries the history of the object concerned
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

MOST_PROBLEMS = 100
"""An error lists at most this many problems; the last one then counts those left out."""

_MOST_NAMES = 1000  # that are compared with a misspelt one
_MOST_LISTED = 20
_ALIKE = 0.75  # such as `jbos` and `jobs`
_LEAST_BEGINNING = 3  # letters that a beginning of a name has
_NAME = re.compile(r"-*(.+?)-?([0-9]*)", re.DOTALL)


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
    """Return a hint that names the known word that is meant, or lists the known ones.

    A word is taken for another only where they differ by a slip of the keyboard, or where it is the
    beginning of the other. Of more than 1,000 names, only the first 1,000 in order are compared.
    """
    names = sorted(known)
    close = closest(word, names[:_MOST_NAMES])
    if close is not None:
        return f"did you mean '{close}'?"
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return f"known: {', '.join(names[:_MOST_LISTED])}{more}" if names else ""


def closest(word: str, names: Iterable[str]) -> str | None:
    """Return the name that a misspelt word stands for, None where none is really like it.

    Dashes before a name and a number at its end do not make it similar: `nosuch-1` is not `sort-1`,
    and `job-7` is not `job-1`.
    """
    stem, number = _parts(word)
    stems = dict[str, str]()
    for name in names:
        its_stem, its_number = _parts(name)
        if its_number == number or not (its_number and number):
            stems.setdefault(its_stem, name)
    found = difflib.get_close_matches(stem, stems, n=1, cutoff=_ALIKE)
    if not found and len(stem) >= _LEAST_BEGINNING:
        found = [other for other in stems if other.startswith(stem)][:1]
    return stems[found[0]] if found else None


def _parts(name: str) -> tuple[str, str]:
    """Return a name without the dashes before it and the number at its end, and the number."""
    match = _NAME.fullmatch(name)
    return (name.lower(), "") if match is None else (match[1].lower(), match[2])
