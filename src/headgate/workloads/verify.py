"""Is a finished result right? Computed anew from the inputs, in plain NumPy, another way.

Needs memory for the inputs, and for primes a byte for every odd number up to the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.workloads.generate import Inputs


def verify(inputs: Inputs, results: Sequence[Path]) -> str:
    """Return what is wrong with a workload's result files (in order), or "" when they are right.

    Tables must be equal; a matrix product may differ from NumPy's by twice the bound on rounding
    of one sum of K products: 2 K eps |row of A| |column of B|.
    """
    if inputs.workload == "matmul":
        return _verify_product(inputs, results)
    if len(results) != 1:
        return f"one result is expected, here are {len(results)}"
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
    if found.shape != (rows, columns):
        return f"a product of shape {found.shape}, {(rows, columns)} is right"
    error = np.abs(found - left @ right)
    lengths = np.outer(np.linalg.norm(left, axis=1), np.linalg.norm(right, axis=0))
    wrong = ~(error <= 2 * left.shape[1] * np.finfo(np.float64).eps * lengths)  # also catches NaN
    if wrong.any():
        return f"{wrong.sum()} of {wrong.size} elements are wrong, by up to {np.max(error[wrong])}"
    return ""


def _sieved(integers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say of each integer whether it is prime, by a sieve of Eratosthenes over the odd numbers."""
    largest = int(integers.max(initial=2))
    odd_is_prime = np.ones(largest // 2 + 1, np.bool_)  # place i stands for 2 i + 1
    odd_is_prime[0] = False
    for factor in range(3, int(largest**0.5) + 2, 2):
        if odd_is_prime[factor // 2]:
            odd_is_prime[factor * factor // 2 :: factor] = False
    odd = (integers % 2 == 1) & (integers > 0)
    prime: NDArray[np.bool_] = integers == 2
    prime[odd] = odd_is_prime[integers[odd] // 2]
    return prime
