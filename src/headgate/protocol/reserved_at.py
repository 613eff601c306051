"""When a unit starts by its reservation, as reasons show it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from headgate.base.text import enumerated
from headgate.base.units import format_clock, format_seconds


class Cause(IntEnum):
    """Why an announced start is superseded: what has a better claim than its job."""

    ABOVE_SHARE = 1
    PRIORITY = 2
    HARDENED = 3


_SUPERSEDED = {
    "above-share": "its user has more than a fair share",
    "priority": "a job of the same user with higher priority waits",
    "hardened": "places are kept for a job that has waited for too long",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedAt:
    """When a unit starts by its reservation: at `at`, in the world's clock, in `ahead_s` seconds.

    Both are None where a run that it waits for has no known end.
    `after` are jobs whose runs hold its GPUs until then, those that end last, in the order of these
    ends; `others` is the number of further ones. `superseded` is why another start that was
    announced before no longer stands: `above-share`, `priority` or `hardened`, None if it does.
    A start that is not `announced` is expected only; others may still come first.
    `late_s` are the seconds within which these runs are expected to end, from and to, since `at`
    has passed; of a `late` one, where that is unknown, it is None.
    """

    at: float | None
    ahead_s: float | None
    after: tuple[str, ...] = ()
    others: int = 0
    superseded: str | None = None
    announced: bool = True
    late: bool = False
    late_s: tuple[float, float] | None = None

    def __str__(self) -> str:
        names = list(self.after)
        if self.others:
            names.append("another job" if self.others == 1 else f"{self.others} other jobs")
        ends = f" when runs of {enumerated(names)} have ended" if names else ""
        cause = _SUPERSEDED.get(self.superseded or "")
        gave_way = f"; an earlier one gave way: {cause}" if cause else ""
        if self.late:
            return f"GPUs are reserved, it starts{ends}, {self._expected()}{gave_way}"
        if self.at is None or self.ahead_s is None:
            return f"GPUs are reserved, it starts{ends or ' at a time that is unknown'}{gave_way}"
        clock = format_clock(self.at, self.ahead_s)
        if not self.announced:
            return f"expected for {clock}{ends}, not announced yet{gave_way}"
        return f"reserved for {clock}{ends}{gave_way}"

    def _expected(self) -> str:
        """Return when runs are expected to end that have passed their expected end."""
        which = "which take longer than expected"
        if self.late_s is None:
            return f"{which}; for how long is unknown"
        soonest, latest = map(format_seconds, self.late_s)
        when = f"in {soonest}" if soonest == latest else f"in {soonest} to {latest}"
        return f"{which}: by now {when}"
