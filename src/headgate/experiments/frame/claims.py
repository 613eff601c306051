"""Claims of published experiments, and their verdicts on our figures.

A claim has its published text, its interpretation here, and a check of our figures. Its verdict is
None if the runs that the check needs were not made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
    "count": "{:.0f}",
}
"""The format of a claim's numbers, by unit."""


class NotRunError(Exception):
    """The runs that a claim needs were not made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Generic[R]):
    """One claim; `unit` of its numbers is one of UNITS, `reading` its interpretation here."""

    id: str
    text: str
    reading: str
    unit: str
    check: Callable[[R], tuple[bool, Numbers]]
    published: Numbers = field(default_factory=dict)
    is_goal: bool = False  # Headgate's own goal, not a claim of the paper


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Generic[R]):
    """A claim, our numbers, and whether it holds; None if the runs that it needs were not made."""

    claim: Claim[R]
    ours: Numbers
    holds: bool | None


def judge(claims: Iterable[Claim[R]], results: R) -> tuple[Verdict[R], ...]:
    """Return the verdicts of all claims, in order."""
    return tuple(_judged(claim, results) for claim in claims)


def _judged(claim: Claim[R], results: R) -> Verdict[R]:
    try:
        holds, ours = claim.check(results)
    except NotRunError:
        return Verdict(claim=claim, ours={}, holds=None)
    return Verdict(claim=claim, ours=ours, holds=holds)


def numbers_text(numbers: Numbers, unit: str) -> str:
    """Return the numbers of a claim as text, with their unit."""
    return ", ".join(f"{name} {UNITS[unit].format(value)}" for name, value in numbers.items())


# --- rows of a report --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A row of a report: a claim, whether it holds, and both figures as text; `values` in JSON."""

    holds: bool | None
    claim: str
    reading: str = ""
    published: str = ""
    ours: str
    is_goal: bool = False
    values: Mapping[str, Any]


def judged(verdicts: Sequence[Verdict[Any]]) -> tuple[Judged, ...]:
    """Return the verdicts as rows of a report."""
    return tuple(
        Judged(
            holds=v.holds,
            claim=v.claim.text,
            reading=v.claim.reading,
            published=numbers_text(v.claim.published, v.claim.unit),
            ours=numbers_text(v.ours, v.claim.unit),
            is_goal=v.claim.is_goal,
            values=values,
        )
        for v, values in zip(verdicts, as_json(verdicts), strict=True)
    )


def as_json(verdicts: Sequence[Verdict[Any]]) -> list[dict[str, Any]]:
    """Return the verdicts as JSON values."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """A check of a live run or of its simulation, and the figures compared."""

    id: str
    claim: str
    holds: bool
    ours: str


def agreed(agreements: Iterable[Agreement]) -> tuple[Judged, ...]:
    """Return the agreements as rows of a report."""
    return tuple(
        Judged(holds=a.holds, claim=a.claim, ours=a.ours, values=asdict(a)) for a in agreements
    )


def summary(rows: Sequence[Judged]) -> str:
    """Return how many claims hold, in one sentence."""
    count = {holds: sum(row.holds is holds for row in rows) for holds in (True, False, None)}
    not_run = f"; {count[None]} need runs that were not made" if count[None] else ""
    return f"{count[True]} of {len(rows)} hold, {count[False]} do not{not_run}."
