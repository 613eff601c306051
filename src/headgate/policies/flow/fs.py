"""Flow sharing: every job its fair share, every task as near to its data as all of them together
allow, in one min-cost flow per round; what runs is left alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headgate.planning.costs import DISTANCE, FLOW_PAPER
from headgate.planning.shares import entitle, fair_shares
from headgate.planning.standing import Standing
from headgate.policies.flow.rounds import FlowPolicy
from headgate.policies.flow.scene import Demand
from headgate.ports import Parameter, Policy, PolicyInfo

_DEFAULTS = {"alpha1": 3.0, "alpha2": 4.0}

PARAMETERS = (
    *(replace(parameter, default=_DEFAULTS[parameter.name]) for parameter in DISTANCE),
    Parameter(
        name="alpha3",
        default=1.1,
        unit="1",
        meaning="half the price of waiting, per second that the job's average task would spend "
        "reading across racks; small values hold tasks back until a nearer GPU is free",
        above=1.0,
    ),
)


class FlowSharing(FlowPolicy):
    """The policy `fs`: flow paper, sections 3 to 6, without preemption.

    Each round a job may win up to `a_j = clip(share - held, 0, waiting)` of the free GPUs, and more
    where GPUs would be left over; a job above its share wins nothing until then. Whether it takes
    them is a matter of price: a task waits when its cheapest way to run costs more than
    2 x alpha3 x (the time that the job's average waiting task needs to read across racks). So by
    default a task of more than 0.55 of the average waits rather than read across racks, and one of
    average size waits rather than read in its rack unless that is 1.4 times as fast. With `alpha1`
    and `alpha2` below `2 * alpha3` none of average size would ever wait by price. A job that holds
    nothing must place one task if any GPU that may be its own fits (`A_min = 1`), so price can hold
    back no job for ever.
    """

    name = "fs"
    may_wait = True

    def __init__(self, *, alpha1: float = 3.0, alpha2: float = 4.0, alpha3: float = 1.1) -> None:
        super().__init__(alpha1=alpha1, alpha2=alpha2, alpha3=alpha3)

    def demand(self, now: Standing) -> Demand:
        """Let each job place up to what it is entitled to; who holds nothing must place a task."""
        target = fair_shares(now.hierarchy, unfinished=now.unfinished, gpus=now.gpus)
        won = entitle(
            now.hierarchy,
            target=target,
            held=now.held,
            waiting=now.waiting,
            free=now.free.sum(axis=0),
        )
        return Demand(
            target=target,
            group=np.arange(len(now.jobs)),
            row=now.jobs,
            most=won.most,
            least=((now.held == 0) & (won.share > 0)).astype(np.int64),
        )


def _make(**parameters: float) -> Policy:
    return FlowSharing(**parameters)


INFO = PolicyInfo(
    name="fs",
    idea="fair shares, as near to the data as all tasks together allow; what runs is left alone",
    source=FLOW_PAPER,
    parameters=PARAMETERS,
    make=_make,
)
