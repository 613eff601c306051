"""Simulations of jobs of one task each on a pool of equal GPUs."""

from __future__ import annotations

from headgate.engine import Engine, drive
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.ports import Policy
from headgate.protocol import JobSubmitted, NodeJoined, QueueChanged
from headgate.sim.report import Launches
from headgate.sim.world import SimulatedWorld


def job_of(
    number: int,
    gpus: int,
    run_s: float,
    *,
    declared: float | None = None,
    limit_s: float | None = None,
    queue: str = "q",
) -> Job:
    """Return a job of one task, of one of three users."""
    return Job(
        id=str(number),
        name="j",
        user=f"u{number % 3}",
        queue=queue,
        gang=True,
        retries=0,
        tasks=(Task(demand=Demand.of(gpus=gpus), compute_s=run_s),),
        estimated_s=declared,
        time_limit_s=limit_s,
    )


def simulated(
    pool: int,
    jobs: list[tuple[float, Job]],
    policy: Policy,
    *,
    others: tuple[int, ...] = (),
    queues: tuple[Queue, ...] = (Queue(name="q"),),
) -> dict[int, list[float]]:
    """Return the times of the starts of each job; there may be `others`, nodes of so many GPUs."""
    facts = [
        *(QueueChanged(at=0.0, queue=queue) for queue in queues),
        *(
            NodeJoined(at=0.0, node=Node(id=f"pool{n}", rack="r", gpus=(Gpu(memory_bytes=0),) * n))
            for n in (pool, *others)
        ),
        *(JobSubmitted(at=at, job=job) for at, job in jobs),
    ]
    network = FluidNetwork(
        {},
        disk_bytes_per_s=1,
        node_link_bytes_per_s=1,
        rack_uplink_bytes_per_s=1,
        aggregation_bytes_per_s=None,
    )
    starts = Launches()
    drive(Engine(), SimulatedWorld(facts, network=network, policy=policy), observe=(starts,))
    found: dict[int, list[float]] = {int(job.id): [] for _, job in jobs}
    for start in starts.seen:
        found[int(start.job)].append(start.at)
    return found
