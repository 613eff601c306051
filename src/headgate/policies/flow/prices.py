"""What a flow policy's costs follow from: reading, by distance, and waiting; whole microseconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.flow import Ints
from headgate.model import Bandwidth
from headgate.planning.costs import PRICE_LIMIT, prices_per_byte
from headgate.planning.shares import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The coefficients of a policy; without `alpha3`, no wait has a price.

    Unless tasks `may_wait`, all tasks are placed that a group is entitled to, as far as GPUs go.
    """

    alpha1: float
    alpha2: float
    alpha3: float | None
    may_wait: bool

    def per_byte(self, bandwidth: Bandwidth) -> Floats:
        """Return microseconds per byte read, by `Locality`."""
        return prices_per_byte(bandwidth, alpha1=self.alpha1, alpha2=self.alpha2)


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
