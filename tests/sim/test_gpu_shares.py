"""Figures of simulated runs that hold parts of GPUs."""

from __future__ import annotations

import pytest

from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.sim.run import Simulation, run
from headgate.spec import Links

LINKS = Links(disk_bytes_per_s=1, node_link_bytes_per_s=1, rack_uplink_bytes_per_s=1)


def test_run_on_part_of_a_gpu_counts_as_busy_for_its_share() -> None:
    tasks = (
        Task(demand=Demand(gpus=1, gpu_milli=250), compute_s=10.0),
        Task(demand=Demand(gpus=1, gpu_milli=500), compute_s=6.0),
        Task(
            demand=Demand(gpus=1, gpu_milli=0, gpu_memory_bytes=1), compute_s=10.0
        ),  # memory alone
        Task(compute_s=4.0),
    )
    job = Job(id="j", name="j", user="ada", queue="default", tasks=tasks)
    simulation = Simulation(
        nodes=(Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1000),) * 2),),
        links=LINKS,
        queues=(Queue(name="default"),),
        submissions=((0.0, job),),
    )
    figures = run(simulation, FirstInFirstOut()).figures
    assert figures["makespan_s"] == 10.0
    assert figures["gpu_utilisation"] == pytest.approx((2.5 + 3.0 + 0.0 + 4.0) / 20.0)
