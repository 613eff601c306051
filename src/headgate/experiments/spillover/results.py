"""The figures of all runs: means over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from headgate.experiments.spillover.loop import LoopOutcome
from headgate.experiments.spillover.runs import IDENTICAL, SpilloverRun
from headgate.experiments.spillover.scaling import Scaled, as_rows

TITLES: Mapping[str, str] = {
    "sync": "Tiny tasks, one in flight",
    "async": "Tiny tasks, all in flight",
    "mixed": "Mixed demands, so many in flight",
    "scan": "Scan of so many GB",
    "join": "Join of so many GB",
    "engine": "Mixed demands on Headgate's engine, all submitted together",
}
"""By experiment, in the order of the report."""

PUBLISHED_CPU: Mapping[str, Sequence[tuple[float, float, float]]] = {
    "random": ((90, 22, 15), (275, 90, 75), (419, 132, 122)),
    "resource-pick-kx": ((91, 23, 17), (276, 88, 80), (417, 130, 123)),
    "swrr": ((89, 22, 17), (275, 87, 78), (416, 129, 124)),
}
"""CPU percent of nodes 1, 2 and 3 at 1,000, 10,000 and 100,000 tasks; `random` is Ray's."""

_AT_REST_1000 = 5.0  # the part of the window that is idle, in times of 1,000 tasks
_PEAK_PERCENT = 127.0  # the published mean of nodes 2 and 3 at 100,000 tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class SpilloverResults:
    """All runs. `rates` are tasks/s by experiment, cluster, count and balancer, one per seed."""

    seeds: Sequence[int]
    rates: Mapping[tuple[str, str, int, str], Sequence[float]]
    seconds: Mapping[tuple[str, str, int, str], float]
    """Makespans, means over seeds."""
    cpu: Mapping[tuple[int, str], tuple[float, ...]]
    """CPU percent by node, on the identical nodes; by tasks and balancer."""
    scaled: Scaled

    def counts(self, experiment: str) -> list[int]:
        """Return the counts of an experiment, ascending."""
        return sorted({count for name, _, count, _ in self.rates if name == experiment})

    def rate(self, experiment: str, cluster: str, count: int, balancer: str) -> float:
        """Return the mean rate, in tasks/s."""
        return fmean(self.rates[experiment, cluster, count, balancer])

    def gap(self, count: int, balancer: str) -> float:
        """Return the gap between the CPU percents of the two nodes that are not the head."""
        return self.cpu[count, balancer][0]


def gather(
    ended: Mapping[SpilloverRun, LoopOutcome], seeds: Sequence[int], scaled: Scaled
) -> SpilloverResults:
    """Return the figures of all runs."""
    rates: dict[tuple[str, str, int, str], list[float]] = {}
    seconds: dict[tuple[str, str, int, str], list[float]] = {}
    for run, end in ended.items():
        key = (run.experiment, run.cluster, run.count, run.balancer)
        rates.setdefault(key, []).append(run.tasks / end.makespan_s)
        seconds.setdefault(key, []).append(end.makespan_s)
    return SpilloverResults(
        seeds=seeds,
        rates=rates,
        seconds={key: fmean(values) for key, values in seconds.items()},
        cpu=_cpu(ended),
        scaled=scaled,
    )


def _cpu(ended: Mapping[SpilloverRun, LoopOutcome]) -> dict[tuple[int, str], tuple[float, ...]]:
    """Return, by tasks and balancer, the gap of nodes 2 and 3 and the percent of each node.

    The percents are over a window that is longer than the tasks take: two constants, fitted to
    published figures (see `_AT_REST_1000`, `_PEAK_PERCENT`). The gap is the mean of those of seeds.
    """
    own = {r: e for r, e in ended.items() if r.experiment == "async" and r.cluster == IDENTICAL}
    plain = {r: e for r, e in own.items() if r.balancer == "random"}
    rest_s = _AT_REST_1000 * 1000 * fmean(e.makespan_s / r.tasks for r, e in plain.items())
    most = max(run.count for run in plain)
    full = fmean(
        fmean(e.busy_s[1:]) / (e.makespan_s + rest_s) for r, e in plain.items() if r.count == most
    )
    at_100_000 = 100_000 / (100_000 + _AT_REST_1000 * 1000)
    per_s = _PEAK_PERCENT / full * (most / (most + _AT_REST_1000 * 1000)) / at_100_000
    levels: dict[tuple[int, str], list[tuple[float, ...]]] = {}
    for run, end in own.items():
        window_s = end.makespan_s + rest_s
        nodes = tuple(per_s * busy_s / window_s for busy_s in end.busy_s)
        gap = abs(nodes[1] - nodes[2])
        levels.setdefault((run.count, run.balancer), []).append((gap, *nodes))
    return {
        key: tuple(fmean(column) for column in zip(*values, strict=True))
        for key, values in levels.items()
    }


def as_json(results: SpilloverResults) -> dict[str, Any]:
    """Return all tables as JSON: a list of rows for each experiment, and of CPU."""
    tables: dict[str, Any] = {
        experiment: [
            {
                "cluster": cluster,
                "count": count,
                "balancer": balancer,
                "tasks_per_s": fmean(values),
                "least_tasks_per_s": min(values),
                "most_tasks_per_s": max(values),
                "makespan_s": results.seconds[name, cluster, count, balancer],
            }
            for (name, cluster, count, balancer), values in results.rates.items()
            if name == experiment
        ]
        for experiment in TITLES
    }
    tables["cpu"] = [
        {"tasks": count, "balancer": balancer, "gap": gap, "percent": nodes}
        for (count, balancer), (gap, *nodes) in results.cpu.items()
    ]
    tables["scaling"] = as_rows(results.scaled)
    return tables
