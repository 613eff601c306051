"""Flow sharing, preemptive: every job its fair share immediately, by preempting runs of others."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from headgate.base.arrays import Ints
from headgate.planning.place.limits import preempted_for
from headgate.planning.shares.standing import Standing
from headgate.policies.flow.eligible import Entitled, Round
from headgate.policies.flow.placed import Placed
from headgate.policies.flow.policy import FlowPolicy
from headgate.policies.flow.preempt_by_share import victims
from headgate.policies.flow.readback import Choice
from headgate.protocol import Group, Steps, Stop


class PreemptiveFlowSharing(FlowPolicy):
    """The policy `fsp`: flow paper, sections 3 to 6.

    Each round allocates the free GPUs by shares and places exactly that number of tasks of each job
    (`A_min = A_max = a_j`): no task waits for locality, so there is no `alpha3`; the flow decides
    which tasks run, and where. A single job gets the same under an `fs` whose prices let no task
    wait.

    When a job is still below its share, runs of jobs above `1 + slack` of theirs are preempted, the
    latest started first, down to the share and never the last one. The next round allocates the
    freed GPUs. Other runs are not moved.
    """

    name = "fsp"
    fills_gpus = False

    def __init__(self, *, alpha1: float = 1.5, alpha2: float = 2.0, slack: float = 0.25) -> None:
        super().__init__(alpha1=alpha1, alpha2=alpha2)
        self._slack = slack

    def entitle(self, standing: Standing) -> Entitled:
        """Allocate the free GPUs up to the shares, then those left over beyond them."""
        target = standing.fair_shares()
        allocate = partial(
            standing.hierarchy.allocate_by_type,
            held=standing.held,
            tasks=standing.waiting,
            gpus=standing.free.sum(axis=0),
            accepts=standing.accepts,
        )
        share = allocate(most=np.maximum(target - standing.held, 0))
        most = allocate(won=share)
        return Entitled(
            target=target,
            group=np.arange(len(standing.jobs)),
            row=standing.jobs,
            most=most,
            least=most,
        )

    def choose(self, round_: Round, placed: Placed, wait_price: Ints) -> Choice:
        """Preempt runs of jobs far above their share whose GPUs jobs below theirs can use."""
        preempted = victims(
            round_.standing, target=round_.entitled.target, slack=self._slack, starts=placed
        )
        # Not for a single job: the number of tasks served decides.
        reason = preempted_for(round_.standing.snapshot, None)
        stops = Steps.of(Group((Stop(task),), reason) for task in preempted)
        return replace(super().choose(round_, placed, wait_price), stops=stops)
