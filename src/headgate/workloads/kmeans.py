"""k-means, Lloyd's iterations: vectors on the nodes, centroids that a parameter server keeps.

In each iteration `assign` is run for each shard, then `update` once over all its results. `assign`
reads a shard and, from the second iteration on, the centroids that the update before it wrote.

Shards are raw little-endian float32, vector by vector. Centroids are an `.npy` file, float64 of
shape (clusters, dims). A partial result is an `.npz` file with `sums` and `centroids` of that
shape and `counts`, int64, one per cluster. Distances and sums are worked out in float64, so that
neither the cutting into shards nor a GPU changes which centroid is nearest.

The parameters `dims` and `clusters` give the shape. Those of the first iteration start from
`first_centroids`, which needs the parameter `seed` and no look at the data: each task, whatever
shard it has, starts from the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.workloads.records import whole_number, whole_records, wrong
from headgate.workloads.task import TaskContext, array_module, from_numpy, to_numpy

Vectors = NDArray[np.float64]

_PIECE_VALUES = 1 << 22


def first_centroids(seed: int, clusters: int, dims: int) -> Vectors:
    """Return directions drawn at random, as unit vectors.

    All are of length 1, so the one nearest to a vector is the one with the most similar direction,
    at any scale: data around the origin are spread over all clusters.
    """
    rng = np.random.default_rng((seed, clusters, dims))
    drawn = rng.standard_normal((clusters, dims))
    unit: Vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return unit


def assign(task: TaskContext) -> None:
    """Add up, for each centroid, the vectors of the shard that are nearest to it."""
    centroids = _centroids(task)
    clusters, dims = centroids.shape
    module = array_module(task)
    centres = from_numpy(module, centroids)
    half_squares = (centres * centres).sum(1) / 2
    places = from_numpy(module, np.arange(clusters))
    sums, counts = np.zeros_like(centroids), np.zeros(clusters, np.int64)
    for piece in _pieces(task.shards[0], dims):
        vectors = from_numpy(module, piece)
        scores = half_squares - vectors @ centres.T  # half the squared distance, minus |vector|^2/2
        mine = scores.argmin(1)[:, None] == places[None, :]
        member = module.where(mine, module.ones_like(scores), module.zeros_like(scores))
        sums += to_numpy(member.T @ vectors)
        counts += to_numpy(mine.sum(0))
    with task.output.open("wb") as file:
        np.savez(file, sums=sums, counts=counts, centroids=centroids)
    print(f"{counts.sum()} vectors, nearest to {np.count_nonzero(counts)} of {clusters} centroids")


def update(task: TaskContext) -> None:
    """Write the means of the assigned vectors; a centroid without any is unchanged.

    SpecError for partial results that do not start from the same centroids.
    """
    with np.load(task.shards[0]) as first:
        centroids = first["centroids"]
    sums, counts = np.zeros_like(centroids), np.zeros(len(centroids), np.int64)
    for path in task.shards:
        with np.load(path) as partial:
            if not np.array_equal(partial["centroids"], centroids):
                raise wrong(str(path), "starts from other centroids than the first result")
            sums += partial["sums"]
            counts += partial["counts"]
    filled = counts > 0
    centroids[filled] = sums[filled] / counts[filled, None]
    with task.output.open("wb") as file:
        np.save(file, centroids)
    print(f"{counts.sum()} vectors, {np.count_nonzero(~filled)} centroids without any")


def _centroids(task: TaskContext) -> Vectors:
    shape = whole_number(task.params, "clusters"), whole_number(task.params, "dims")
    if len(task.shards) == 1:
        return first_centroids(whole_number(task.params, "seed", least=0), *shape)
    if len(task.shards) != 2:
        raise wrong("shards", f"vectors and centroids are needed, here are {len(task.shards)}")
    centroids: Any = np.load(task.shards[1])
    if centroids.shape != shape:
        raise wrong(str(task.shards[1]), f"centroids of shape {centroids.shape}, not {shape}")
    return np.asarray(centroids, np.float64)


def _pieces(path: Path, dims: int) -> Iterator[Vectors]:
    whole_records(path, 4 * dims, f"vectors of {dims} float32")
    count = max(1, _PIECE_VALUES // dims) * dims
    with path.open("rb") as file:
        while (piece := np.fromfile(file, "<f4", count)).size:
            yield piece.astype(np.float64).reshape(-1, dims)
