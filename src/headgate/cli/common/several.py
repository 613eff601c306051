"""Verbs that take several names: all are checked before one is changed, all problems are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headgate.base.errors import SpecError
from headgate.cli.common.errors import exit_code_of

Answer = dict[str, Any]


def answers(names: Iterable[str], call: Callable[[str], Answer]) -> list[Answer]:
    """Return the answer for each name, each name once.

    SpecError with the problems of all of them, and the code of the one with the highest exit code.
    """
    found, errors = list[Answer](), list[SpecError]()
    for name in dict.fromkeys(names):
        try:
            found.append(call(name))
        except SpecError as error:
            errors.append(error)
    if errors:
        worst = max(errors, key=exit_code_of)
        raise SpecError((p for error in errors for p in error.problems), code=worst.code)
    return found


def as_one(key: str, found: Sequence[Answer]) -> Mapping[str, Any]:
    """Return the answer as JSON: that for the one name, or a list of all below `key`."""
    return found[0] if len(found) == 1 else {key: found}
