"""Verification of a finished result: recomputed from the inputs, in plain NumPy, independently.

Needs memory for the inputs, and for primes a byte for every odd number up to the largest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.workloads import kmeans, sort, sparse
from headgate.workloads.detection import read_boxes
from headgate.workloads.generate import Inputs

_SAME_FACE = 0.5  # of two boxes' union that they share, at least
_IMAGES_PER_MISTAKE = 1_000
_MEANS_DIFFER = 1e-9  # of the data's largest number


def verify(inputs: Inputs, results: Sequence[Path]) -> str:
    """Return what is wrong with a workload's result files (in order), "" when they are correct.

    Tables and sorted records must be equal; a matrix product may differ from NumPy's by twice the
    bound on rounding of one sum of K products: 2 K eps |row of A| |column of B|; a sparse one
    likewise, row by row; means by 1e-9 of the largest number. Faces must be where they were put,
    boxes sharing at least half their union; a detector may be mistaken once in 1,000 images.
    """
    several, check = _CHECKS[inputs.workload]
    if not several and len(results) != 1:
        return f"one result is expected, here are {len(results)}"
    return check(inputs, results)


def _verify_counts(inputs: Inputs, results: Sequence[Path]) -> str:
    integers = np.fromfile(inputs.files["ints"], np.dtype("<i8"))
    if inputs.workload == "primes":
        integers = integers[_sieved(integers)]
    values, counts = np.unique(integers, return_counts=True)
    with np.load(results[0]) as saved:
        found = {name: saved[name] for name in ("values", "counts")}
    for name, right in (("values", values), ("counts", counts)):
        if found[name].shape != right.shape:
            return f"{found[name].size} {name}, {right.size} are right"
        if wrong := np.flatnonzero(found[name] != right).tolist():
            return (
                f"{len(wrong)} of {right.size} {name} are wrong: number {wrong[0]} is "
                f"{found[name][wrong[0]]}, {right[wrong[0]]} is right"
            )
    return ""


def _verify_product(inputs: Inputs, results: Sequence[Path]) -> str:
    rows, columns = inputs.params["rows"], inputs.params["columns"]
    left = np.fromfile(inputs.files["left"], "<f8").reshape(-1, rows).T
    right = np.fromfile(inputs.files["right"], "<f8").reshape(-1, columns)
    found = np.concatenate([np.load(path) for path in results])
    lengths = np.outer(np.linalg.norm(left, axis=1), np.linalg.norm(right, axis=0))
    bound = 2 * left.shape[1] * np.finfo(np.float64).eps * lengths
    return _far(found, left @ right, bound)


def _verify_sparse(inputs: Inputs, results: Sequence[Path]) -> str:
    entries = np.fromfile(inputs.files["entries"], sparse.ENTRY)
    terms = (
        entries["value"]
        * sparse.vector(inputs.params["seed"], inputs.params["columns"])[entries["column"]]
    )
    right, sizes, counts = (np.zeros(inputs.params["rows"]) for _ in range(3))
    for total, numbers in ((right, terms), (sizes, np.abs(terms)), (counts, 1)):
        np.add.at(total, entries["row"], numbers)
    bound = 2 * counts * np.finfo(np.float64).eps * sizes
    return _far(np.load(results[0]), right, bound)


def _verify_means(inputs: Inputs, results: Sequence[Path]) -> str:
    """Check against Lloyd's iterations over all vectors together."""
    dims, clusters, seed = (inputs.params[name] for name in ("dims", "clusters", "seed"))
    vectors = np.fromfile(inputs.files["vectors"], "<f4").reshape(-1, dims).astype(np.float64)
    means = kmeans.first_centroids(seed, clusters, dims)
    for _ in range(inputs.params["iterations"]):
        nearest = (np.square(means).sum(axis=1) - 2 * vectors @ means.T).argmin(axis=1)
        for cluster in np.unique(nearest):
            means[cluster] = vectors[nearest == cluster].mean(axis=0)
    bound = np.full_like(means, _MEANS_DIFFER * np.abs(vectors).max(initial=1))
    return _far(np.load(results[0]), means, bound)


