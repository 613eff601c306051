"""GPUs that are held now: when each is expected to be free, and who waits for which of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.base.order import in_order, least_of_each, nth_of_equals
from headgate.flow import Ints
from headgate.planning.census import index_of
from headgate.planning.costs import PRICE_LIMIT
from headgate.planning.debts import remaining_gpu_s
from headgate.planning.shares import Floats
from headgate.planning.standing import Standing
from headgate.planning.work import Backlog, Holders
from headgate.policies.flow.aggregated import Placed
from headgate.policies.flow.preemption import Runs
from headgate.protocol import NO_STEPS, Group, Steps, Stop
from headgate.protocol.reasons import PreemptedFor
from headgate.state import Snapshot, saved_s

RESTART_S = 1.0
"""What it costs to start a run again, besides its work: assumed."""

_PAUSE_S = 1.0  # nobody asks to be asked again sooner than this
_SOONEST_S = 0.001  # a GPU that is free now is nearer than any that is held


class Work:
    """The work in flight, followed from round to round by who keeps it."""

    def __init__(self, now: Standing) -> None:
        """Begin with what a snapshot says."""
        self.holders, self.backlog = Holders(now.snapshot), Backlog(now.snapshot)

    def follow(self, now: Standing) -> None:
        """Say what the snapshot of a standing says."""
        self.holders.follow(now)
        self.backlog.follow(now)

    def left_s(self, now: Standing) -> Floats:
        """Return the GPU seconds that each job will still take."""
        return remaining_gpu_s(now, self.holders, self.backlog)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Later:
    """GPUs that are held, one value per GPU."""

    work: Work
    runs: Runs
    wait_s: Floats  # until the run is expected to end
    price: Ints  # the wait in whole microseconds

    def lost_s(self, snapshot: Snapshot, some: Ints) -> Floats:
        """Return what is lost if some runs end now: reading, and work since the last checkpoint."""
        task, tasks = self.runs.task[some], snapshot.tasks
        computed_s = snapshot.now - tasks.started_at.take(task) - tasks.read_s.take(task)
        kept_s = saved_s(computed_s, tasks.checkpoint_s.take(task))
        lost_s: Floats = snapshot.now - self.runs.launched_at[some] - kept_s
        return lost_s


def later_gpus(now: Standing, work: Work) -> Later:
    """Return the GPUs that are held; `View.expected_end` tells when one is expected to be free.

    A run of a kind of which none has ended yet is expected to compute as long as it reads. What
    a checkpoint holds already is not computed again.
    """
    snapshot, held = now.snapshot, work.holders
    gpu = np.flatnonzero(held.task >= 0)
    read_s, launched_at, stopping = held.read_s[gpu], held.launched_at[gpu], held.stopping[gpu]
    compute_s = snapshot.kinds.compute_s.array()[held.kind[gpu]]
    left_s = np.maximum(compute_s - held.progress_s[gpu], 0.0)
    takes_s = read_s + np.where(np.isnan(compute_s), read_s, left_s)
    run_s = snapshot.now - launched_at
    wait_s = np.maximum(np.where(stopping, 0.0, np.abs(takes_s - run_s)), _SOONEST_S)
    runs = Runs(
        gpu=gpu,
        task=held.task[gpu],
        job=index_of(now.jobs, len(snapshot.jobs.state))[held.job[gpu]],
        node=snapshot.gpus.node.array()[gpu].astype(np.int64),
        kind=now.hardware.kind[gpu],
        stopping=stopping,
        launched_at=launched_at,
    )
    return Later(
        work=work,
        runs=runs,
        wait_s=wait_s,
        price=np.rint(np.minimum(wait_s * 1e6, PRICE_LIMIT)).astype(np.int64),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waiting:
    """Tasks that wait for a GPU held now, those first whose turn comes first."""

    task: Ints  # indices into `Standing.task`
    job: Ints  # indices into `Standing.jobs`
    run: Ints  # index into `Later`
    price: Ints  # of the wait and of reading there, microseconds

    def price_by_job(self, jobs: int) -> Ints:
        """Return what waiting costs each job's task that waits least."""
        return least_of_each(self.job, self.price, jobs, PRICE_LIMIT)


