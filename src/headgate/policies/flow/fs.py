"""Flow sharing: fair shares with the least total reading time, by one min-cost flow per round;
without preemption."""

from __future__ import annotations

import numpy as np

from headgate.planning.shares.fair_shares import entitle
from headgate.planning.shares.standing import Standing
from headgate.policies.flow.eligible import Entitled
from headgate.policies.flow.policy import FlowPolicy


class FlowSharing(FlowPolicy):
    """The policy `fs`: flow paper, sections 3 to 6, without preemption.

    Each round a job may get up to `a_j = clip(share - held, 0, waiting)` of the free GPUs, and more
    if GPUs would be left over; a job above its share gets only those. Prices decide whether it uses
    them: a task waits when its cheapest option costs more than
    2 x alpha3 x (the time that the job's average waiting task needs to read across racks). So by
    default a task of more than 0.55 of the average waits rather than read across racks, and one of
    average size waits rather than read in its rack unless that is 1.4 times as fast. With `alpha1`
    and `alpha2` below `2 * alpha3` none of average size would ever wait by price. A job that holds
    no GPU must place one task if any GPU within its share fits (`A_min = 1`), so no job waits by
    price without limit.
    """

    name = "fs"
    may_wait = True

    def __init__(self, *, alpha1: float = 3.0, alpha2: float = 4.0, alpha3: float = 1.1) -> None:
        super().__init__(alpha1=alpha1, alpha2=alpha2, alpha3=alpha3)

    def entitle(self, standing: Standing) -> Entitled:
        """Return each job's entitlement; a job that holds no GPU must place a task."""
        target = standing.fair_shares()
        won = entitle(
            standing.hierarchy,
            target=target,
            held=standing.held,
            waiting=standing.waiting,
            free=standing.free.sum(axis=0),
            accepts=standing.accepts,
        )
        return Entitled(
            target=target,
            group=np.arange(len(standing.jobs)),
            row=standing.jobs,
            most=won.most,
            least=((standing.held == 0) & (won.share > 0)).astype(np.int64),
        )
