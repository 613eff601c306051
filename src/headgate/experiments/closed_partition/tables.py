"""The figures of all simulations, as means over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.experiments.closed_partition.kernels import KERNELS, SIZES, Size, published_mean_s
from headgate.experiments.closed_partition.machine import Split
from headgate.experiments.closed_partition.runs import (
    DEFAULT,
    PLACERS,
    SEQUENTIAL,
    MeansRow,
    PartitionRun,
    Variant,
)
from headgate.experiments.closed_partition.stream import mean
from headgate.experiments.closed_partition.training import TrainingThroughput


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResults:
    """Everything that was computed: by variant, size and placer the means over seeds."""

    seeds: tuple[int, ...]
    splits: Mapping[Variant, Split]
    rows: Mapping[tuple[Variant, Size, str], MeansRow]
    trainings: tuple[TrainingThroughput, ...]

    def row(self, size: Size, placer: str, variant: Variant = DEFAULT) -> MeansRow:
        """Return the row of a set under a placement."""
        return self.rows[variant, size, placer]

    def mean_s(self, size: Size, placer: str, variant: Variant = DEFAULT) -> float:
        """Return the mean over kernels, each of them weighing the same, in seconds."""
        return mean(self.row(size, placer, variant).mean_s[k.name] for k in KERNELS)

    def gain(self, size: Size, placer: str, variant: Variant = DEFAULT) -> float:
        """Return by which part the mean over kernels is less than under sequential placement."""
        return 1 - self.mean_s(size, placer, variant) / self.mean_s(size, SEQUENTIAL, variant)

    def kernel_gain(
        self, kernel: str, size: Size, placer: str, variant: Variant = DEFAULT
    ) -> float:
        """Return the same for one kernel."""
        ours = self.row(size, placer, variant).mean_s[kernel]
        return 1 - ours / self.row(size, SEQUENTIAL, variant).mean_s[kernel]


def gather(
    rows: Mapping[PartitionRun, MeansRow],
    seeds: Sequence[int],
    splits: Mapping[Variant, Split],
    trainings: tuple[TrainingThroughput, ...],
) -> PartitionResults:
    """Return the means over seeds."""
    by: dict[tuple[Variant, Size, str], list[MeansRow]] = {}
    for run, row in rows.items():
        by.setdefault((run.variant, run.size, run.placer), []).append(row)
    return PartitionResults(
        seeds=tuple(seeds),
        splits=splits,
        rows={key: _mean(some) for key, some in by.items()},
        trainings=trainings,
    )


def _mean(rows: Sequence[MeansRow]) -> MeansRow:
    def some(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return mean(known) if known else None

    return MeansRow(
        mean_s={k.name: mean(row.mean_s[k.name] for row in rows) for k in KERNELS},
        wait_s=mean(row.wait_s for row in rows),
        slowdown=mean(row.slowdown for row in rows),
        diameter=some([row.diameter for row in rows]),
        closed=some([row.closed for row in rows]),
        utilisation=mean(row.utilisation for row in rows),
        shared_links=mean(row.shared_links for row in rows),
    )


def as_json(results: PartitionResults) -> list[dict[str, Any]]:
    """Return the tables as JSON values."""
    found: list[dict[str, Any]] = [
        {
            "name": f"{size.name}, {variant.name}",
            "set": size.name,
            "variant": variant.name,
            "placements": {
                placer: {
                    "published": _published(size, placer),
                    "ours": figures(results, variant, size, placer),
                }
                for placer in PLACERS
                if (variant, size, placer) in results.rows
            },
        }
        for variant in results.splits
        for size in SIZES
    ]
    found.append({"name": "calibration", "rows": list(calibration_rows(results))})
    found.append(
        {
            "name": "training",
            "rows": [
                {
                    "server_gbit_per_s": t.gbit_per_s,
                    "one_server_steps_per_s": t.one_server,
                    "four_servers_steps_per_s": t.four_servers,
                    "ratio": t.ratio,
                }
                for t in results.trainings
            ],
        }
    )
    return found


def calibration_rows(results: PartitionResults) -> list[dict[str, Any]]:
    """Return the split of the default variant by kernel and size, in seconds."""
    split = results.splits[DEFAULT]
    return [
        {
            "kernel": kernel.name,
            "set": size.name,
            "pattern": str(kernel.pattern),
            "published_s": kernel.published_s(size),
            "compute_s": split[kernel.name, size.name][0],
            "communication_s": split[kernel.name, size.name][1],
            "simulated_s": results.row(size, SEQUENTIAL).mean_s[kernel.name],
        }
        for kernel in KERNELS
        for size in SIZES
    ]


def _published(size: Size, placer: str) -> dict[str, Any]:
    if placer != SEQUENTIAL:
        return {"mean_s": None, "kernels_s": None}
    kernels_s = {kernel.name: kernel.published_s(size) for kernel in KERNELS}
    return {"mean_s": published_mean_s(size), "kernels_s": kernels_s}


def figures(results: PartitionResults, variant: Variant, size: Size, placer: str) -> dict[str, Any]:
    """Return our figures of a set under a placement."""
    row = results.row(size, placer, variant)
    return {
        "mean_s": results.mean_s(size, placer, variant),
        "kernels_s": dict(row.mean_s),
        "gain": results.gain(size, placer, variant),
        "mean_wait_s": row.wait_s,
        "mean_slowdown": row.slowdown,
        "mean_diameter": row.diameter,
        "least_diameter_ratio": row.closed,
        "utilisation": row.utilisation,
        "shared_links": row.shared_links,
    }
