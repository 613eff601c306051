"""What moving data and waiting cost, in whole microseconds (flow paper, section 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.flow import Ints
from headgate.model import Bandwidth

Floats = NDArray[np.float64]

PRICE_LIMIT = 10**12
"""No price is above this, 11.6 days: it keeps sums exact in networks of a million vertices."""


def prices_per_byte(bandwidth: Bandwidth, *, alpha1: float, alpha2: float) -> Floats:
    """Return microseconds per byte read by `Locality`, growing (never falling) with distance.

    The paper has 1/D, alpha1/Br and alpha2/Bs. Where a measured disk is slower than the network,
    these would fall with distance and make reading one's own disk a loss; here a farther reader
    never pays less than a nearer one, since it waits for the same disk.
    """
    seconds = np.array([
        1 / bandwidth.disk_bytes_per_s,
        alpha1 / bandwidth.rack_bytes_per_s,
        alpha2 / bandwidth.cluster_bytes_per_s,
    ])  # fmt: skip
    return np.maximum.accumulate(seconds) * 1e6


def shard_prices(size_bytes: Ints, per_byte: Floats) -> Ints:
    """Return the price of each shard at each locality, `[shards, 3]`, rounded once per shard."""
    exact = np.outer(size_bytes, per_byte)
    prices: Ints = np.rint(np.minimum(exact, PRICE_LIMIT)).astype(np.int64)
    return prices


def wait_prices(read_bytes: Floats, bandwidth: Bandwidth, *, alpha3: float, least: int) -> Ints:
    """Return what one waiting task of each job costs on each of the two arcs it takes to wait.

    `read_bytes` is the mean over the job's waiting tasks; their time is that of reading across
    racks, or from disk where that is slower still: a wait must not be cheaper than any way to run.
    No price is below `least`, so that a task without data is placed rather than left waiting.
    """
    bytes_per_s = min(
        bandwidth.disk_bytes_per_s, bandwidth.rack_bytes_per_s, bandwidth.cluster_bytes_per_s
    )
    exact = alpha3 * read_bytes / bytes_per_s * 1e6
    prices: Ints = np.rint(np.clip(exact, least, PRICE_LIMIT)).astype(np.int64)
    return prices
