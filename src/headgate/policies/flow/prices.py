"""What waiting costs, in whole microseconds; what moving data costs is in `planning.costs`."""

from __future__ import annotations

import numpy as np

from headgate.flow import Ints
from headgate.model import Bandwidth
from headgate.planning.costs import PRICE_LIMIT
from headgate.planning.shares import Floats


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
