"""The CPUs of Ray programs that name none."""

from __future__ import annotations

from headgate.model import WHOLE, Demand, Gpu, Job, Node, Program, RayProgram, Task
from headgate.planning.units.ray_cpus import with_cpus_of_gpus

GIB = 1 << 30
NODES = [
    Node(id=name, rack="r", gpus=(Gpu(memory_bytes=gib * GIB),) * gpus, cpus=cpus)
    for name, gpus, cpus, gib in (("a", 4, 11, 1), ("b", 2, 16, 8), ("c", 1, 1, 4), ("d", 0, 2, 0))
]


def cpus_of(task: Task, nodes: list[Node], *, follows: bool = True) -> float:
    program = Program(ray=RayProgram(cpus_by_gpus=follows))
    job = Job(id="j", name="j", user="u", queue="q", tasks=(task,) * 2, program=program)
    first, second = with_cpus_of_gpus(job, nodes).tasks
    assert first == second
    return first.demand.cpus_milli / WHOLE


def test_ray_program_holds_its_gpus_least_part_of_the_cpus_of_a_node() -> None:
    assert cpus_of(Task(demand=Demand(gpus=1)), NODES[:1]) == 2.75
    assert cpus_of(Task(demand=Demand(gpus=1)), NODES) == 1
    assert cpus_of(Task(demand=Demand(gpus=2)), NODES) == 5.5  # of the nodes with two GPUs
    assert cpus_of(Task(demand=Demand(gpus=1, gpu_memory_bytes=5 * GIB)), NODES) == 8
    assert cpus_of(Task(demand=Demand(gpus=8)), NODES) == 0  # rejected later


def test_cpus_that_are_named_and_those_without_any_node_stay() -> None:
    assert cpus_of(Task(demand=Demand(gpus=1, cpus_milli=3000)), NODES, follows=False) == 3
    assert cpus_of(Task(demand=Demand(gpus=1)), []) == 0
