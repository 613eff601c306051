"""GPUs that are held now: when each is expected to be free, and who waits for which of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.decision.costs import PRICE_LIMIT
from headgate.decision.shares import Floats
from headgate.decision.standing import Standing
from headgate.flow import Ints
from headgate.policies.flow.aggregated import Placed
from headgate.policies.flow.preemption import Runs, runs_now
from headgate.state import Snapshot, saved_s

RESTART_S = 1.0
"""What it costs to start a run again, besides its work: assumed."""

_PAUSE_S = 1.0  # nobody asks to be asked again sooner than this
_NO_RUN = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Later:
    """GPUs that are held, one value per GPU."""

    runs: Runs
    wait_s: Floats  # until the run is expected to end
    lost_s: Floats  # if it ended now: reading, and work since the last checkpoint

    @property
    def price(self) -> Ints:
        """The wait in whole microseconds."""
        exact = np.minimum(self.wait_s * 1e6, PRICE_LIMIT)
        return np.rint(exact).astype(np.int64)


def later_gpus(snapshot: Snapshot, now: Standing) -> Later:
    """Return the GPUs that are held; `View.expected_end` tells when one is expected to be free.

    A run of a kind of which none has ended yet is expected to compute as long as it reads. What
    a checkpoint holds already is not computed again.
    """
    runs = runs_now(snapshot, now)
    tasks = snapshot.tasks
    read_s = tasks.read_s.array()[runs.task]
    compute_s = snapshot.kinds.compute_s.array()[tasks.kind.array()[runs.task]]
    progress_s = tasks.progress_s.array()[runs.task]
    left_s = np.where(np.isnan(compute_s), read_s, np.maximum(compute_s - progress_s, 0.0))
    takes_s = read_s + left_s
    run_s = snapshot.now - runs.launched_at
    wait_s = np.where(runs.stopping, 0.0, np.abs(takes_s - run_s))
    computed_s = snapshot.now - tasks.started_at.array()[runs.task] - read_s
    kept_s = saved_s(computed_s, tasks.checkpoint_s.array()[runs.task])
    return Later(runs=runs, wait_s=wait_s, lost_s=run_s - kept_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waiting:
    """Tasks that wait for a GPU held now, those first whose turn comes first."""

    task: Ints  # indices into `Standing.task`
    job: Ints  # indices into `Standing.jobs`
    run: Ints  # index into `Later`, or -1 where a queue's ceiling leaves no GPU to wait for
    price: Ints  # of the wait and of reading there, microseconds

    def price_by_job(self, jobs: int) -> Ints:
        """Return what waiting costs each job's task that waits least."""
        price = np.full(jobs, PRICE_LIMIT)
        np.minimum.at(price, self.job, self.price)
        return price


def waiting_for(now: Standing, later: Later, left: Placed) -> Waiting:
    """Let tasks, in their turn, wait for the GPUs of the nodes they were sent to, soonest first."""
    kinds = now.free.shape[1]
    cell = later.runs.node * kinds + later.runs.kind
    soonest = np.lexsort((later.wait_s, cell))
    sought = left.node * kinds + left.kind
    by_cell = np.argsort(sought, kind="stable")
    nth = np.empty_like(by_cell)
    nth[by_cell] = np.arange(len(by_cell)) - np.searchsorted(sought[by_cell], sought[by_cell])
    place = np.searchsorted(cell[soonest], sought) + nth
    there = place < np.searchsorted(cell[soonest], sought, side="right")
    run = np.full(len(sought), _NO_RUN)
    run[there] = soonest[place[there]]
    wait = (
        np.where(there, later.price[run], PRICE_LIMIT)
        if len(cell)
        else np.full(len(run), PRICE_LIMIT)
    )
    return Waiting(
        task=left.task,
        job=now.task_job[left.task],
        run=run,
        price=np.minimum(left.price + wait, PRICE_LIMIT),
    )


def worth_cutting(
    now: Standing,
    later: Later,
    waiting: Waiting,
    *,
    target: Ints,
    held: Ints,
    slack: float,
    owed: Floats,
) -> tuple[tuple[int, ...], Floats]:
    """Return the tasks whose runs are cut short for those that wait for their GPUs, and who pays.

    For the n-th GPU that jobs are short of, a run is cut if the n-th GPU to come free by itself is
    further away than the price of cutting, and if the job that waits is owed that price (`owed`,
    GPU seconds), which it then pays. The price is the work that is lost, reading included, and
    `RESTART_S`. The run's job holds more than `1 + slack` of its target, and keeps its target and
    one run. So no more work is ever lost than jobs have missed, and nothing goes back and forth.
    """
    runs = later.runs
    short = target - held
    stops = np.bincount(runs.job[runs.stopping & (runs.job >= 0)], minlength=len(held))
    keeps = now.held - stops
    spare = np.where(keeps > (1 + slack) * target, np.minimum(keeps - target, keeps - 1), 0)
    soonest = [np.sort(later.wait_s[runs.kind >= kind]) for kind in range(now.free.shape[1])]
    paid, missing = np.zeros(len(held)), 0
    cut: list[int] = []
    for task, job, run in zip(
        *(c.tolist() for c in (waiting.task, waiting.job, waiting.run)), strict=True
    ):
        if run == _NO_RUN or short[job] <= 0:
            continue
        short[job] -= 1
        loser, price_s = int(runs.job[run]), later.lost_s[run] + RESTART_S
        gained_s = soonest[int(now.task_class[task])][missing]
        missing += 1
        if (
            not runs.stopping[run]
            and loser != _NO_RUN
            and spare[loser] > 0
            and price_s < min(gained_s, owed[job] - paid[job])
        ):
            spare[loser] -= 1
            paid[job] += price_s
            cut.append(int(runs.task[run]))
    return tuple(cut), paid


def ask_again_at(
    snapshot: Snapshot,
    now: Standing,
    later: Later,
    waiting: Waiting,
    free: Ints,
    held: Ints,
    target: Ints,
) -> float | None:
    """Return when to look again, though nothing may happen until then, or None.

    When the first GPU is expected to be free that a task waits for which might run now elsewhere
    (`free`, by class), or whose job is below its share.
    """
    room = now.ceiling - np.bincount(now.queue, held, len(now.ceiling)).astype(np.int64)
    fitting = np.append(np.cumsum(free[::-1])[::-1], 0)
    might = (fitting[now.task_class[waiting.task]] > 0) | (held < target)[waiting.job]
    might &= (waiting.run != _NO_RUN) & (room[now.queue[waiting.job]] > 0)
    if not might.any():
        return None
    return snapshot.now + max(_PAUSE_S, float(later.wait_s[waiting.run[might]].min()))
