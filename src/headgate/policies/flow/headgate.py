"""The default policy: each task to the GPU where it would be done reading first, free now or soon,
jobs in the order in which fair sharing would finish them."""

from __future__ import annotations

import numpy as np

from headgate.planning.census import Bools
from headgate.planning.costs import FLOW_PAPER
from headgate.planning.debts import debts_gpu_s, updated_debts
from headgate.planning.shares import Floats, Ints, fair_shares
from headgate.planning.standing import Standing
from headgate.policies.flow.eligible import Entitled, Round
from headgate.policies.flow.policy import FlowPolicy
from headgate.policies.flow.preempt_by_price import Claims, worth_preempting
from headgate.policies.flow.readback import Choice
from headgate.policies.flow.solve import Placed
from headgate.policies.flow.turns import in_turn, next_round_at, waiting_for
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
        meaning="how far above its share a job may be before its runs are preempted, as a part of "
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
    compute as long as others of their runtime class; one that is overdue, as long again as it is
    overdue, so no task waits for a run for ever.

    **Who first.** Of the tasks sent to a node, those of the job go first that fair sharing would
    finish first: by (GPU seconds to go - GPU seconds missed) / share. Missed are those that a job
    has had less than its share while it had use for them; they fade with `memory_s`. Before all
    others go jobs that have been short of their share for about 0.7 x `memory_s`.

    **Preemption.** A job below its share preempts a run of a job above `1 + slack` of its own when
    that is worth its price, the work that is lost: when waiting for GPUs that come free by
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

    def entitle(self, now: Standing) -> Entitled:
        """Give out the next slots of all GPUs by fair shares.

        Where a queue's ceiling may bind, what its jobs hold counts: they get no more slots than it
        leaves, since the next slots of GPUs that others hold now are of no use to them.
        """
        target = fair_shares(now.hierarchy, unfinished=now.unfinished, gpus=now.gpus)
        bound = (now.ceiling < now.gpus.sum())[now.queue]
        most = now.hierarchy.allocate_by_class(
            held=np.where(bound, now.held, 0), tasks=now.waiting, gpus=now.gpus
        )
        return Entitled(
            target=target, group=np.arange(len(now.jobs)), row=now.jobs, most=most, least=most
        )

    def choose(self, round_: Round, placed: Placed, wait_price: Ints) -> Choice:
        """Start tasks in the order of their jobs, and preempt runs where that is worth its price.

        What waiting costs follows from the GPUs that tasks wait for, not from `wait_price`.
        """
        del wait_price
        now, ahead, target = round_.now, round_.in_flight, round_.entitled.target
        assert ahead is not None
        owed = debts_gpu_s(now, memory_s=self._memory_s)
        order = _order(now, target, ahead.left_s, owed, self._memory_s)
        starts, left = in_turn(now, placed, np.argsort(order))
        won = np.bincount(now.task_job[starts.task], minlength=len(now.jobs))
        held = now.held + won
        waiting = waiting_for(now, ahead, left)
        claims = Claims(target=target, held=held, left_s=ahead.left_s, owed=owed)
        preempted = worth_preempting(
            now, ahead, waiting, claims, slack=self._slack, memory_s=self._memory_s
        )
        useful = np.minimum(target, held + now.waiting.sum(axis=1) - won)
        free = now.free.sum(axis=0) - np.bincount(starts.memory_class, minlength=now.free.shape[1])
        return Choice(
            starts=starts,
            wait_price=waiting.price_by_job(len(now.jobs)),
            stops=preempted.stops,
            memo=updated_debts(now, owed, preempted.paid, useful - held),
            again_at=next_round_at(now, ahead, waiting, free, held < target, preempted.next_s),
        )


def _order(now: Standing, target: Ints, left_s: Floats, owed: Floats, memory_s: float) -> Ints:
    """Return the jobs in the order in which fair sharing would finish them; overlooked ones first.

    By (GPU seconds to go - GPU seconds missed) / share.
    """
    first = _overlooked(now, target, owed, memory_s)
    return np.lexsort(((left_s - owed) / np.maximum(target, 1), ~first))


def _overlooked(now: Standing, target: Ints, owed: Floats, memory_s: float) -> Bools:
    """Return which jobs have been short for long, `[jobs]`.

    They are owed half of the most that a job which misses so many GPUs is ever owed: as after 0.7 x
    `memory_s`. Later their debts would hardly grow, and no longer move them forward.
    """
    missing = np.minimum(target - now.held, now.waiting.sum(axis=1))
    first: Bools = (missing > 0) & (2 * owed > missing * memory_s)
    return first


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
