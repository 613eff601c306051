"""Sparse matrix times vector: y = A x, with A cut into shards of entries.

`multiply` is run for each shard and writes the contribution of its entries to y; `add` sums these,
on the CPU. Shards are raw records of 16 bytes: row (int32), column (int32), value (float64), all
little-endian; entries at the same place add up. Results are `.npy` files, float64, one number per
row of A.

The parameters `rows` and `columns` give A's shape; x is drawn from `seed` (see `vector`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.workloads.records import whole_number, whole_records, wrong
from headgate.workloads.task import TaskContext, array_module, from_numpy, to_numpy

ENTRY = np.dtype([("row", "<i4"), ("column", "<i4"), ("value", "<f8")])


def vector(seed: int, columns: int) -> NDArray[np.float64]:
    """Return x: numbers in [-1, 1)."""
    return np.random.default_rng((seed, columns)).uniform(-1, 1, columns)


def multiply(task: TaskContext) -> None:
    """Multiply the entries of the task's shards with x; SpecError for one outside the matrix."""
    rows, columns = whole_number(task.params, "rows"), whole_number(task.params, "columns")
    module = array_module(task)
    x = from_numpy(module, vector(whole_number(task.params, "seed", least=0), columns))
    product = np.zeros(rows)
    entries = 0
    for path in task.shards:
        whole_records(path, ENTRY.itemsize, "entries")
        shard = np.fromfile(path, ENTRY)
        row, column = (_indices(path, shard, *n) for n in (("row", rows), ("column", columns)))
        terms = from_numpy(module, shard["value"].copy()) * x[from_numpy(module, column)]
        product += to_numpy(module.bincount(from_numpy(module, row), terms, rows))
        entries += shard.size
    _write(task.output, product)
    print(f"{entries} entries")


def add(task: TaskContext) -> None:
    """Add up the results of all earlier tasks."""
    total = np.load(task.shards[0])
    for path in task.shards[1:]:
        total += np.load(path)
    _write(task.output, total)
    print(f"{total.size} rows of {len(task.shards)} results")


def _indices(path: Path, entries: NDArray[Any], name: str, size: int) -> NDArray[np.int64]:
    indices: NDArray[np.int64] = entries[name].astype(np.int64)
    if indices.size and not 0 <= indices.min() <= indices.max() < size:
        outside = indices[(indices < 0) | (indices >= size)][0]
        raise wrong(str(path), f"there is no {name} {outside}", f"params.{name}s is {size}")
    return indices


def _write(path: Path, array: NDArray[np.float64]) -> None:
    with path.open("wb") as file:
        np.save(file, array)
