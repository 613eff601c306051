"""Small clusters and jobs of simulations in which reading takes no time."""

from __future__ import annotations

from headgate.model import Demand, Gpu, Job, Node, Task
from headgate.protocol import Event, JobSubmitted

NO_LIMITS = dict.fromkeys(
    (
        "disk_bytes_per_s",
        "node_link_bytes_per_s",
        "rack_uplink_bytes_per_s",
        "aggregation_bytes_per_s",
    )
)
ONE_GPU, ONE_CPU = Demand(gpus=1), Demand(gpus=0, cpus_milli=1000)


def node(name: str, gpus: int = 0, cpus: float = 64) -> Node:
    return Node(id=name, rack="r", gpus=(Gpu(memory_bytes=1 << 30),) * gpus, cpus=cpus)


def rigid(name: str, tasks: int, run_s: float) -> Job:
    """Return a job of its own user, a gang if it has several tasks, on a GPU each."""
    task = Task(demand=ONE_GPU, compute_s=run_s)
    return Job(id=name, name=name, user=name, queue="q", tasks=(task,) * tasks, gang=tasks > 1)


def submitted(*jobs: tuple[float, Job]) -> list[Event]:
    return [JobSubmitted(at=at, job=job) for at, job in jobs]
