"""Jobs for which runs were stopped: they come first for what these leave.

Otherwise the next round, which knows more GPUs as free, might give them to others: the run would
have been stopped, and the price paid, for a job that does not start.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.planning.shares.standing import Standing
from headgate.protocol import Memo, StopKind
from headgate.state import TaskState

STOPPED_FOR = "stopped_for"
"""Column of the memo by job: when runs were stopped for it, -1 once it has had its turn."""


def stopped_for_first(standing: Standing, order: Ints) -> Ints:
    """Return an order of jobs in which those for which runs were stopped come first."""
    first = _since(standing) >= 0
    if not first.any():
        return order
    return np.concatenate([order[first[order]], order[~first[order]]])


def nodes_freed(standing: Standing) -> Iterator[tuple[int, int]]:
    """Yield the job (index) and the node (row) of each run that was stopped for a job.

    Whose task waits since; O(stops) while there is such a job.
    """
    snapshot, since = standing.snapshot, _since(standing)
    winners = np.flatnonzero(since >= 0).tolist()
    if not winners:
        return
    index = {snapshot.job(int(standing.jobs[job])).id: job for job in winners}
    for task in sorted(snapshot.stops):
        stop, state = snapshot.stops[task][-1], snapshot.tasks.state[task]
        winner = index.get(stop.cause.job)
        if stop.cause.kind is not StopKind.PREEMPTED or winner is None:
            continue
        if state == TaskState.WAITING and stop.at >= since[winner]:
            yield winner, snapshot.tasks.node[task]


def stopped_for_memo(standing: Standing, gain: Bools) -> Memo:
    """Return the memo after a round in which runs are stopped for the jobs that `gain`, `[jobs]`.

    The turn of the others is over once all runs that are being stopped have ended. O(jobs), and
    O(tasks) while there are such jobs.
    """
    since = _since(standing)
    values = np.where(gain, standing.snapshot.now, since)
    had = (since >= 0) & ~gain
    if had.any() and not (standing.snapshot.tasks.state.array() == TaskState.STOPPING).any():
        values[had] = -1.0
    changed = np.flatnonzero(values != since)
    if not len(changed):
        return {}
    jobs = standing.jobs[changed].tolist()
    return {STOPPED_FOR: dict(zip(jobs, values[changed].tolist(), strict=True))}


def _since(standing: Standing) -> Floats:
    """Return since when runs are stopped for each job, -1 for none."""
    values = standing.snapshot.memo(STOPPED_FOR)[standing.jobs]
    return np.where(np.isnan(values), -1.0, values)
