"""The policies `gs`, `gsp` and `gsd`, with which the flow paper compares its own."""

from __future__ import annotations

from headgate.base.rng import Random
from headgate.planning.place.choose.setting import PlacingPolicy
from headgate.planning.place.cpu_tasks import place_cpu_tasks
from headgate.planning.shares.standing import Standing, standing_of
from headgate.policies.offers.candidates import FreeGpus
from headgate.policies.offers.delay import SkipCounters
from headgate.policies.offers.greedy_refusals import refusals
from headgate.policies.offers.greedy_round import GreedyRound
from headgate.policies.offers.preemption import victims
from headgate.protocol import NO_STEPS, Plan, Steps
from headgate.state import Scratch, Snapshot


class GreedySharing(PlacingPolicy):
    """The policy `gs`: flow paper, section 6.

    Free GPUs are offered one at a time to the job that holds fewest (ties: the earliest), to jobs
    below their share before all others; it takes its cheapest (task, GPU) by the time of reading.
    Ties: the first task, on the smallest GPU that fits, on the first node. No GPU that a waiting
    task fits stays idle, except where a queue is at its ceiling, and on nodes that are kept for the
    first multi-GPU unit in line; see `planning.place.line`.
    """

    name = "gs"

    def __init__(self, *, alpha1: float = 1.5, alpha2: float = 2.0) -> None:
        self._alpha1, self._alpha2 = alpha1, alpha2

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Allocate the free GPUs; O(GPUs placed x (jobs + nodes) + candidates of their jobs)."""
        del rng
        scratch = Scratch(snapshot)
        waiting_for_cpus = place_cpu_tasks(scratch, self.placer)
        standing = standing_of(snapshot)
        target = standing.fair_shares()
        free_gpus = FreeGpus(snapshot, standing, alpha1=self._alpha1, alpha2=self._alpha2)
        counters = self._skip_counters(snapshot, standing)
        greedy = GreedyRound(scratch, standing, target, free_gpus, counters, self.placer)
        no_room = greedy.run()
        return Plan(
            steps=scratch.steps() + self._preemptions(snapshot, greedy),
            node_memo=scratch.node_memos(),
            memo={**(counters.memo() if counters is not None else {}), **greedy.line.memo()},
            refusals=(
                *waiting_for_cpus,
                *no_room,
                *greedy.multi_gpu.refusals(greedy.line.why_row),
                *refusals(snapshot, greedy, counters),
            ),
        )

    def _skip_counters(self, snapshot: Snapshot, standing: Standing) -> SkipCounters | None:
        """Return the skip counters of delay scheduling, None if jobs do not decline GPUs."""
        del snapshot, standing
        return None

    def _preemptions(self, snapshot: Snapshot, greedy: GreedyRound) -> Steps:
        """Return the preemptions that follow the placements."""
        del snapshot, greedy
        return NO_STEPS


class GreedyPreemption(GreedySharing):
    """The policy `gsp`: `gs`, and preemption of runs of jobs far above their share.

    A run is preempted only for a task of a job below its share that can use the GPU; see
    `preemption`.
    """

    name = "gsp"

    def __init__(self, *, alpha1: float = 1.5, alpha2: float = 2.0, slack: float = 0.25) -> None:
        super().__init__(alpha1=alpha1, alpha2=alpha2)
        self._slack = slack

    def _preemptions(self, snapshot: Snapshot, greedy: GreedyRound) -> Steps:
        return victims(snapshot, greedy, self._slack)


class GreedyDelay(GreedySharing):
    """The policy `gsd`: `gs`, but a job below its share declines GPUs that are far from its data.

    Its skip counter starts at the number of GPUs that it lacks to its share and grows by one in
    each round in which it declines. Up to `threshold1` it takes only GPUs at their task's least
    cost, up to `threshold2` also at the second-best, then any. GPUs that it declines are offered to
    other jobs.

    No job waits without limit: a job declines only while every GPU that is best for one of its
    tasks is held, and the end of a run on it triggers another round; each one counts a skip.
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

    def _skip_counters(self, snapshot: Snapshot, standing: Standing) -> SkipCounters | None:
        return SkipCounters(
            snapshot, standing, threshold1=self._threshold1, threshold2=self._threshold2
        )
