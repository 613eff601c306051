"""The default policy: each task to the GPU where it would be done reading first, free now or soon,
jobs in the order in which fair sharing would finish them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.base.order import in_order, nth_of_equals
from headgate.planning.costs import FLOW_PAPER
from headgate.planning.debts import changed_debts, missed_gpu_s
from headgate.planning.shares import Floats, Ints, fair_shares
from headgate.planning.standing import Standing
from headgate.policies.flow.aggregated import Placed, Round
from headgate.policies.flow.later import (
    Claims,
    Later,
    Work,
    ask_again_at,
    later_gpus,
    waiting_for,
    worth_cutting,
)
from headgate.policies.flow.rounds import Choice, FlowPolicy
from headgate.policies.flow.scene import Demand, Scene
from headgate.ports import Parameter, Policy, PolicyInfo

PARAMETERS = (
    Parameter(
        name="memory_s",
        default=600.0,
        unit="s",
        meaning="how long a job is owed the GPU seconds that it missed: a debt fades to 37 % in "
        "this time",
        above=0.0,
    ),
    Parameter(
        name="slack",
        default=0.25,
        unit="1",
        meaning="how far above its share a job may be before its runs are cut short, as a part of "
        "the share; 0 for none",
        least=0.0,
    ),
)


class TimelyFlow(FlowPolicy):
    """The policy `headgate`.

    **Where.** Every GPU that is up has one next slot: now, or when its run is expected to end. One
    min-cost flow gives these slots to as many tasks of each job as its fair share of all GPUs is;
    a task costs, in seconds, the wait for its slot plus the time to read its shards there. A task
    whose slot is not free yet waits: so a task waits exactly when waiting is cheaper than moving
    its data. Runs are expected to read as long as was expected when they were launched and to
    compute as long as others of their kind; one that is overdue, as long again as it is overdue,
    so nobody waits for a run for ever.

    **Who first.** Of the tasks sent to a node, those of the job go first that fair sharing would
    finish first: by (GPU seconds to go - GPU seconds missed) / share. Missed are those that a job
    has had less than its share while it had use for them; they fade with `memory_s`. Before all
    others go jobs that have been short of their share for about 0.7 x `memory_s`.

    **Whom for.** A job below its share has a run cut short of a job above `1 + slack` of its own
    when that is worth its price, the work that is lost: when waiting for GPUs that come free by
    themselves would take longer, and when the job has missed as many GPU seconds. It pays with
    these, so no more work is ever lost than jobs have missed; and its turn still comes first then.

    Deviates from the flow paper, which solves for the free GPUs of one instant. The order of jobs
    is that of Friedman and Henderson, Fairness and efficiency in web server protocols, SIGMETRICS
    2003 (Fair Sojourn Protocol): none ends later than under fair sharing if times are known.
    """

    name = "headgate"
    plans_ahead = True

    def __init__(self, *, memory_s: float = 600.0, slack: float = 0.25) -> None:
        super().__init__(alpha1=1.0, alpha2=1.0, alpha3=None)
        self._memory_s, self._slack = memory_s, slack

    def demand(self, now: Standing) -> Demand:
        """Deal everybody's next slots out by fair shares of all GPUs.

        Where a queue's ceiling may bind, what its jobs hold counts: they get no more slots than it
        leaves, since the next slots of GPUs that others hold now are of no use to them.
        """
        target = fair_shares(now.hierarchy, unfinished=now.unfinished, gpus=now.gpus)
        bound = (now.ceiling < now.gpus.sum())[now.queue]
        most = now.hierarchy.deal_classes(
            held=np.where(bound, now.held, 0), tasks=now.waiting, gpus=now.gpus
        )
        return Demand(
            target=target, group=np.arange(len(now.jobs)), row=now.jobs, most=most, least=most
        )

    def later(self, now: Standing, before: Later | None) -> Later:
        """Return the GPUs that are held, each to be had at the wait until it is free."""
        if before is None:
            return later_gpus(now, Work(now))
        before.work.follow(now)
        return later_gpus(now, before.work)

    def choose(self, scene: Scene, round_: Round, routed: Placed) -> Choice:
        """Place what is due now, in turn, and cut runs short where that is worth its price."""
        del round_
        snapshot, now, later, demand = scene.snapshot, scene.now, scene.later, scene.demand
        assert later is not None
        owed = missed_gpu_s(snapshot, now, memory_s=self._memory_s)
        left_s = later.work.left_s(now)
        first = _overlooked(now, demand.target, owed, self._memory_s)
        turn = np.lexsort(((left_s - owed) / np.maximum(demand.target, 1), ~first))
        placed, left = in_turn(now, routed, np.argsort(turn))
        won = np.bincount(now.task_job[placed.task], minlength=len(now.jobs))
        held = now.held + won
        useful = np.minimum(demand.target, held + now.waiting.sum(axis=1) - won)
        waiting = waiting_for(now, later, left)
        claims = Claims(target=demand.target, held=held, left_s=left_s, owed=owed)
        cuts = worth_cutting(
            now, later, waiting, claims, slack=self._slack, memory_s=self._memory_s
        )
        free = now.free.sum(axis=0) - np.bincount(placed.kind, minlength=now.free.shape[1])
        short = held < demand.target
        return Choice(
            placed=placed,
            wait_price=waiting.price_by_job(len(now.jobs)),
            stops=cuts.stops,
            memo=changed_debts(snapshot, now, owed, cuts.paid, useful - held),
            again_at=ask_again_at(snapshot, now, later, waiting, free, short, cuts.next_s),
        )


def _overlooked(now: Standing, target: Ints, owed: Floats, memory_s: float) -> NDArray[np.bool_]:
    """Return which jobs have been short for long, `[jobs]`.

    They are owed half of the most that those who miss so many GPUs are ever owed: as after 0.7 x
    `memory_s`. Then debts are about to be forgotten, and would no longer tell whose turn it is.
    """
    missing = np.minimum(target - now.held, now.waiting.sum(axis=1))
    first: NDArray[np.bool_] = (missing > 0) & (2 * owed > missing * memory_s)
    return first


def in_turn(now: Standing, routed: Placed, turn: Ints) -> tuple[Placed, Placed]:
    """Return who of those sent to a node gets one of its free GPUs, and, in turn, who does not.

    `turn` is each job's place in the order of jobs.
    """
    order = in_order(turn[now.task_job[routed.task]])
    cell = (routed.node * now.free.shape[1] + routed.kind)[order]
    free = now.free.ravel()[cell]
    some = np.flatnonzero(free)
    first = np.zeros(len(order), bool)
    first[some] = nth_of_equals(cell[some]) < free[some]
    return routed.only(np.sort(order[first])), routed.only(order[~first])


def _make(**parameters: float) -> Policy:
    return TimelyFlow(**parameters)


INFO = PolicyInfo(
    name="headgate",
    idea="each task where it would be done reading first, on a GPU free now or soon; jobs in the "
    "order in which fair sharing would finish them",
    source="Headgate; built on " + FLOW_PAPER,
    parameters=PARAMETERS,
    make=_make,
)
