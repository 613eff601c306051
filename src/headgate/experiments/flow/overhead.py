"""Measured times of rounds: on the flow paper's test bed, and with 2,000 GPUs and 100 jobs.

These figures are measured with a clock that the caller passes, so they differ from call to call and
from machine to machine: reproducible results must not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.base.rng import stream
from headgate.engine import Engine
from headgate.experiments.flow.jobs import (
    GB,
    GPU_MEMORY_BYTES,
    GPUS_PER_NODE,
    QUEUE,
    REPLICAS,
    SimulatorConstants,
    in_parallel,
    links,
)
from headgate.experiments.flow.runs import CONSTRAINED, Policies, policy_of
from headgate.experiments.flow.tables import Rounds
from headgate.model import Demand, Gpu, Job, Node, Queue, Shard, Task
from headgate.planning.rounds.decide import decide
from headgate.ports.timed import TimedPolicy
from headgate.protocol import (
    BandwidthMeasured,
    Decide,
    Event,
    JobSubmitted,
    NodeJoined,
    QueueChanged,
    ReplicaAdded,
)
from headgate.sim.run import run
from headgate.spec.cluster import expected
from headgate.spec.forms import mapped
from headgate.state import Snapshot

MEASURED = ("fs", "headgate")
LARGE_NODES, LARGE_JOBS = 1000, 100
_RACK = 40
_TIMES = 5  # decisions of the large round

Clock = Callable[[], float]


def overhead(
    policies: Sequence[str], known: Policies, clock: Clock, *, parallel: int
) -> tuple[Rounds, ...]:
    """Measure rounds: all of one run on the test bed, and one large round several times."""
    found = []
    for name in (p for p in MEASURED if p in policies):
        decide(policy_of(name, known), 1, *large_round(15, parallel))  # warm-up: loads libraries
        small = TimedPolicy(policy_of(name, known), clock)
        simulation = in_parallel(CONSTRAINED, 1, SimulatorConstants(), parallel=parallel)
        run(simulation, small)
        found.append(_rounds(small, "test bed", gpus=simulation.gpus, jobs=parallel))
        large = TimedPolicy(policy_of(name, known), clock)
        command, snapshot = large_round(LARGE_NODES, LARGE_JOBS)
        for _ in range(_TIMES):
            decide(large, 1, command, snapshot)
        gpus = LARGE_NODES * GPUS_PER_NODE
        found.append(_rounds(large, "large", gpus=gpus, jobs=LARGE_JOBS))
    return tuple(found)


def _rounds(timed: TimedPolicy, where: str, *, gpus: int, jobs: int) -> Rounds:
    return Rounds(
        policy=timed.name,
        where=where,
        gpus=gpus,
        jobs=jobs,
        count=len(timed.seconds),
        mean_s=sum(timed.seconds) / len(timed.seconds),
        max_s=max(timed.seconds),
    )


def large_round(nodes: int, jobs: int) -> tuple[Decide, Snapshot]:
    """Return a round with all GPUs of a large cluster free and twice as many waiting tasks.

    Nodes and their links are those of the test bed, in racks of 40; every task reads a shard of
    2 GB with three replicas.
    """
    cluster = [
        Node(
            id=f"n{number}",
            rack=f"r{number // _RACK}",
            gpus=(Gpu(memory_bytes=GPU_MEMORY_BYTES),) * GPUS_PER_NODE,
        )
        for number in range(nodes)
    ]
    queue = Queue(name=QUEUE)
    estimates = expected(links(CONSTRAINED, SimulatorConstants()), cluster)
    facts: list[Event] = [QueueChanged(at=0.0, queue=queue)]
    facts.append(BandwidthMeasured(at=0.0, bandwidth=estimates))
    facts += [NodeJoined(at=0.0, node=node) for node in cluster]
    each = 2 * GPUS_PER_NODE * nodes // jobs
    for number in range(jobs):
        rng = stream(1, "large", number)
        shards = tuple(Shard(id=f"d{number}/{i}", size_bytes=2 * GB) for i in range(each))
        facts += [
            ReplicaAdded(at=0.0, shard=shard, node=node.id)
            for shard in shards
            for node in rng.sample(cluster, REPLICAS)
        ]
        facts.append(JobSubmitted(at=0.0, job=_large_job(f"j{number}", shards)))
    engine = Engine()
    commands = engine.handle(*facts)
    return next(c for c in commands if isinstance(c, Decide)), engine.snapshot()


def _large_job(name: str, shards: tuple[Shard, ...]) -> Job:
    task = Task(demand=Demand(gpus=1, gpu_memory_bytes=2 * GB), compute_s=10.0)
    tasks = mapped([(shard.id,) for shard in shards], task=task)
    return Job(id=name, name=name, user="user", queue=QUEUE, tasks=tasks, shards=shards)
