"""Matrix product by blocks: C = A B, with A cut into blocks of columns and B into blocks of rows.

`multiply` is run for each pair of blocks k and writes their product, a matrix of C's shape, as
strips of rows when its result has several parts. Then one `add_strips` per part adds that strip of
all products; or, of products in one part, any number of `add` each read all of them and add one
strip. C is the strips, one below the other.

Blocks are `.npy` files, or raw little-endian numbers: A column by column, B row by row, so that
cutting each file at whole columns or rows cuts it into the blocks. Results are `.npy` files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.workloads.records import parts_of, whole_number, whole_records, wrong
from headgate.workloads.task import TaskContext, array_module, from_numpy, to_numpy

Matrix = NDArray[np.floating[Any]]

_DTYPES = {"float32": "<f4", "float64": "<f8"}
_NPY_MAGIC = b"\x93NUMPY"


def multiply(task: TaskContext) -> None:
    """Multiply a block of A with the block of B of the same number.

    For raw blocks the parameters `rows` and `columns` give the shape of C, `dtype` the numbers
    (`float64` by default, or `float32`); the inner size follows from the files' sizes.
    SpecError for parameters missing or wrong, or blocks that do not fit each other.
    """
    if len(task.shards) != 2:
        raise wrong("shards", f"a block of A and one of B are needed, here are {len(task.shards)}")
    left = _read_block(task.shards[0], task.params, "rows", order="F")
    right = _read_block(task.shards[1], task.params, "columns", order="C")
    if left.shape[1] != right.shape[0]:
        raise wrong(
            "shards",
            f"the block of A has {left.shape[1]} columns, the one of B {right.shape[0]} rows",
            "cut both into the same number of columns and rows",
        )
    module = array_module(task)
    product = to_numpy(from_numpy(module, left) @ from_numpy(module, right))
    outputs = parts_of(task)
    for index, path in enumerate(outputs):
        _write(path, product[strip(index, len(outputs), len(product))])
    print(f"{left.shape} x {right.shape}, {len(outputs)} strips")


def add(task: TaskContext) -> None:
    """Add this task's strip of the products of all earlier tasks, in their order."""
    rows = strip(task.index, task.count, np.load(task.shards[0], mmap_mode="r").shape[0])
    _add(task, rows)
    print(f"rows {rows.start} to {rows.stop} of {len(task.shards)} products")


def add_strips(task: TaskContext) -> None:
    """Add one part of the products of all earlier tasks, in their order."""
    _add(task, slice(None))
    print(f"part {task.index} of {len(task.shards)} products")


def _add(task: TaskContext, rows: slice) -> None:
    module = array_module(task)
    total = from_numpy(module, np.array(np.load(task.shards[0], mmap_mode="r")[rows]))
    for path in task.shards[1:]:
        total = total + from_numpy(module, np.array(np.load(path, mmap_mode="r")[rows]))
    _write(task.output, to_numpy(total))


def strip(index: int, count: int, rows: int) -> slice:
    """Return the rows of strip `index` of `count`: equal up to one row, empty when rows are few."""
    return slice(index * rows // count, (index + 1) * rows // count)


def _read_block(path: Path, params: Mapping[str, Any], outer: str, *, order: str) -> Matrix:
    """Read a block whose outer size is the parameter of that name."""
    with path.open("rb") as file:
        if file.read(len(_NPY_MAGIC)) == _NPY_MAGIC:
            block: Matrix = np.load(path)
            if block.ndim != 2:
                raise wrong(str(path), f"a block is a matrix, this has {block.ndim} dimensions")
            return block
    size, dtype = whole_number(params, outer), params.get("dtype", "float64")
    if dtype not in _DTYPES:
        raise wrong("params.dtype", f"'{dtype}' is unknown", "float32 or float64")
    line_bytes = size * np.dtype(_DTYPES[dtype]).itemsize
    whole_records(path, line_bytes, f"lines of {size} {dtype}")
    flat = np.fromfile(path, _DTYPES[dtype])
    return flat.reshape(size, -1, order="F") if order == "F" else flat.reshape(-1, size)


def _write(path: Path, matrix: Matrix) -> None:
    with path.open("wb") as file:
        np.save(file, matrix)
