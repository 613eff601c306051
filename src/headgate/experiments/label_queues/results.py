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

    @property
    def shapes(self) -> list[tuple[str, int]]:
        """All groups: an experiment and a number of jobs each."""
        return [(MIXED, 2 * self.sizes.mixed), *((ALONE, jobs) for jobs in self.sizes.alone)]

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
        return [
            own.total_s < theirs.total_s
            for shape in self.shapes
            for own, theirs in zip(self.of(*shape, variant), self.of(*shape, CAPACITY), strict=True)
        ]

    def less_if(self, variant: str, assumed: Assumed) -> dict[tuple[str, int], float]:
        """Return the same under assumptions, by experiment and number of jobs: of equal runs."""

        def mean_s(shape: tuple[str, int], name: str) -> float:
            return fmean(times.total_s for times in self.of(*shape, name, assumed)[:OTHERS])

        shapes = [(MIXED, 2 * self.sizes.mixed), *((ALONE, jobs) for jobs in self.sizes.varied)]
        return {shape: 1 - mean_s(shape, variant) / mean_s(shape, CAPACITY) for shape in shapes}


def as_json(results: LabelResults) -> dict[str, Any]:
    """Return all tables as JSON: a list of rows for each experiment, and of assumptions."""
    tables: dict[str, Any] = {MIXED: [], ALONE: []}
    for experiment, jobs in results.shapes:
        tables[experiment] += [_row(results, experiment, jobs, name) for name in VARIANTS]
    tables["assumptions"] = [
        {
            "assumption": name,
            "variant": variant,
            "experiment": experiment,
            "jobs": jobs,
            "less_than_capacity": less,
        }
        for name in results.sizes.assumed
        for variant in VARIANTS
        if variant != CAPACITY
        for (experiment, jobs), less in results.less_if(variant, ASSUMED[name]).items()
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
