"""Which announced starts held, and which units hardened, from the plans that were admitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from headgate.planning.times.reservations import LATE_S, RESERVED_AT, SUPERSEDED
from headgate.protocol import Command, Event, PlanAdmitted

PART = 0.1
"""An announced start holds if it is later by a minute, or this part of the announced wait."""


class _Announced(NamedTuple):
    """The first reservation of a job: when it was announced, and when it begins."""

    on: float
    at: float


class Promises:
    """An observer; `figures` are of the jobs that have started."""

    def __init__(self) -> None:
        self._announced: dict[str, _Announced] = {}
        self._gave_way: set[str] = set()
        self.counts: Counter[str] = Counter()
        """Of announced starts: those `started`, `kept` and `superseded`; units `hardened`."""
        self._waiting: tuple[str, float] | None = None  # the job that is hardened, and since when
        self._longest_s = 0.0

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        """Take note of the plans of a batch."""
        del commands
        for event in batch:
            if isinstance(event, PlanAdmitted):
                self._start(event)
                for job, at in event.memo.get(RESERVED_AT, {}).items():
                    self._announced.setdefault(job, _Announced(event.at, at))
                self._gave_way.update(
                    job for job, cause in event.memo.get(SUPERSEDED, {}).items() if cause
                )
                self._harden(event)

    def _start(self, event: PlanAdmitted) -> None:
        for job in dict.fromkeys(start.run.job for start in event.starts):
            announced = self._announced.get(job)
            if announced is not None and announced.at >= 0:
                late_s = max(LATE_S, PART * (announced.at - announced.on))
                self.counts["started"] += 1
                kept = event.at <= announced.at + late_s
                self.counts["kept"] += kept
                self.counts["superseded"] += not kept and job in self._gave_way
                self._announced[job] = _Announced(event.at, -1.0)  # only its first start counts

    def _harden(self, event: PlanAdmitted) -> None:
        job = None if event.hardened is None else event.hardened.job
        if self._waiting is not None and self._waiting[0] != job:
            self._longest_s = max(self._longest_s, event.at - self._waiting[1])
            self._waiting = None
        if event.hardened is not None and self._waiting is None:
            self.counts["hardened"] += 1
            self._waiting = event.hardened.job, event.hardened.since

    def figures(self) -> dict[str, Any]:
        """Return the part of the first announcements that held, and what hardened.

        `superseded` are those that a better claim displaced; the part is of the others.
        """
        counts = self.counts
        others = counts["started"] - counts["superseded"]
        return {
            "kept_ratio": counts["kept"] / others if others else None,
            "superseded": counts["superseded"],
            "hardened": counts["hardened"],
            "longest_hardened_wait_s": self._longest_s if counts["hardened"] else None,
        }
