"""Seeded inputs for each workload, of any size: written in pieces to bound memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.base.errors import nearest
from headgate.workloads import faces, sort, sparse
from headgate.workloads.detection import write_boxes
from headgate.workloads.records import wrong

_PIECE_VALUES = 1 << 20
_DISTINCT = 50_000
_PRIMES_BELOW = 10**8
_INNER_TO_OUTER = 4
_CHARACTERS = ("!", "~")
_ENTRIES_PER_ROW = 8
_MOST_DIMS = 2_500
_MOST_CLUSTERS = 64
_VECTORS_PER_CLUSTER = 16
_ITERATIONS = 10
_SPREAD = 0.5  # standard deviation of vectors in a cluster; that of the cluster means is 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The files of one workload's data, by the names that its job file uses, and its parameters.

    Files may be cut only at multiples of `line_bytes`. `truth` is what `verify` needs and no
    program could recompute: for `detection`, the places of the faces.
    """

    workload: str
    files: Mapping[str, Path]
    params: Mapping[str, Any]
    line_bytes: int
    truth: Path | None = None

    def shard_bytes(self, shards: int) -> int:
        """Return the least shard size, in bytes, that cuts each file into at most `shards`."""
        lines = max(path.stat().st_size for path in self.files.values()) // self.line_bytes
        return max(1, -(-lines // shards)) * self.line_bytes


def generate(workload: str, folder: Path, size_bytes: int, *, seed: int) -> Inputs:
    """Write inputs of about `size_bytes` in all, never more, into an existing folder.

    `occurrence`: `ints`, int64, the squares of integers below 50,000, small ones more often.
    `primes`: `ints`, int64 below 10**8. `matmul`: `left` and `right`, float64 in [-1, 1), for a
    square product; the inner size is four times the outer, so that a block's product, which has
    the shape of the whole, is an eighth of the inputs. `sort`: `records` of printable characters.
    `kmeans`: `vectors` around the means of `params["clusters"]` clusters: 64 in 2,500 dimensions
    from about 100 MB on, fewer below; verified after `params["iterations"]`.
    `detection`: `images` with faces, 16 KiB each. `sparse`: `entries` of a square matrix, eight in
    each row. The same seed gives the same bytes.
    SpecError for an unknown workload or a size that holds not even one record; WorldError for
    `detection` without the extra `vision`.
    """
    if workload not in _GENERATORS:
        raise wrong(
            "workload", f"there is no workload '{workload}'", nearest(workload, _GENERATORS)
        )
    least_bytes, generator = _GENERATORS[workload]
    if size_bytes < least_bytes:
        raise wrong(
            "size", f"{size_bytes} bytes are too few for {workload}", f"at least {least_bytes}"
        )
    return generator(folder, size_bytes, seed)


def _occurrence(folder: Path, size_bytes: int, seed: int) -> Inputs:
    rng = np.random.default_rng(seed)
    path = folder / "occurrence-ints.bin"

    def draw(places: range) -> NDArray[Any]:
        return (_DISTINCT * rng.random(len(places)) ** 2).astype("<i8") ** 2

    _write(path, size_bytes // 8, draw)
    return Inputs(
        workload="occurrence", files={"ints": path}, params={"dtype": "int64"}, line_bytes=8
    )


def _primes(folder: Path, size_bytes: int, seed: int) -> Inputs:
    rng = np.random.default_rng(seed)
    path = folder / "primes-ints.bin"
    _write(path, size_bytes // 8, lambda places: rng.integers(0, _PRIMES_BELOW, len(places), "<i8"))
    return Inputs(workload="primes", files={"ints": path}, params={"dtype": "int64"}, line_bytes=8)


def _matmul(folder: Path, size_bytes: int, seed: int) -> Inputs:
    rng = np.random.default_rng(seed)
    rows = max(1, isqrt(size_bytes // (16 * _INNER_TO_OUTER)))
    inner = size_bytes // (16 * rows)
    files = {name: folder / f"matmul-{name}.bin" for name in ("left", "right")}
    for path in files.values():
        _write(path, rows * inner, lambda places: rng.uniform(-1, 1, len(places)).astype("<f8"))
    return Inputs(
        workload="matmul",
        files=files,
        params={"rows": rows, "columns": rows, "dtype": "float64"},
        line_bytes=8 * rows,
    )


def _sort(folder: Path, size_bytes: int, seed: int) -> Inputs:
    rng = np.random.default_rng(seed)
    path = folder / "sort-records.bin"
    least, greatest = _CHARACTERS

    def draw(places: range) -> NDArray[Any]:
        shape = (len(places), sort.RECORD_BYTES)
        return rng.integers(ord(least), ord(greatest) + 1, shape, np.uint8)

    _write(path, size_bytes // sort.RECORD_BYTES, draw, sort.RECORD_BYTES)
    return Inputs(
        workload="sort",
        files={"records": path},
        params={"least": least, "greatest": greatest},
        line_bytes=sort.RECORD_BYTES,
    )


def _kmeans(folder: Path, size_bytes: int, seed: int) -> Inputs:
    rng = np.random.default_rng(seed)
    path = folder / "kmeans-vectors.bin"
    dims = max(1, min(_MOST_DIMS, isqrt(size_bytes) // 4))
    vectors = size_bytes // (4 * dims)
    clusters = max(1, min(_MOST_CLUSTERS, vectors // _VECTORS_PER_CLUSTER))
    middles = rng.standard_normal((clusters, dims), np.float32)

    def draw(places: range) -> NDArray[Any]:
        noise = rng.standard_normal((len(places), dims), np.float32)
        mixed = middles[rng.integers(0, clusters, len(places))] + np.float32(_SPREAD) * noise
        return mixed.astype("<f4", copy=False)

    _write(path, vectors, draw, dims)
    return Inputs(
        workload="kmeans",
        files={"vectors": path},
        params={"dims": dims, "clusters": clusters, "seed": seed, "iterations": _ITERATIONS},
        line_bytes=4 * dims,
    )


def _detection(folder: Path, size_bytes: int, seed: int) -> Inputs:
    path, truth = folder / "detection-images.bin", folder / "detection-faces.npz"
    write_boxes(truth, faces.write_images(path, size_bytes // faces.RECORD_BYTES, seed))
    return Inputs(
        workload="detection",
        files={"images": path},
        params={"record_bytes": faces.RECORD_BYTES},
        line_bytes=faces.RECORD_BYTES,
        truth=truth,
    )


def _sparse(folder: Path, size_bytes: int, seed: int) -> Inputs:
    rng = np.random.default_rng(seed)
    path = folder / "sparse-entries.bin"
    entries = size_bytes // sparse.ENTRY.itemsize
    rows = -(-entries // _ENTRIES_PER_ROW)

    def draw(places: range) -> NDArray[Any]:
        drawn = np.empty(len(places), sparse.ENTRY)
        drawn["row"] = np.arange(places.start, places.stop) // _ENTRIES_PER_ROW
        drawn["column"] = rng.integers(0, rows, len(places))
        drawn["value"] = rng.uniform(-1, 1, len(places))
        return drawn

    _write(path, entries, draw)
    return Inputs(
        workload="sparse",
        files={"entries": path},
        params={"rows": rows, "columns": rows, "seed": seed},
        line_bytes=sparse.ENTRY.itemsize,
    )


_Generator = Callable[[Path, int, int], Inputs]

# The bytes of one record, and what writes them.
_GENERATORS: Mapping[str, tuple[int, _Generator]] = {
    "detection": (faces.RECORD_BYTES, _detection),
    "kmeans": (4, _kmeans),
    "matmul": (16, _matmul),
    "occurrence": (8, _occurrence),
    "primes": (8, _primes),
    "sort": (sort.RECORD_BYTES, _sort),
    "sparse": (sparse.ENTRY.itemsize, _sparse),
}


def _write(
    path: Path, lines: int, draw: Callable[[range], NDArray[Any]], line_values: int = 1
) -> None:
    """Write lines of `line_values` values, drawn in pieces by `draw` for a range of lines."""
    step = max(1, _PIECE_VALUES // line_values)
    with path.open("wb") as file:
        for start in range(0, lines, step):
            file.write(draw(range(start, min(start + step, lines))).tobytes())
