"""The simulated work of elastic jobs: a pool for each, which its units take from together.

A unit takes as many seconds of work per second as its node is fast. When units come or go, those
that stay have their ends computed again: all end when the pool is empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headgate.model import RunId


@dataclass(slots=True)
class _Pool:
    left_s: float
    since: float
    speeds: dict[RunId, float] = field(default_factory=dict)  # in order of their starts

    def advance(self, now: float) -> None:
        self.left_s = max(0.0, self.left_s - (now - self.since) * sum(self.speeds.values()))
        self.since = now


class WorkPools:
    """The pools of jobs whose units have computed, in virtual time that never decreases."""

    def __init__(self) -> None:
        self._pools: dict[str, _Pool] = {}
        self._changed: dict[str, None] = {}

    def computes(self, run: RunId, work_s: float, now: float, speed: float) -> None:
        """Let a unit of a job with `work_s` seconds of work in all compute from now on."""
        pool = self._pools.setdefault(run.job, _Pool(work_s, now))
        pool.advance(now)
        pool.speeds[run] = speed
        self._changed[run.job] = None

    def ended(self, run: RunId, now: float) -> None:
        """Take note of the end of a run; what it has computed stays done."""
        pool = self._pools.get(run.job)
        if pool is not None and run in pool.speeds:
            pool.advance(now)
            del pool.speeds[run]
            self._changed[run.job] = None

    def revised(self, now: float) -> list[tuple[RunId, float]]:
        """Return the runs whose end has changed, or is new, each with its end."""
        ends = []
        for job in self._changed:
            pool = self._pools[job]
            pool.advance(now)
            rate = sum(pool.speeds.values())
            ends += [(run, now + pool.left_s / rate) for run in pool.speeds]
        self._changed.clear()
        return ends

    def archive(self, jobs: Iterable[str]) -> None:
        """Forget jobs that have ended."""
        for job in jobs:
            self._pools.pop(job, None)
            self._changed.pop(job, None)
