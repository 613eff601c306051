"""Small crowded clusters whose jobs declare exactly how long they run."""

from __future__ import annotations

from random import Random

from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.ports import Policy
from headgate.protocol import Event, JobSubmitted, NodeJoined, QueueChanged
from headgate.sim.world import SimulatedWorld


def _crowded(seed: int) -> list[Event]:
    """Return 2 to 4 nodes and 6 to 14 jobs of two users, gangs among them, of exact times."""
    draw = Random(seed)
    facts: list[Event] = [QueueChanged(at=0.0, queue=Queue(name="default"))]
    for number in range(draw.randint(2, 4)):
        gpus = (Gpu(memory_bytes=1 << 30),) * draw.choice((2, 4))
        facts.append(NodeJoined(at=0.0, node=Node(id=f"n{number}", rack="r", gpus=gpus, cpus=16)))
    at = 0.0
    for number in range(draw.randint(6, 14)):
        at += draw.choice((0.0, 1.0, 20.0, 100.0))
        run_s = draw.choice((30.0, 100.0, 400.0, 2000.0))
        gang = draw.random() < 0.4
        tasks = draw.choice((1, 2, 3, 4, 6))
        task = Task(demand=Demand(gpus=draw.choice((1, 1, 1, 2))), compute_s=run_s)
        job = Job(
            id=f"j{number}", name="j", user=draw.choice("ab"), queue="default", gang=gang,
            tasks=(task,) * tasks, estimated_s=run_s,
        )  # fmt: skip
        facts.append(JobSubmitted(at=at, job=job))
    return facts


def crowded_world(seed: int, policy: Policy) -> SimulatedWorld:
    """Return the world of a crowded cluster, without limits of bandwidth, under a policy."""
    network = FluidNetwork(
        {},
        disk_bytes_per_s=None,
        node_link_bytes_per_s=None,
        rack_uplink_bytes_per_s=None,
        aggregation_bytes_per_s=None,
    )
    return SimulatedWorld(_crowded(seed), network=network, policy=policy, seed=seed)
