"""When a task would finish on each node: its cost under `least-cost`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.base.arrays import Bools, Floats, Ints


def wait_work_s(total: Ints, ahead: NDArray[np.float64]) -> Floats:
    """Return for how long the unfinished work of each node occupies all of it, in seconds.

    `ahead` is that work `[nodes, kinds]`, in amounts x seconds at a speed of 1; `total` the amounts
    of the nodes. The kind of which most is needed counts.
    """
    amounts = np.asarray(total, np.float64)
    seconds = np.divide(ahead, amounts, out=np.zeros(ahead.shape), where=amounts > 0)
    longest: Floats = seconds.max(axis=1, initial=0.0)
    return longest


def predicted_finish_s(
    *, work_s: float | Floats, waits_s: Floats, has_room: Bools, speed: Floats, read_s: Floats
) -> Floats:
    """Return when a task would finish on each node, in seconds from now.

    The work before it there (`wait_work_s`; none where it has room now) and its own, both divided
    by the node's speed, and the time to read its data.
    """
    finish_s: Floats = (np.where(has_room, 0.0, waits_s) + work_s) / speed + read_s
    return finish_s
