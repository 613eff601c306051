"""Claims of published experiments, put to our figures.

A claim says what was published, how we read it, and which check puts it to our figures. It is
neither true nor false where the runs that it speaks of were not made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

R = TypeVar("R")
"""The figures of an experiment."""

Numbers = Mapping[str, float]

UNITS = {
    "s": "{:.1f} s",
    "ms": "{:.2f} ms",
    "GB": "{:.0f} GB",
    "part": "{:.1%}",
    "ratio": "{:.2f}x",
    "number": "{:.3f}",
}
"""How a number of a claim is shown, by its unit."""


class NotRunError(Exception):
    """A claim asked for what was not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Generic[R]):
    """One claim; `unit` is that of its numbers, one of UNITS."""

    id: str
    text: str
    reading: str
    unit: str
    check: Callable[[R], tuple[bool, Numbers]]
    published: Numbers = field(default_factory=dict)
    is_goal: bool = False  # a goal of ours, of which the paper says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Generic[R]):
    """A claim, what we found, and whether it holds; None when what it needs was not run."""

    claim: Claim[R]
    ours: Numbers
    holds: bool | None


def judge(claims: Iterable[Claim[R]], results: R) -> tuple[Verdict[R], ...]:
    """Return every claim with its verdict."""
    return tuple(_judged(claim, results) for claim in claims)


def _judged(claim: Claim[R], results: R) -> Verdict[R]:
    try:
        holds, ours = claim.check(results)
    except NotRunError:
        return Verdict(claim=claim, ours={}, holds=None)
    return Verdict(claim=claim, ours=ours, holds=holds)


def numbers_text(numbers: Numbers, unit: str) -> str:
    """Return the numbers of a claim in words."""
    return ", ".join(f"{name} {UNITS[unit].format(value)}" for name, value in numbers.items())


def as_json(verdicts: Sequence[Verdict[Any]]) -> list[dict[str, Any]]:
    """Return the verdicts for programs."""
    return [
        {
            "id": v.claim.id,
            "claim": v.claim.text,
            "reading": v.claim.reading,
            "goal": v.claim.is_goal,
            "unit": v.claim.unit,
            "published": dict(v.claim.published),
            "ours": dict(v.ours),
            "holds": v.holds,
        }
        for v in verdicts
    ]
