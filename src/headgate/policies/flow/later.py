"""GPUs that are held now: when each is expected to be free, and who waits for which of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.decision.costs import PRICE_LIMIT
from headgate.decision.shares import Floats
from headgate.decision.standing import Standing
from headgate.flow import Ints
from headgate.policies.flow.aggregated import Placed, nth_of_equals
from headgate.policies.flow.preemption import Runs, runs_now
from headgate.state import Snapshot, saved_s

RESTART_S = 1.0
"""What it costs to start a run again, besides its work: assumed."""

_PAUSE_S = 1.0  # nobody asks to be asked again sooner than this
_SOONEST_S = 0.001  # a GPU that is free now is nearer than any that is held


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
    wait_s = np.maximum(np.where(runs.stopping, 0.0, np.abs(takes_s - run_s)), _SOONEST_S)
    computed_s = snapshot.now - tasks.started_at.array()[runs.task] - read_s
    kept_s = saved_s(computed_s, tasks.checkpoint_s.array()[runs.task])
    return Later(runs=runs, wait_s=wait_s, lost_s=run_s - kept_s)


def none_later() -> Later:
    """Return no GPUs at all."""
    nothing, none = np.zeros(0, np.int64), np.zeros(0)
    runs = Runs(
        gpu=nothing, task=nothing, job=nothing, node=nothing, kind=nothing,
        stopping=np.zeros(0, bool), launched_at=none,
    )  # fmt: skip
    return Later(runs=runs, wait_s=none, lost_s=none)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waiting:
    """Tasks that wait for a GPU held now, those first whose turn comes first."""

    task: Ints  # indices into `Standing.task`
    job: Ints  # indices into `Standing.jobs`
    run: Ints  # index into `Later`
    price: Ints  # of the wait and of reading there, microseconds

    def price_by_job(self, jobs: int) -> Ints:
        """Return what waiting costs each job's task that waits least."""
        price = np.full(jobs, PRICE_LIMIT)
        np.minimum.at(price, self.job, self.price)
        return price


def waiting_for(now: Standing, later: Later, left: Placed) -> Waiting:
    """Let tasks, in their turn, wait for the GPUs of the nodes they were sent to, soonest first.

    No more are `left` of those sent to a node than GPUs of the class are held there.
    """
    kinds = now.free.shape[1]
    cell, sought = later.runs.node * kinds + later.runs.kind, left.node * kinds + left.kind
    soonest = np.lexsort((later.wait_s, cell))
    run = soonest[np.searchsorted(cell[soonest], sought) + nth_of_equals(sought)]
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

    task: tuple[int, ...]  # rows
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
    cut, next_s = [], math.inf
    if not (spare > 0).any():
        return Cuts(task=(), paid=np.zeros(len(owed)), next_s=next_s)
    free_s = _soonest_last(later, now.free.shape[1])
    for i in np.flatnonzero(nth_of_equals(waiting.job) < short[waiting.job]).tolist():
        job, run = int(waiting.job[i]), int(waiting.run[i])
        # Some have been taken by those before, perhaps all that are large enough but its own.
        fitting = [each for each in free_s[int(now.task_class[waiting.task[i]]) :] if each]
        soonest = min(fitting, key=lambda each: each[-1], default=[float(later.wait_s[run])])
        loser, price_s, gained_s = int(runs.job[run]), later.lost_s[run] + RESTART_S, soonest.pop()
        if runs.stopping[run] or loser < 0 or spare[loser] <= 0:
            continue
        turn = (claims.left_s[job] - max(0.0, owed[job] - price_s)) / share[job]
        if turn >= (claims.left_s[loser] - owed[loser]) / share[loser]:
            continue  # it would take its GPU back
        if price_s < min(gained_s, owed[job]):
            spare[loser] -= 1
            owed[job] -= price_s
            cut.append(int(runs.task[run]))
            continue
        # From now on the price grows by a second each second, and what is gained shrinks.
        grows = short[job] - owed[job] / memory_s - 1
        soon_s = max(0.0, price_s - owed[job]) / grows if grows > 0 else math.inf
        if price_s + soon_s < gained_s - soon_s:
            next_s = min(next_s, soon_s)
    return Cuts(task=tuple(cut), paid=claims.owed - owed, next_s=next_s)


def _soonest_last(later: Later, kinds: int) -> list[list[float]]:
    """Return when GPUs of each class come free by themselves."""
    return [np.sort(later.wait_s[later.runs.kind == k])[::-1].tolist() for k in range(kinds)]


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
