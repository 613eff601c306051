"""Seeded inputs for each workload, of any size: written in pieces, never whole in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.base.errors import Problem, SpecError, nearest

_PIECE_VALUES = 1 << 20
_DISTINCT = 50_000
_PRIMES_BELOW = 10**8
_INNER_TO_OUTER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The files of one workload's data, by the name its tasks give them, and its parameters.

    Files may be cut only at multiples of `line_bytes`.
    """

    workload: str
    files: Mapping[str, Path]
    params: Mapping[str, Any]
    line_bytes: int

    def shard_bytes(self, shards: int) -> int:
        """Return the least size of shards that cuts each file into at most so many."""
        lines = max(path.stat().st_size for path in self.files.values()) // self.line_bytes
        return max(1, -(-lines // shards)) * self.line_bytes


def generate(workload: str, folder: Path, size_bytes: int, *, seed: int) -> Inputs:
    """Write inputs of about that size in all, never above it, into a folder that is there.

    `occurrence`: `ints`, int64, the squares of integers below 50,000, small ones more often.
    `primes`: `ints`, int64 below 10**8. `matmul`: `left` and `right`, float64 in [-1, 1), for a
    square product; the inner size is four times the outer, so that a block's product, which has
    the shape of the whole, is an eighth of the inputs. The same seed gives the same bytes.
    SpecError for an unknown workload or a size that holds not even one number.
    """
    if workload not in _GENERATORS:
        problem = f"there is no workload '{workload}'"
        hint = nearest(workload, _GENERATORS)
        raise SpecError([Problem(path="workload", problem=problem, hint=hint)])
    least_bytes = 16 if workload == "matmul" else 8
    if size_bytes < least_bytes:
        problem = f"{size_bytes} bytes are too few for {workload}"
        raise SpecError([Problem(path="size", problem=problem, hint=f"at least {least_bytes}")])
    return _GENERATORS[workload](folder, size_bytes, np.random.default_rng(seed))


def _occurrence(folder: Path, size_bytes: int, rng: np.random.Generator) -> Inputs:
    path = folder / "occurrence-ints.bin"

    def draw(count: int) -> NDArray[Any]:
        return (_DISTINCT * rng.random(count) ** 2).astype("<i8") ** 2

    _write(path, size_bytes // 8, draw)
    return Inputs(
        workload="occurrence", files={"ints": path}, params={"dtype": "int64"}, line_bytes=8
    )


def _primes(folder: Path, size_bytes: int, rng: np.random.Generator) -> Inputs:
    path = folder / "primes-ints.bin"
    _write(path, size_bytes // 8, lambda count: rng.integers(0, _PRIMES_BELOW, count, "<i8"))
    return Inputs(workload="primes", files={"ints": path}, params={"dtype": "int64"}, line_bytes=8)


def _matmul(folder: Path, size_bytes: int, rng: np.random.Generator) -> Inputs:
    rows = max(1, isqrt(size_bytes // (16 * _INNER_TO_OUTER)))
    inner = size_bytes // (16 * rows)
    files = {name: folder / f"matmul-{name}.bin" for name in ("left", "right")}
    for path in files.values():
        _write(path, rows * inner, lambda count: rng.uniform(-1, 1, count).astype("<f8"))
    return Inputs(
        workload="matmul",
        files=files,
        params={"rows": rows, "columns": rows, "dtype": "float64"},
        line_bytes=8 * rows,
    )


_GENERATORS: Mapping[str, Callable[[Path, int, np.random.Generator], Inputs]] = {
    "matmul": _matmul,
    "occurrence": _occurrence,
    "primes": _primes,
}


def _write(path: Path, values: int, draw: Callable[[int], NDArray[Any]]) -> None:
    with path.open("wb") as file:
        for start in range(0, values, _PIECE_VALUES):
            file.write(draw(min(_PIECE_VALUES, values - start)).tobytes())