def _far(found: NDArray[Any], right: NDArray[Any], bound: NDArray[Any]) -> str:
    """Return which elements differ by more than their bound; NaN does."""
    if found.shape != right.shape:
        return f"a result of shape {found.shape}, {right.shape} is right"
    error = np.abs(found - right)
    wrong = ~(error <= bound)
    if wrong.any():
        return f"{wrong.sum()} of {wrong.size} elements are wrong, by up to {np.max(error[wrong])}"
    return ""


def _verify_order(inputs: Inputs, results: Sequence[Path]) -> str:
    """Check against Python's sort, which is stable, by the keys as bytes."""
    data = inputs.files["records"].read_bytes()
    size = sort.RECORD_BYTES
    records = [data[start : start + size] for start in range(0, len(data), size)]
    records.sort(key=lambda record: record[: sort.KEY_CHARACTERS])
    right = b"".join(records)
    found = b"".join(path.read_bytes() for path in results)
    if len(found) != len(right):
        return f"{len(found)} bytes, {len(right)} are right"
    if found != right:
        same = np.frombuffer(found, np.uint8) == np.frombuffer(right, np.uint8)
        place = int(np.argmin(same)) // size
        return f"record {place} is not the one that belongs there"
    return ""


def _verify_faces(inputs: Inputs, results: Sequence[Path]) -> str:
    assert inputs.truth is not None
    found, right = read_boxes(results[0]), read_boxes(inputs.truth)
    if found.images != right.images:
        return f"{found.images} images, {right.images} are right"
    free: dict[int, list[list[int]]] = defaultdict(list)
    for box in found.boxes.tolist():
        free[box[0]].append(box)
    missed = 0
    for face in right.boxes.tolist():
        match = next((box for box in free[face[0]] if _same_face(box, face)), None)
        if match is None:
            missed += 1
        else:
            free[face[0]].remove(match)
    invented = sum(map(len, free.values()))
    if missed + invented > right.images // _IMAGES_PER_MISTAKE:
        return (
            f"{missed} of {len(right.boxes)} faces are missed, {invented} found where there are "
            f"none, in {right.images} images"
        )
    return ""


def _same_face(one: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether two boxes of one image mark the same face."""
    sides = [
        min(one[start] + one[size], other[start] + other[size]) - max(one[start], other[start])
        for start, size in ((1, 3), (2, 4))
    ]
    shared = max(sides[0], 0) * max(sides[1], 0)
    return shared >= _SAME_FACE * (one[3] * one[4] + other[3] * other[4] - shared)


def _sieved(integers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each integer is prime, by a sieve of Eratosthenes over the odd numbers."""
    largest = int(integers.max(initial=2))
    odd_is_prime = np.ones(largest // 2 + 1, np.bool_)  # index i represents 2 i + 1
    odd_is_prime[0] = False
    for factor in range(3, int(largest**0.5) + 2, 2):
        if odd_is_prime[factor // 2]:
            odd_is_prime[factor * factor // 2 :: factor] = False
    odd = (integers % 2 == 1) & (integers > 0)
    prime: NDArray[np.bool_] = integers == 2
    prime[odd] = odd_is_prime[integers[odd] // 2]
    return prime


# Whether the result may be several files, and what checks it.
_CHECKS: Mapping[str, tuple[bool, Callable[[Inputs, Sequence[Path]], str]]] = {
    "detection": (False, _verify_faces),
    "kmeans": (False, _verify_means),
    "matmul": (True, _verify_product),
    "occurrence": (False, _verify_counts),
    "primes": (False, _verify_counts),
    "sort": (True, _verify_order),
    "sparse": (False, _verify_sparse),
}
