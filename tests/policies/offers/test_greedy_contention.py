"""Greedy policies under contention: every job ends, despite preemptions and declined GPUs.

A policy with endless rounds, or a job that declines although no round follows, fails here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from tests.cases import cases
from tests.sim.weather import world_of

from headgate.base.rng import stream
from headgate.engine import Engine, drive
from headgate.model import Bandwidth, Demand, Gpu, Job, Node, Shard, Task
from headgate.policies.offers.greedy import GreedyDelay, GreedyPreemption, GreedySharing
from headgate.ports import Policy
from headgate.protocol import (
    BandwidthMeasured,
    Command,
    Event,
    JobSubmitted,
    LaunchTask,
    NodeJoined,
    PlanAdmitted,
    QueueChanged,
    ReplicaAdded,
    StopTask,
)
from headgate.protocol.reasons import PolicyBroke
from headgate.state import JobState, check
from headgate.testing.random_queues import random_queues
from headgate.testing.storms import Storm

MOST_BATCHES = 5000
MAKERS: dict[str, Callable[[], Policy]] = {
    "gs": GreedySharing,
    "gsp": GreedyPreemption,
    "gsp, no slack": lambda: GreedyPreemption(slack=0.0),
    "gsd": GreedyDelay,
    "gsd, thresholds never reached": lambda: GreedyDelay(threshold1=1e6, threshold2=1e9),
}
EACH = pytest.mark.parametrize("make", MAKERS.values(), ids=list(MAKERS))


@dataclass
class Watch:
    """Counts batches, launches, stops and skips, and checks the state after every batch."""

    engine: Engine = field(default_factory=Engine)
    batches: int = 0
    launches: int = 0
    stops: int = 0
    skips: int = 0

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        check(self.engine.state)
        reasons = [refusal.reason for refusal in self.engine.state.refusals]
        assert not [r for r in reasons if isinstance(r, PolicyBroke)]
        self.batches += 1
        assert self.batches < MOST_BATCHES, "it does not end"
        self.launches += sum(isinstance(c, LaunchTask) for c in commands)
        self.stops += sum(isinstance(c, StopTask) for c in commands)
        admitted = [e for e in batch if isinstance(e, PlanAdmitted)]
        self.skips += sum(len(e.memo.get("skips", {})) for e in admitted)


def run_storm(faults: Storm, policy: Policy) -> Watch:
    watch = Watch()
    world = world_of(faults, policy)
    drive(watch.engine, world, observe=(watch,))
    assert watch.engine.outstanding() == []
    return watch


def contention(seed: int) -> Storm:
    """Return jobs of many tasks that arrive at a busy cluster, without faults."""
    rng = stream(seed, "throng")
    queues = random_queues(rng)
    nodes = [
        Node(
            id=f"n{n}",
            rack=f"r{n % 2}",
            gpus=tuple(Gpu(memory_bytes=rng.choice((1, 2, 2))) for _ in range(rng.randint(1, 2))),
        )
        for n in range(5)
    ]
    shards = [Shard(id=f"s{n}", size_bytes=rng.choice((0, 500, 3000))) for n in range(8)]
    bandwidth = Bandwidth(disk_bytes_per_s=100, rack_bytes_per_s=50, cluster_bytes_per_s=20)
    facts: list[Event] = [QueueChanged(at=0.0, queue=q) for q in queues]
    facts.append(BandwidthMeasured(at=0.0, bandwidth=bandwidth))
    facts += [NodeJoined(at=0.0, node=n) for n in nodes]
    for shard in shards:
        facts += [
            ReplicaAdded(at=0.0, shard=shard, node=n.id)
            for n in rng.sample(nodes, rng.randint(1, 2))
        ]
    largest = max(gpu.memory_bytes for node in nodes for gpu in node.gpus)
    for number in range(5):
        tasks = tuple(
            Task(
                reads=(rng.choice(shards).id,),
                demand=Demand(gpus=1, gpu_memory_bytes=rng.choice((0, 0, largest))),
                compute_s=rng.choice((5.0, 30.0, 60.0)),
            )
            for _ in range(rng.randint(2, 14))
        )
        queue = rng.choice(queues).name
        job = Job(id=f"j{number}", name="", user=f"u{number}", queue=queue, tasks=tasks)
        facts.append(JobSubmitted(at=20.0 * number, job=job))
    latency_s = rng.choice((0.0, 2.0))
    return Storm(seed=seed, calm=True, facts=tuple(facts), decision_latency_s=latency_s)


@EACH
def test_every_job_finishes_under_contention(make: Callable[[], Policy]) -> None:
    stops = skips = 0
    for seed in range(cases(6)):
        watch = run_storm(contention(seed), make())
        states = watch.engine.state.jobs.state.array().tolist()
        assert set(states) == {JobState.FINISHED}, seed
        tasks = len(watch.engine.state.tasks.state)
        assert watch.launches == tasks + watch.stops, "each preempted task runs exactly once more"
        assert watch.stops <= tasks, "few runs are preempted"
        stops, skips = stops + watch.stops, skips + watch.skips
    name = make().name
    assert bool(stops) == (name == "gsp")
    assert bool(skips) == (name == "gsd")
