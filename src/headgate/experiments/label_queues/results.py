"""The figures of all runs: total times without outliers, and what they are less than Capacity's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, quantiles
from typing import Any

from headgate.experiments.label_queues.groups import Assumed
from headgate.experiments.label_queues.runs import (
    ALONE,
    ASSUMED,
    CAPACITY,
    DEFAULT,
    MIXED,
    OTHERS,
    VARIANTS,
    GroupTimes,
    LabelRun,
    LabelSizes,
)


def without_outliers(values: Sequence[float]) -> list[float]:
    """Return the values that are no outliers of a box plot: 1.5 times the box beyond it."""
    if len(values) < 2:  # no quartiles
        return [*values]
    lower, _, upper = quantiles(values, n=4, method="inclusive")
    beyond = 1.5 * (upper - lower)
    return [value for value in values if lower - beyond <= value <= upper + beyond]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelResults:
    """All runs and their times."""

    sizes: LabelSizes
    seeds: Sequence[int]
    times: Mapping[LabelRun, GroupTimes]

    def of(
        self, experiment: str, jobs: int, variant: str, assumed: Assumed = DEFAULT
    ) -> list[GroupTimes]:
        """Return the times of the runs of a group, in order of their seeds."""
        return [
            times
            for run, times in self.times.items()
            if (run.experiment, run.jobs, run.variant, run.assumed)
            == (experiment, jobs, variant, assumed)
        ]

    def totals(self, experiment: str, jobs: int, variant: str) -> list[float]:
        """Return the total times that count: all of mixed groups, of WordCounts no outliers."""
        found = [times.total_s for times in self.of(experiment, jobs, variant)]
        return without_outliers(found) if experiment == ALONE else found

    def less(self, experiment: str, jobs: int, variant: str) -> float:
        """Return by which part the mean total time is less than under Capacity."""
        own = fmean(self.totals(experiment, jobs, variant))
        return 1 - own / fmean(self.totals(experiment, jobs, CAPACITY))

    def mixed(self, variant: str) -> float:
        """Return the same of mixed groups."""
        return self.less(MIXED, 2 * self.sizes.mixed, variant)

    def alone(self, variant: str) -> dict[int, float]:
        """Return the same of WordCounts alone, by their number."""
        return {jobs: self.less(ALONE, jobs, variant) for jobs in self.sizes.alone}

    def better(self, variant: str) -> list[bool]:
        """Return, by run, whether the total time is less than under Capacity: every run counts."""
        shapes = [(MIXED, 2 * self.sizes.mixed), *((ALONE, jobs) for jobs in self.sizes.alone)]
        return [
            own.total_s < theirs.total_s
            for shape in shapes
            for own, theirs in zip(self.of(*shape, variant), self.of(*shape, CAPACITY), strict=True)
        ]

    def less_if(self, experiment: str, jobs: int, variant: str, assumed: Assumed) -> float:
        """Return the same as `less` under assumptions, of as many runs under each."""
        own, theirs = (
            fmean(times.total_s for times in self.of(experiment, jobs, name, assumed)[:OTHERS])
            for name in (variant, CAPACITY)
        )
        return 1 - own / theirs


def as_json(results: LabelResults) -> dict[str, Any]:
    """Return all tables as JSON: a list of rows for each experiment, and of assumptions."""
    shapes = [(MIXED, 2 * results.sizes.mixed), *((ALONE, jobs) for jobs in results.sizes.alone)]
    tables: dict[str, Any] = {MIXED: [], ALONE: []}
    for experiment, jobs in shapes:
        tables[experiment] += [_row(results, experiment, jobs, name) for name in VARIANTS]
    tables["assumptions"] = [
        {"assumption": name, "variant": variant, **less}
        for name in results.sizes.assumed
        for variant, less in less_by_variant(results, ASSUMED[name]).items()
    ]
    return tables


def _row(results: LabelResults, experiment: str, jobs: int, variant: str) -> dict[str, Any]:
    runs = results.of(experiment, jobs, variant)
    counted = results.totals(experiment, jobs, variant)
    return {
        "jobs": jobs,
        "variant": variant,
        "policy": VARIANTS[variant].policy,
        "total_s": fmean(counted),
        "least_total_s": min(counted),
        "most_total_s": max(counted),
        "runs": len(runs),
        "outliers": len(runs) - len(counted),
        "less_than_capacity": results.less(experiment, jobs, variant),
        "completion_s": fmean(times.completion_s for times in runs),
        "longest_wait_s": max(times.longest_wait_s for times in runs),
    }


def less_by_variant(results: LabelResults, assumed: Assumed) -> dict[str, dict[str, float]]:
    """Return, for all but Capacity, what total times are less than its under assumptions."""
    few, many = results.sizes.alone[0], results.sizes.alone[-1]
    shapes = {
        "mixed": (MIXED, 2 * results.sizes.mixed),
        "fewest": (ALONE, few),
        "most": (ALONE, many),
    }
    return {
        variant: {name: results.less_if(*shape, variant, assumed) for name, shape in shapes.items()}
        for variant in VARIANTS
        if variant != CAPACITY
    }
