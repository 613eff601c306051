"""fsp and fsu in simulations: all jobs end, and lost work is counted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headgate.base.rng import stream
from headgate.model import Bandwidth, Demand, Gpu, Job, Node, Queue, RunId, Shard, Task
from headgate.policies.flow import FlowSharing, PreemptiveFlowSharing, UnfairFlow
from headgate.ports import Policy
from headgate.protocol import Command, Event, LaunchTask, StopTask, TaskStopped
from headgate.sim.run import Outcome, Simulation, run
from headgate.spec import Links
from headgate.state import JobState

MB = 10**6
LINKS = Links(
    disk_bytes_per_s=200 * MB, node_link_bytes_per_s=125 * MB, rack_uplink_bytes_per_s=125 * MB
)


class Book:
    """Keeps its own account of GPU seconds lost to stopped runs; every task here has one GPU."""

    def __init__(self) -> None:
        self.began: dict[RunId, float] = {}
        self.lost_gpu_s = 0.0
        self.stops = 0

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        for event in batch:
            if isinstance(event, TaskStopped):
                self.lost_gpu_s += event.at - self.began[event.run]
        for command in commands:
            if isinstance(command, LaunchTask):
                self.began[command.run] = batch[0].at
            self.stops += isinstance(command, StopTask)


def busy_cluster(*, seed: int, latency_s: float) -> Simulation:
    """Twelve GPUs in two racks; ten jobs of users of their own arrive while others run."""
    rng = stream(seed, "busy cluster")
    nodes = [f"n{i}" for i in range(6)]
    shards = [Shard(id=f"s{i}", size_bytes=rng.randint(50, 400) * MB) for i in range(40)]

    def job(number: int) -> Job:
        count = rng.choice((2, 5, 10, 30))
        reads = rng.choices([s.id for s in shards], k=count)
        compute_s = rng.choice((2.0, 5.0, 12.0))
        tasks = [Task(reads=(shard,), compute_s=compute_s) for shard in reads]
        merge = Task(demand=Demand(cpus_milli=1000), after=tuple(range(count)), compute_s=1.0)
        name = f"j{number}"
        return Job(id=name, name=name, user=name, queue="default", tasks=(*tasks, merge))

    return Simulation(
        nodes=tuple(
            Node(id=n, rack="ab"[i // 3], gpus=(Gpu(memory_bytes=10),) * 2, cpus=4)
            for i, n in enumerate(nodes)
        ),
        links=LINKS,
        queues=(Queue(name="default"),),
        submissions=tuple((rng.uniform(0.0, 60.0), job(number)) for number in range(10)),
        bandwidth=Bandwidth(
            disk_bytes_per_s=200 * MB, rack_bytes_per_s=100 * MB, cluster_bytes_per_s=40 * MB
        ),
        replicas=tuple((s, n) for s in shards for n in rng.sample(nodes, 2)),
        seed=seed,
        decision_latency_s=latency_s,
    )


def finished(outcome: Outcome) -> bool:
    return set(outcome.jobs.state.tolist()) == {JobState.FINISHED}


@pytest.mark.parametrize("latency_s", [0.0, 0.5])
@pytest.mark.parametrize("slack", [0.0, 0.25])
def test_some_runs_are_preempted_and_their_lost_work_is_counted(
    slack: float, latency_s: float
) -> None:
    for seed in range(2):
        book = Book()
        policy = PreemptiveFlowSharing(slack=slack)
        outcome = run(busy_cluster(seed=seed, latency_s=latency_s), policy, observe=(book,))
        assert finished(outcome)
        # Ten arrivals and ten ends move shares, each by no more GPUs than there are.
        assert 0 < book.stops < 10 * 12
        assert outcome.figures["lost_gpu_s"] == pytest.approx(book.lost_gpu_s)
        assert book.lost_gpu_s > 0


def test_with_more_slack_less_work_is_lost() -> None:
    def lost_gpu_s(slack: float) -> float:
        policy = PreemptiveFlowSharing(slack=slack)
        return sum(
            run(busy_cluster(seed=seed, latency_s=0.0), policy).figures["lost_gpu_s"]
            for seed in range(4)
        )

    assert 0 < lost_gpu_s(2.0) < lost_gpu_s(0.0)


@pytest.mark.parametrize("policy", [FlowSharing(), UnfairFlow()], ids=["fs", "fsu"])
def test_without_preemption_no_work_is_lost(policy: Policy) -> None:
    outcome = run(busy_cluster(seed=0, latency_s=0.0), policy)
    assert finished(outcome)
    assert outcome.figures["lost_gpu_s"] == 0