def waiting_for(now: Standing, later: Later, left: Placed) -> Waiting:
    """Let tasks, in their turn, wait for the GPUs of the nodes they were sent to, soonest first.

    No more are `left` of those sent to a node than GPUs of the class are held there.
    """
    kinds = now.free.shape[1]
    cell, sought = later.runs.node * kinds + later.runs.kind, left.node * kinds + left.kind
    soonest = in_order(later.price)
    soonest = soonest[in_order(cell[soonest])]
    held = np.bincount(cell, minlength=now.free.size)
    first = np.cumsum(held) - held
    run = soonest[first[sought] + nth_of_equals(sought)]
    return Waiting(
        task=left.task,
        job=now.task_job[left.task],
        run=run,
        price=np.minimum(left.price + later.price[run], PRICE_LIMIT),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Claims:
    """What each job may claim, once what is free has been given out."""

    target: Ints  # GPUs
    held: Ints
    left_s: Floats  # GPU seconds that it will still take
    owed: Floats  # GPU seconds

    @property
    def share(self) -> Ints:
        """By which a job's time is told."""
        return np.maximum(self.target, 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cuts:
    """Runs that are cut short, and who pays for it."""

    stops: Steps  # each for the job that is to have its GPU
    paid: Floats  # by each job, GPU seconds
    next_s: float  # until more may be worth their price, debts growing as they do now


def worth_cutting(
    now: Standing,
    later: Later,
    waiting: Waiting,
    claims: Claims,
    *,
    slack: float,
    memory_s: float,
) -> Cuts:
    """Return whose runs are cut short for those that wait for their GPUs.

    For the n-th GPU that jobs are short of, a run is cut if the n-th GPU to come free by itself is
    further away than the price of cutting, and if the job that waits is owed that price (`owed`,
    GPU seconds), which it then pays. The price is the work that is lost, reading included, and
    `RESTART_S`. The run's job holds more than `1 + slack` of its target, and keeps its target and
    one run; and its turn is after the other's, though that one has paid. So no more work is ever
    lost than jobs have missed, and nothing goes back and forth.
    """
    runs, target, share = later.runs, claims.target, claims.share
    short, owed = target - claims.held, claims.owed.copy()
    stops = np.bincount(runs.job[runs.stopping & (runs.job >= 0)], minlength=len(target))
    keeps = now.held - stops
    spare = np.where(keeps > (1 + slack) * target, np.minimum(keeps - target, keeps - 1), 0)
    nobody = Cuts(stops=NO_STEPS, paid=np.zeros(len(owed)), next_s=math.inf)
    if not (spare > 0).any():
        return nobody
    # Nothing gets easier as runs are cut: who could have none cut now, first of all, has none.
    sought = np.flatnonzero(nth_of_equals(waiting.job) < short[waiting.job])
    job, run = waiting.job[sought], waiting.run[sought]
    loser, price_s = runs.job[run], later.lost_s(now.snapshot, run) + RESTART_S
    worse = (claims.left_s - owed) / share
    turn = (claims.left_s[job] - np.maximum(0.0, owed[job] - price_s)) / share[job]
    may = ~runs.stopping[run] & (loser >= 0) & (spare[loser] > 0) & (turn < worse[loser])
    if not may.any():
        return nobody
    gained = _gained_s(now, later, waiting, sought)
    cut, next_s = [], math.inf
    for i in np.flatnonzero(may).tolist():
        winner, from_job, price, soonest = int(job[i]), int(loser[i]), price_s[i], gained[i]
        if spare[from_job] <= 0:
            continue
        its_turn = (claims.left_s[winner] - max(0.0, owed[winner] - price)) / share[winner]
        if its_turn >= worse[from_job]:
            continue  # it would take its GPU back
        if price < min(soonest, owed[winner]):
            spare[from_job] -= 1
            owed[winner] -= price
            reason = PreemptedFor(job=now.snapshot.job(int(now.jobs[winner])).id)
            cut.append(Group((Stop(int(runs.task[run[i]])),), reason))
            continue
        # From now on the price grows by a second each second, and what is gained shrinks.
        grows = short[winner] - owed[winner] / memory_s - 1
        soon_s = max(0.0, price - owed[winner]) / grows if grows > 0 else math.inf
        if price + soon_s < soonest - soon_s:
            next_s = min(next_s, soon_s)
    return Cuts(stops=Steps.of(cut), paid=claims.owed - owed, next_s=next_s)


def _gained_s(now: Standing, later: Later, waiting: Waiting, sought: Ints) -> Floats:
    """Return after how long each of those that seek a GPU would get one that comes free by itself.

    Each takes the soonest that is left and fits; its own, where there is none.
    """
    own_s, kinds = later.wait_s[waiting.run[sought]], now.free.shape[1]
    if kinds == 1:
        gained, many = own_s, min(len(sought), len(later.wait_s))
        gained[:many] = np.sort(np.partition(later.wait_s, many - 1)[:many])
        return gained
    # When GPUs of each class come free by themselves, the soonest last.
    free_s = [np.sort(later.wait_s[later.runs.kind == k])[::-1].tolist() for k in range(kinds)]
    gained = np.empty(len(sought))
    for n, i in enumerate(sought.tolist()):
        # Some have been taken by those before, perhaps all that are large enough but its own.
        fitting = [each for each in free_s[int(now.task_class[waiting.task[i]]) :] if each]
        own = [float(own_s[n])]
        gained[n] = min(fitting, key=lambda each: each[-1], default=own).pop()
    return gained


def ask_again_at(
    snapshot: Snapshot,
    now: Standing,
    later: Later,
    waiting: Waiting,
    free: Ints,
    short: NDArray[np.bool_],
    next_s: float,
) -> float | None:
    """Return when to look again, though nothing may happen until then, or None.

    When the first GPU is expected to be free that a task waits for which might run now elsewhere
    (`free`, by class), or whose job is below its share (`short`), or after `next_s`.
    """
    fitting = np.append(np.cumsum(free[::-1])[::-1], 0)
    might = (fitting[now.task_class[waiting.task]] > 0) | short[waiting.job]
    soon_s = float(later.wait_s[waiting.run[might]].min(initial=next_s))
    return None if math.isinf(soon_s) else snapshot.now + max(_PAUSE_S, soon_s)
