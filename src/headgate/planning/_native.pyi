"""The compiled part of decisions; its sources are in `native/`."""

import numpy as np
from numpy.typing import NDArray

from headgate.base.arrays import Bools, Floats, Ints

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]

class MaxMin:
    """Weighted max-min fair allocation of GPUs to jobs: see `headgate.planning.shares`."""

    def __init__(
        self,
        queue: Ints,
        user: Ints,
        priority: Ints,
        *,
        parent: Ints,
        weight: Floats,
        guaranteed: Ints,
        most: Ints,
        idle: Ints,
    ) -> None:
        """Sort jobs, given in order of arrival; `queue` are rows of the columns of a `QueueTree`.

        O((jobs + queues) x log). Raises ValueError if lengths do not match, as all methods do, and
        if the queues are no tree or one has both jobs and children.
        """

    def allocate(self, held: Ints, room: Ints, gpus: int) -> Ints:
        """Return how many of `gpus` equal GPUs each job gets beyond `held`, up to `room`.

        O(jobs x log(GPUs held)) for each level of queues.
        """

    def allocate_by_type(
        self, held: Ints, tasks: Ints, gpus: Ints, won: Ints, most: Ints, accepts: Bools
    ) -> Ints:
        """Return how many GPUs of several kinds each job gets, `[jobs]`, `won` among them.

        `tasks`, `[jobs, types]`, are those to serve, `gpus`, `[kinds]`, those to allocate, `most`,
        `[jobs]`, as many as a job may get; `accepts`, `[types, kinds]`, is which GPUs a task may
        get. O(`allocate`) if all tasks fit all GPUs, else O(types x log(GPUs)) times that.
        """

    def usable(self, held: Ints, room: Ints) -> int:
        """Return how many equal GPUs `allocate` would use if there were enough, idle ones too.

        O(jobs + queues).
        """

class WidthPlan:
    """Widths over time of elastic jobs with deadlines: see `headgate.planning.deadlines`."""

    def __init__(self, *, gpus: int, slot_s: float) -> None:
        """Plan on so many GPUs, in slots of `slot_s` seconds, 0 for none.

        Raises ValueError for what does not match, as all methods do.
        """

    def add_curve(self, width: Ints, rate: Floats) -> int:
        """Return the number of one more curve; its widths ascend. O(1)."""

    def begin(
        self, now_s: float, curve: Ints, left: Floats, deadline_s: Floats, before: Ints
    ) -> None:
        """Name the jobs of the next plan, numbered from 0; `before` are their last numbers or -1.

        O(jobs).
        """

    def fill(self, order: Ints, widest: bool = False) -> int:
        """Give each job in order its minimum share, the others none; return how many are late.

        If `widest`, each gets the widest width that is free at any time from now on.

        O(jobs x steps x levels); steps are the times at which the number of free GPUs changes.
        """

    def resume(self, order: Ints) -> int:
        """Give each job what the last plan had for it from now on; return how many are late.

        Those for which that is not enough get their minimum share of the rest.
        """

    def mark(self) -> None:
        """Note the current plan."""

    def undo(self) -> None:
        """Return to the plan that was noted."""

    def add(self, job: int, late: bool) -> bool:
        """Give one more job its minimum share of what is free, if in time or it may be late.

        Returns whether it got one.
        """

    def spread(self, order: Ints, by: int) -> Ints:
        """Give what is free now, one level at a time, to these jobs, the first of equal ones first.

        `by` is 0 for the most GPU time added, 1 for the most saved later, each per GPU. Gains are
        computed again when a job's turn comes; the result is the jobs by their last gains.
        O((jobs + levels given) x steps x levels), mostly.
        """

    def widths(self) -> Ints:
        """Return the width of each job now."""

    def ends(self) -> list[float]:
        """Return when each job ends, rounded up to a slot, 0 without a share."""

    def finishes(self) -> list[float]:
        """Return when the work of each job is done, 0 without a share."""

    def promises(self) -> list[float]:
        """Return when the work of each job would be done with its minimum share, 0 without one."""

    def next_change(self) -> float:
        """Return when a width changes next, infinite if none does before its job ends."""

def recount(
    row: Ints,
    state: Bytes,
    before: Bytes,
    gpus_milli: Ints,
    multi_gpu: Bools,
    types: Ints,
    job: Int32s,
    *,
    flags: Bytes,
    index: Ints,
    table: Ints,
) -> tuple[Ints, Ints, Ints, Ints]:
    """Update a table of task counts in place, for tasks that changed from `before` to `state`.

    Of each task: its row, ascending, the thousandths of GPUs that it needs, whether it is wide, its
    type (`GpuKinds`), and the row of its job. `flags`, by state, are 1 for unfinished plus 2 for
    waiting; `index`, by job, is its row in the table, negative if it is not in flight. Returns the
    fields of a `WaitingChange`. Raises ValueError if arrays do not match or an index is out of
    range. O(tasks).
    """

def recount_idle(
    key: Ints,
    count: Ints,
    row: Ints,
    state: Bytes,
    gpus_milli: Ints,
    job: Int32s,
    runtime_class: Int32s,
    progress_s: Floats,
    *,
    was_fresh: Bools,
    idle: Bools,
    classes: int,
) -> tuple[Ints, Ints, Ints]:
    """Return the keys, ascending, and thousandths of GPUs of `IdleTasks`, and the rows in `begun`.

    `key` is that of a job and a runtime class, `job x classes + runtime class`. Of each changed
    task: its row, state, thousandths of GPUs needed, job, runtime class, and seconds of work in its
    checkpoint; `was_fresh` if it was idle without one; `idle`, by state, whether that is idle.
    Raises ValueError if arrays do not match or an index is out of range. O(tasks + keys x log).
    """
