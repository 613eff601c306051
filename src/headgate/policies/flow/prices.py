"""Prices of a flow policy: of reading, by distance, and of waiting; in whole microseconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.model import Bandwidth
from headgate.planning.units.costs import PRICE_LIMIT, prices_per_byte


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The coefficients of a policy; without `alpha3`, waiting has no price.

    Unless tasks `may_wait`, a group places all tasks of its entitlement that GPUs fit.
    """

    alpha1: float
    alpha2: float
    alpha3: float | None
    may_wait: bool

    def per_byte(self, bandwidth: Bandwidth) -> Floats:
        """Return microseconds per byte read, by `Locality`, `[3]`."""
        return prices_per_byte(bandwidth, alpha1=self.alpha1, alpha2=self.alpha2)


def wait_prices(read_bytes: Floats, bandwidth: Bandwidth, *, alpha3: float, least: int) -> Ints:
    """Return the price of waiting of each job, once for each of the two arcs of a waiting task.

    `read_bytes` is the mean over the job's waiting tasks, read across racks, or from disk if that
    is slower: waiting must not be cheaper than every option. No price is below `least`, so that a
    task without data is placed rather than left waiting.
    """
    bytes_per_s = min(
        bandwidth.disk_bytes_per_s, bandwidth.rack_bytes_per_s, bandwidth.cluster_bytes_per_s
    )
    exact = alpha3 * read_bytes / bytes_per_s * 1e6
    prices: Ints = np.rint(np.clip(exact, least, PRICE_LIMIT)).astype(np.int64)
    return prices
