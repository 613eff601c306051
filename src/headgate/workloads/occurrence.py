"""Sparse-integer occurrence: how often each integer occurs in the data.

`count` is run for each shard, `merge` once over all results. Shards are raw integers (see
`counts.integers_of`), results are tables (see `counts`).
"""

from __future__ import annotations

from headgate.workloads.counts import Counts, Integers, integers_of, write_merged, write_total
from headgate.workloads.task import (
    TaskContext,
    array_module,
    from_numpy,
    to_numpy,
    unique_counts,
)


def count(task: TaskContext) -> None:
    """Count the integers of the task's shards."""
    module = array_module(task)

    def counted(piece: Integers) -> Counts:
        values, counts = unique_counts(module, from_numpy(module, piece))
        return Counts(to_numpy(values), to_numpy(counts))

    write_total(task, map(counted, integers_of(task)), "integers")


def merge(task: TaskContext) -> None:
    """Add up the tables of all earlier tasks."""
    write_merged(task, "integers")
