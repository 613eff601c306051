"""The cost of running a task on a node: the seconds of reading, as the flow paper prices them."""

from __future__ import annotations

import numpy as np

from headgate.model import Bandwidth
from headgate.planning.shares import Floats, Ints
from headgate.ports import Parameter

PRICE_LIMIT = 10**12
"""The largest price, in microseconds (11.6 days): sums stay exact with a million vertices."""

FLOW_PAPER = (
    "Tang, Zhu, Mao, Fu, Li: Algorithm of scheduling for data-intensive computing operations onto "
    "GPU cluster, Journal of Software 33(12), 2022"
)

DISTANCE = (
    Parameter(
        name="alpha1",
        default=1.5,
        unit="1",
        meaning="price of a second spent reading within the rack",
        above=1.0,
    ),
    Parameter(
        name="alpha2",
        default=2.0,
        unit="1",
        meaning="price of a second spent reading across racks",
        above=1.0,
    ),
)
"""The prices of distance; every policy that follows the flow paper has these parameters."""

SLACK = Parameter(
    name="slack",
    default=0.25,
    unit="1",
    meaning="how far above its share a job may be before its runs are preempted, as a part of "
    "the share; 0 for none",
    least=0.0,
)
"""The tolerance of preemption; every policy that preempts for fair shares has this parameter."""


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
