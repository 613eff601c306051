"""The policies `gs`, `gsp` and `gsd`: offers to one job at a time, as the flow paper's rivals."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.base.errors import Problem
from headgate.base.rng import Random
from headgate.model import Job
from headgate.planning.costs import DISTANCE, FLOW_PAPER
from headgate.planning.cpu_tasks import place_cpu_tasks
from headgate.planning.shares import fair_shares
from headgate.planning.standing import Standing, standing, unsupported_feature
from headgate.policies.greedy.bids import Market
from headgate.policies.greedy.deal import Deal
from headgate.policies.greedy.patience import Patience
from headgate.policies.greedy.preemption import victims
from headgate.policies.greedy.refusals import refusals, strangers
from headgate.ports import Parameter, Policy, PolicyInfo
from headgate.protocol import NO_STEPS, Plan, Reason, Steps
from headgate.protocol.reasons import PolicyRefuses
from headgate.state import Scratch, Snapshot


class GreedySharing:
    """The policy `gs`: flow paper, section 6.

    Free GPUs are offered one at a time to the job that uses fewest (ties: who came first), to jobs
    below their share before all others; it takes its cheapest (task, GPU) by the time of reading.
    Equally cheap ones: the first task, on the smallest GPU that fits, on the first node. No GPU
    idles that a waiting task fits, unless a queue's ceiling is in the way.
    """

    name = "gs"

    def __init__(self, *, alpha1: float = 1.5, alpha2: float = 2.0) -> None:
        self._alpha1, self._alpha2 = alpha1, alpha2

    def refuses(self, job: Job) -> Reason | None:
        """Refuse gangs and tasks of several GPUs: GPUs are dealt singly."""
        what = unsupported_feature(job)
        return None if what is None else PolicyRefuses(policy=self.name, what=what)

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Deal out the free GPUs; O(GPUs dealt x (jobs + nodes) + bids of jobs offered any)."""
        del rng
        scratch = Scratch(snapshot)
        waiting_for_cpus = place_cpu_tasks(scratch)
        now = standing(snapshot)
        target = fair_shares(now.hierarchy, unfinished=now.unfinished, gpus=now.gpus)
        market = Market(snapshot, now, alpha1=self._alpha1, alpha2=self._alpha2)
        patience = self._patience(snapshot, now)
        deal = Deal(scratch, now, target, market, patience)
        deal.run()
        return Plan(
            steps=scratch.steps() + self._stops(snapshot, deal),
            memo=patience.memo() if patience is not None else {},
            refusals=(
                *waiting_for_cpus,
                *deal.short,
                *strangers(self.name, snapshot, now),
                *refusals(snapshot, deal, patience),
            ),
        )

    def _patience(self, snapshot: Snapshot, now: Standing) -> Patience | None:
        """Return how long jobs wait for a nearer GPU, None for not at all."""
        del snapshot, now
        return None

    def _stops(self, snapshot: Snapshot, deal: Deal) -> Steps:
        """Return the runs to be cut short."""
        del snapshot, deal
        return NO_STEPS


class GreedyPreemption(GreedySharing):
    """The policy `gsp`: `gs`, and runs of jobs far above their share are cut short for others.

    Only while a job below its share has a task that could use the GPU; see `preemption`.
    """

    name = "gsp"

    def __init__(self, *, alpha1: float = 1.5, alpha2: float = 2.0, slack: float = 0.25) -> None:
        super().__init__(alpha1=alpha1, alpha2=alpha2)
        self._slack = slack

    def _stops(self, snapshot: Snapshot, deal: Deal) -> Steps:
        return victims(snapshot, deal, self._slack)


class GreedyDelay(GreedySharing):
    """The policy `gsd`: `gs`, but a job below its share declines GPUs that are far from its data.

    Its skip counter starts at the GPUs that it misses to its share and grows by one with each round
    in which it declines. Up to `threshold1` it takes only GPUs at their task's least cost, up to
    `threshold2` at the second-best too, then any. What it declines is offered to others.

    Nobody waits for ever: a job declines only while every GPU that is best for one of its tasks is
    held, and the end of that run makes another round; each counts one skip.
    """

    name = "gsd"

    def __init__(
        self,
        *,
        alpha1: float = 1.5,
        alpha2: float = 2.0,
        threshold1: float = 5.0,
        threshold2: float = 10.0,
    ) -> None:
        super().__init__(alpha1=alpha1, alpha2=alpha2)
        self._threshold1, self._threshold2 = threshold1, threshold2

    def _patience(self, snapshot: Snapshot, now: Standing) -> Patience | None:
        return Patience(snapshot, now, threshold1=self._threshold1, threshold2=self._threshold2)


def _thresholds_in_order(values: Mapping[str, float]) -> list[Problem]:
    low, high = values["threshold1"], values["threshold2"]
    if low < high:
        return []
    text = f"threshold1 ({low:g}) is not below threshold2 ({high:g})"
    hint = "second-best places are accepted before any place is"
    return [Problem(path="policy.threshold1", problem=text, hint=hint)]


def _make_sharing(**parameters: float) -> Policy:
    return GreedySharing(**parameters)


def _make_preemption(**parameters: float) -> Policy:
    return GreedyPreemption(**parameters)


def _make_delay(**parameters: float) -> Policy:
    return GreedyDelay(**parameters)


GS = PolicyInfo(
    name="gs",
    idea="each free GPU to the job that uses fewest, for its cheapest task",
    source=FLOW_PAPER,
    parameters=DISTANCE,
    make=_make_sharing,
)

GSP = PolicyInfo(
    name="gsp",
    idea="gs, and runs of jobs far above their share are cut short for jobs below theirs",
    source=FLOW_PAPER,
    parameters=(
        *DISTANCE,
        Parameter(
            name="slack",
            default=0.25,
            unit="1",
            meaning="how far above its share, as a part of it, a job may be before it is cut back",
            least=0.0,
        ),
    ),
    make=_make_preemption,
)

GSD = PolicyInfo(
    name="gsd",
    idea="gs, but a job below its share waits some rounds for GPUs nearer to its data",
    source=FLOW_PAPER,
    parameters=(
        *DISTANCE,
        Parameter(
            name="threshold1",
            default=5.0,
            unit="skips",
            meaning="skip counter beyond which a job accepts the second-best cost",
            least=0.0,
        ),
        Parameter(
            name="threshold2",
            default=10.0,
            unit="skips",
            meaning="skip counter beyond which a job accepts any GPU",
            least=0.0,
        ),
    ),
    make=_make_delay,
    check=_thresholds_in_order,
)
