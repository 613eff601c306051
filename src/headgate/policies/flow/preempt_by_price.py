"""Preemption by price (`headgate`): which runs are stopped, where that is worth the work lost."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headgate.base.order import nth_of_equals
from headgate.flow import Ints
from headgate.planning.shares import Floats
from headgate.planning.standing import Standing
from headgate.policies.flow.in_flight import InFlight
from headgate.policies.flow.turns import Waiting
from headgate.protocol import NO_STEPS, Group, Steps, Stop
from headgate.protocol.reasons import PreemptedFor

RESTART_S = 1.0
"""What it costs to start a run again, besides its work: assumed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Claims:
    """What each job may claim, once what is free has been given out."""

    target: Ints  # GPUs
    held: Ints
    left_s: Floats  # GPU seconds that it will still take
    owed: Floats  # GPU seconds

    @property
    def share(self) -> Ints:
        """The GPUs that a job's time is divided by."""
        return np.maximum(self.target, 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Preemptions:
    """Runs that are preempted, and the jobs that pay for it."""

    stops: Steps  # each for the job that gets its GPU
    paid: Floats  # by each job, GPU seconds
    next_s: float  # until more may be worth their price, debts growing as they do now


def worth_preempting(
    now: Standing,
    ahead: InFlight,
    waiting: Waiting,
    claims: Claims,
    *,
    slack: float,
    memory_s: float,
) -> Preemptions:
    """Return which runs are preempted for tasks that wait for their GPUs.

    For the n-th GPU that jobs are short of, a run is preempted if the n-th GPU to come free by
    itself is further away than the price, and if the job that waits is owed that price (`owed`,
    GPU seconds), which it then pays. The price is the work that is lost, reading included, and
    `RESTART_S`. The run's job holds more than `1 + slack` of its target, and keeps its target and
    one run; and its turn is after the other's, though that one has paid. So no more work is ever
    lost than jobs have missed, and nothing goes back and forth.
    """
    runs, target, share = ahead.runs, claims.target, claims.share
    short, owed = target - claims.held, claims.owed.copy()
    stops = np.bincount(runs.job[runs.stopping & (runs.job >= 0)], minlength=len(target))
    keeps = now.held - stops
    spare = np.where(keeps > (1 + slack) * target, np.minimum(keeps - target, keeps - 1), 0)
    nothing = Preemptions(stops=NO_STEPS, paid=np.zeros(len(owed)), next_s=math.inf)
    if not (spare > 0).any():
        return nothing
    # Conditions only get harder as runs are preempted: what fails them now, fails them later.
    sought = np.flatnonzero(nth_of_equals(waiting.job) < short[waiting.job])
    job, run = waiting.job[sought], waiting.run[sought]
    loser, price_s = runs.job[run], ahead.lost_s(now.snapshot, run) + RESTART_S
    worse = (claims.left_s - owed) / share
    turn = (claims.left_s[job] - np.maximum(0.0, owed[job] - price_s)) / share[job]
    may = ~runs.stopping[run] & (loser >= 0) & (spare[loser] > 0) & (turn < worse[loser])
    if not may.any():
        return nothing
    gained = _gained_s(now, ahead, waiting, sought)
    preempted, next_s = [], math.inf
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
            preempted.append(Group((Stop(int(runs.task[run[i]])),), reason))
            continue
        # From now on the price grows by a second each second, and what is gained shrinks.
        grows = short[winner] - owed[winner] / memory_s - 1
        soon_s = max(0.0, price - owed[winner]) / grows if grows > 0 else math.inf
        if price + soon_s < soonest - soon_s:
            next_s = min(next_s, soon_s)
    return Preemptions(stops=Steps.of(preempted), paid=claims.owed - owed, next_s=next_s)


def _gained_s(now: Standing, ahead: InFlight, waiting: Waiting, sought: Ints) -> Floats:
    """Return after how long each task that seeks a GPU would get one that comes free by itself.

    Each takes the soonest that is left and fits; its own, where there is none.
    """
    own_s, classes = ahead.wait_s[waiting.run[sought]], now.free.shape[1]
    if classes == 1:
        gained, many = own_s, min(len(sought), len(ahead.wait_s))
        gained[:many] = np.sort(np.partition(ahead.wait_s, many - 1)[:many])
        return gained
    # When GPUs of each class come free by themselves, the soonest last.
    of_class = [ahead.wait_s[ahead.runs.memory_class == k] for k in range(classes)]
    free_s = [np.sort(wait_s)[::-1].tolist() for wait_s in of_class]
    gained = np.empty(len(sought))
    for n, i in enumerate(sought.tolist()):
        # Some have been taken by those before, perhaps all that are large enough but its own.
        fitting = [each for each in free_s[int(now.task_class[waiting.task[i]]) :] if each]
        own = [float(own_s[n])]
        gained[n] = min(fitting, key=lambda each: each[-1], default=own).pop()
    return gained
