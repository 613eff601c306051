"""Flow without fairness: as many tasks as fit, as near to their data as possible, of any job."""

from __future__ import annotations

import numpy as np

from headgate.base.arrays import Ints
from headgate.planning.shares.queue_tree import NO_CEILING
from headgate.planning.shares.standing import Standing
from headgate.policies.flow.eligible import Entitled
from headgate.policies.flow.policy import FlowPolicy


class UnfairFlow(FlowPolicy):
    """The policy `fsu`: flow paper, section 6.

    Most tasks, then least cost, over all waiting tasks of all jobs. Only the `max_gpus` of queues
    limit them. No task waits for locality, so there is no `alpha3`.
    """

    name = "fsu"

    def __init__(self, *, alpha1: float = 1.5, alpha2: float = 2.0) -> None:
        super().__init__(alpha1=alpha1, alpha2=alpha2)

    def unit_order(self, standing: Standing) -> tuple[Ints, None]:
        """Return the jobs in order of arrival, without limits."""
        return np.arange(len(standing.jobs)), None

    def entitle(self, standing: Standing) -> Entitled:
        """Entitle the jobs of a queue together to all waiting tasks, up to the queue's ceiling.

        Those of each user, where users have ceilings.
        """
        queues, waiting = len(standing.tree.most), standing.waiting.sum(axis=1)
        gpus = standing.free.sum() if standing.hierarchy.has_idle else waiting.sum()
        within = standing.hierarchy.allocate(held=standing.held, room=waiting, gpus=int(gpus))
        most = np.bincount(standing.queue, within, minlength=queues).astype(np.int64)
        no_share = np.full(len(standing.jobs), NO_CEILING)
        return Entitled(
            target=no_share, group=standing.queue, row=standing.rows.ids(), most=most, least=most
        )
