"""The compiled part of decisions; its sources are in `native/`."""

import numpy as np
from numpy.typing import NDArray

from headgate.planning.shares import Floats, Ints

Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]

class Deal:
    """The deal that `headgate.planning.shares` tells of, to jobs in order of arrival."""

    def __init__(
        self, queue: Ints, user: Ints, priority: Ints, weight: Floats, max_gpus: Ints
    ) -> None:
        """Sort jobs; `queue` is a row of `weight` and `max_gpus`. O(jobs x log).

        Raises ValueError where lengths or rows do not match, as all methods do.
        """

    def alike(self, held: Ints, room: Ints, gpus: int) -> Ints:
        """Return how many of `gpus` alike each job wins, on top of what it holds, up to `room`.

        O(jobs x log(GPUs held)).
        """

    def by_class(self, held: Ints, tasks: Ints, gpus: Ints, won: Ints) -> Ints:
        """Return how many GPUs of several classes each job wins, `won` among them.

        `tasks`, `[jobs, classes]`, are those to serve, `gpus`, `[classes]`, those to deal. O(a deal
        of GPUs alike) where all tasks fit all GPUs, else O(classes x log(GPUs)) times that.
        """

def recount(
    row: Ints,
    state: Bytes,
    then: Bytes,
    gpus: Int32s,
    memory_bytes: Ints,
    job: Int32s,
    *,
    meaning: Bytes,
    class_bytes: Ints,
    at: Ints,
    table: Ints,
) -> tuple[Ints, Ints, Ints, Ints]:
    """Count tasks that moved from `then` to `state` in the table of a `Census`, in place.

    Of each task its row, ascending, the GPUs that it needs, the memory on each, and the row of its
    job. `meaning`, by state, is 1 for unfinished, and 2 besides for waiting; `at` is the row in the
    table of each job, negative where that is not in flight. Returns what a `Waits` tells.
    Raises ValueError where arrays do not match or name what is not there. O(tasks x log(classes)).
    """

def recount_idle(
    key: Ints,
    count: Ints,
    row: Ints,
    state: Bytes,
    gpus: Int32s,
    job: Int32s,
    kind: Int32s,
    progress_s: Floats,
    *,
    was_fresh: Bools,
    idle: Bools,
    kinds: int,
) -> tuple[Ints, Ints, Ints]:
    """Return the keys, ascending, and counts of a `Backlog`, and rows of tasks with work saved.

    `key` is that of a job and a kind, `job x kinds + kind`. Of each task its row, state, the GPUs
    that it needs, its job, its kind, and what it has saved; whether it was idle with nothing saved;
    and by state, whether that is idle. Raises ValueError. O(tasks + keys x log).
    """
