"""What a simulation reports of links and of jobs that communicate."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.base.units import finite
from headgate.model.topology import Topology
from headgate.planning.links.traffic import Traffic

MOST_LINKS = 50
"""Links that a report names."""

_MOST_JOBS = 20


@dataclass(slots=True)
class LinkRow:
    """One directed link: its capacity, the bytes it carried, and the sharing of it by jobs."""

    bytes_per_s: float
    sent_bytes: float = 0.0
    shared_s: float = 0.0  # while two jobs or more sent over it
    jobs: dict[str, None] = field(default_factory=dict)  # that shared it: the first 20


class LinkUse:
    """The bytes over each link, and which jobs shared it; by names, as topologies may change."""

    def __init__(self) -> None:
        self.rows: dict[str, LinkRow] = {}
        self._topology: Topology | None = None
        self._sent: NDArray[np.float64] = np.zeros(0)
        self._on: dict[int, dict[str, int]] = {}  # link -> jobs that send over it: their groups
        self._shared_since: dict[int, float] = {}

    def begin(self, topology: Topology) -> None:
        """Report links of this topology from now on; no job sends yet."""
        self._topology = topology
        self._sent = np.zeros(topology.links)

    def add(self, job: str, traffic: Traffic, now: float) -> None:
        """Let a job, or a group of it, send over links from now on."""
        for link in traffic.links.tolist():
            jobs = self._on.setdefault(link, {})
            jobs[job] = jobs.get(job, 0) + 1
            if len(jobs) > 1 and jobs[job] == 1:
                self._shared_since.setdefault(link, now)
                self._named(link, jobs)

    def _named(self, link: int, jobs: Iterable[str]) -> None:
        row = self._row(link)
        for job in jobs:
            if job not in row.jobs and len(row.jobs) < _MOST_JOBS:
                row.jobs[job] = None

    def remove(self, job: str, traffic: Traffic, now: float) -> None:
        """Let a job, or a group of it, send no more."""
        for link in traffic.links.tolist():
            jobs = self._on[link]
            jobs[job] -= 1
            if not jobs[job]:
                del jobs[job]
            if len(jobs) < 2 and link in self._shared_since:
                self._row(link).shared_s += now - self._shared_since.pop(link)

    def sent(self, traffic: Traffic, steps: float) -> None:
        """Count the bytes of some steps."""
        self._sent[traffic.links] += traffic.flows * (traffic.flow_bytes * steps)

    def close(self, now: float) -> None:
        """Bring the rows up to now."""
        for link in np.flatnonzero(self._sent).tolist():
            self._row(link).sent_bytes += float(self._sent[link])
        self._sent[:] = 0.0
        for link, since in self._shared_since.items():
            self._row(link).shared_s += now - since
            self._shared_since[link] = now

    def _row(self, link: int) -> LinkRow:
        assert self._topology is not None, "a job has sent over it"
        label = self._topology.link_label(link)
        row = self.rows.get(label)
        if row is None:
            row = self.rows[label] = LinkRow(float(self._topology.capacity[link]))
        return row

    def figures(self, span_s: float) -> list[dict[str, Any]]:
        """Return the links that carried most for their capacity, over a time; at most MOST_LINKS.

        `use` is the part of the capacity that the mean load is; an infinite capacity is None.
        """
        load = {
            label: row.sent_bytes / span_s if span_s else 0.0 for label, row in self.rows.items()
        }
        used = {label: load[label] / row.bytes_per_s for label, row in self.rows.items()}
        busiest = sorted(used, key=lambda label: (-used[label], label))[:MOST_LINKS]
        return [
            {
                "link": label,
                "capacity_bytes_per_s": finite(self.rows[label].bytes_per_s),
                "load_bytes_per_s": load[label],
                "use": used[label],
                "shared_s": self.rows[label].shared_s,
                "jobs": [*self.rows[label].jobs],
            }
            for label in busiest
        ]

    @property
    def shared_links(self) -> int:
        """Links over which, at some time, two jobs or more sent."""
        return sum(bool(row.jobs) for row in self.rows.values())


class JobTimes:
    """Diameters of jobs on several nodes, and slowdowns of those that communicate."""

    def __init__(self) -> None:
        self.diameters: dict[str, int] = {}  # of the last launch of each job
        self.by_job: dict[str, tuple[float, float]] = {}  # seconds of computing, at slowdown 1
        self._spread = [0, 0]  # of jobs archived: the sum of diameters, and their number
        self._slowdowns = array("d")  # of jobs archived

    def add(self, job: str, computing_s: float, alone_s: float) -> None:
        """Count seconds in which a job computed, and how long it would have taken at slowdown 1."""
        computed_s, best_s = self.by_job.get(job, (0.0, 0.0))
        self.by_job[job] = (computed_s + computing_s, best_s + alone_s)

    def archive(self, job: str) -> None:
        """Keep of a job only its part in the figures."""
        if job in self.diameters:
            self._spread[0] += self.diameters.pop(job)
            self._spread[1] += 1
        if job in self.by_job:
            computed_s, best_s = self.by_job.pop(job)
            self._slowdowns.append(computed_s / best_s)

    def figures(self) -> dict[str, Any]:
        """Return the mean diameter in hops, and mean and 95 % quantile of slowdowns, or None."""
        for job in [*self.diameters, *self.by_job]:
            self.archive(job)
        total, count = self._spread
        slowdowns = np.array(self._slowdowns)
        known = len(slowdowns) > 0
        return {
            "mean_diameter": total / count if count else None,
            "slowdown": {
                "mean": float(slowdowns.mean()) if known else None,
                "p95": float(np.quantile(slowdowns, 0.95)) if known else None,
            },
        }
