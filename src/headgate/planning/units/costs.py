"""The cost of running a task on a node: the seconds of reading, as the flow paper prices them."""

from __future__ import annotations

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.model import Bandwidth

PRICE_LIMIT = 10**12
"""The largest price, in microseconds (11.6 days): sums stay exact with a million vertices."""


def prices_per_byte(bandwidth: Bandwidth, *, alpha1: float, alpha2: float) -> Floats:
    """Return microseconds per byte read, by `Locality`, `[3]`, not decreasing with distance.

    Flow paper, section 3: 1/D, alpha1/Br and alpha2/Bs; but where a measured disk is slower than
    the network, a farther reader pays no less than a nearer one, since it waits for the same disk.
    """
    seconds = np.array([
        1 / bandwidth.disk_bytes_per_s,
        alpha1 / bandwidth.rack_bytes_per_s,
        alpha2 / bandwidth.cluster_bytes_per_s,
    ])  # fmt: skip
    return np.maximum.accumulate(seconds) * 1e6


def shard_prices(size_bytes: Ints, per_byte: Floats) -> Ints:
    """Return the price of each shard at each locality, `[shards, 3]`, in whole microseconds."""
    exact = np.outer(size_bytes, per_byte)
    prices: Ints = np.rint(np.minimum(exact, PRICE_LIMIT)).astype(np.int64)
    return prices
