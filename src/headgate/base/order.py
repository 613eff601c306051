"""Stable sorting of numbers (radix sort), and the minimum of each group of integers."""

import numpy as np
from numpy.typing import NDArray

from headgate.base._native import in_order, least_of_each, nth_of_equals

__all__ = ["floats_in_order", "in_order", "least_of_each", "nth_of_equals", "ranks"]


def floats_in_order(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the indices of numbers, none of them NaN, in ascending order; equal ones ascend."""
    bits = (values + 0.0).view(np.int64)  # 0.0 for -0.0, which equals it
    return in_order(np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits))


def ranks(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the position of each index in an order of all indices: its inverse."""
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank
