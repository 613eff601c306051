"""Tables of how often each integer occurs: counted in parts, saved, and merged.

A table is two arrays of equal length: the distinct integers in ascending order, and how often each
of them occurs. It is saved as an `.npz` file with `values` and `counts`, both int64; equal tables
give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headgate.workloads.records import whole_records, wrong
from headgate.workloads.task import TaskContext

Integers = NDArray[np.int64]

_DTYPES = {"int32": "<i4", "int64": "<i8"}
_PIECE_VALUES = 1 << 22
_MOST_TABLES = 16


class Counts(NamedTuple):
    """One table."""

    values: Integers
    counts: Integers


def read_counts(path: Path) -> Counts:
    """Read a table that `write_counts` wrote."""
    with np.load(path) as saved:
        return Counts(saved["values"], saved["counts"])


def write_counts(path: Path, table: Counts) -> None:
    """Save a table; the file's name needs no suffix."""
    with path.open("wb") as file:
        np.savez(file, values=table.values, counts=table.counts)


def merge(tables: Iterable[Counts]) -> Counts:
    """Add tables up; O(n log n) in their total length, all of which is in memory."""
    parts = [Counts(np.empty(0, np.int64), np.empty(0, np.int64)), *tables]
    values = np.concatenate([part.values for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    order = np.argsort(values, kind="stable")
    values, counts = values[order], counts[order]
    starts = np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
    return Counts(values[starts], np.add.reduceat(counts, starts) if starts.size else counts)


def merge_all(tables: Iterable[Counts]) -> Counts:
    """Add up any number of tables, with few of them in memory."""
    held: list[Counts] = []
    for table in tables:
        held.append(table)
        if len(held) == _MOST_TABLES:
            held = [merge(held)]
    return merge(held)


def write_total(task: TaskContext, tables: Iterable[Counts], what: str) -> None:
    """Write the sum of tables as the task's result; `what` names the integers in its log."""
    table = merge_all(tables)
    write_counts(task.output, table)
    print(f"{table.counts.sum()} {what}, {table.values.size} of them distinct")


def write_merged(task: TaskContext, what: str) -> None:
    """Write the sum of the tables of all earlier tasks; see `write_total`."""
    write_total(task, map(read_counts, task.shards), what)


def integers_of(task: TaskContext) -> Iterator[Integers]:
    """Yield the integers of a task's shards as int64 arrays of at most 4 Mi values.

    Shards are raw little-endian integers; the parameter `dtype` is `int64` (default) or `int32`.
    SpecError for another dtype, or a shard that ends inside an integer.
    """
    name = str(task.params.get("dtype", "int64"))
    if name not in _DTYPES:
        raise wrong("params.dtype", f"'{name}' is unknown", "int32 or int64")
    dtype = np.dtype(_DTYPES[name])
    for shard in task.shards:
        whole_records(shard, dtype.itemsize, name)
        with shard.open("rb") as file:
            while (piece := np.fromfile(file, dtype, _PIECE_VALUES)).size:
                yield piece.astype(np.int64, copy=False)
