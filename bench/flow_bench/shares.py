"""Max-min fair shares in whole GPUs, for a benchmark that recomputes them each round."""

from __future__ import annotations

import numpy as np

from headgate.base.arrays import Ints


def max_min(demand: Ints, gpus: int) -> Ints:
    """Return the max-min fair share of each job: its demand, or the common level (water-filling).

    The remainder below a whole level goes one by one to the first jobs that want more. O(n log n).
    """
    if int(demand.sum()) <= gpus:
        return demand.astype(np.int64)
    ascending = np.sort(demand)
    # With the k smallest demands met in full, the rest may have `level[k]` each.
    met = np.concatenate([[0], np.cumsum(ascending[:-1])])
    level = (gpus - met) // np.arange(len(demand), 0, -1)
    share: Ints = np.minimum(demand, level[np.argmax(ascending > level)])
    share = share.astype(np.int64)
    hungry = np.flatnonzero(demand > share)
    share[hungry[: gpus - int(share.sum())]] += 1
    return share
