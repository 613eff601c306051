"""The mixed tasks on Headgate's own scheduler, which places a task only where it fits now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from headgate.experiments.spillover.loop import LoopCluster, LoopTask
from headgate.model import WHOLE, Demand, Job, Node, Queue, Task
from headgate.ports import PolicyInfo, make_policy
from headgate.sim.run import Simulation, run
from headgate.spec.cluster import Links

Policies = Mapping[str, PolicyInfo]

_GIB: Final = 1 << 30
LINKS: Final = Links(
    disk_bytes_per_s=1e9, node_link_bytes_per_s=1e9, rack_uplink_bytes_per_s=1e9
)  # no task reads anything


def makespan_s(
    cluster: LoopCluster,
    demands: Sequence[tuple[int, int, int]],
    tasks: Sequence[LoopTask],
    balancer: str,
    seed: int,
    policies: Policies,
) -> float:
    """Return how long the tasks of one job take under `fifo`, placed by a balancer."""
    policy = make_policy(policies, "fifo", {"place": balancer})
    nodes = tuple(
        Node(id=f"n{number}", rack="r", gpus=(), cpus=cpus, memory_bytes=gib * _GIB, speed=speed)
        for number, ((cpus, _, gib), speed) in enumerate(
            zip(cluster.total, cluster.speed, strict=True)
        )
    )
    asked = tuple(
        Task(
            demand=Demand(
                cpus_milli=WHOLE * demands[task.kind][0],
                memory_bytes=demands[task.kind][2] * _GIB,
            ),
            compute_s=task.work_s,
        )
        for task in tasks
    )
    job = Job(id="tasks", name="tasks", user="u", queue="q", tasks=asked)
    outcome = run(
        Simulation(
            nodes=nodes,
            links=LINKS,
            queues=(Queue(name="q"),),
            submissions=((0.0, job),),
            seed=seed,
        ),
        policy,
    )
    return float(outcome.figures["makespan_s"])
