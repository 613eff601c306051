"""When a unit starts by its reservation, as reasons show it."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.base.text import enumerated
from headgate.base.units import format_clock


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedAt:
    """When a unit starts by its reservation: at `at`, in the world's clock, in `ahead_s` seconds.

    Both are None where a run that it waits for has no known end.
    `after` are jobs whose runs hold its GPUs until then, those that end last, in the order of these
    ends; `others` is the number of further ones.
    """

    at: float | None
    ahead_s: float | None
    after: tuple[str, ...] = ()
    others: int = 0

    def __str__(self) -> str:
        names = list(self.after)
        if self.others:
            names.append("another job" if self.others == 1 else f"{self.others} other jobs")
        ends = f" when runs of {enumerated(names)} have ended" if names else ""
        if self.at is None or self.ahead_s is None:
            return f"GPUs are reserved, it starts{ends or ' at a time that is unknown'}"
        return f"reserved for {format_clock(self.at, self.ahead_s)}{ends}"
