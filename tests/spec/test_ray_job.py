"""The key `ray`: the gang that a plain Ray program becomes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from headgate.model import Demand, Job, Launch, ProgramType, RayMode
from headgate.spec import expand, load_job


def job(**keys: Any) -> Job:
    ray = {"script": "/shared/train.py", **keys.pop("ray", {})}
    text = yaml.safe_dump({"ray": ray, **keys})
    return expand(load_job(text), job_id="job-1", user="ann", datasets={}, file_sizes={})


def test_gpus_of_a_ray_program_are_tasks_of_one_gpu_over_any_nodes() -> None:
    found = job(ray={"args": ["--epochs", "3"]}, resources={"gpus": 4, "memory": "4GiB"})
    assert (found.gang, found.distinct_nodes) == (True, False)
    assert [task.demand for task in found.tasks] == [Demand(gpus=1, memory_bytes=1 << 30)] * 4
    program = found.task_program(3)
    assert program is not None
    assert (program.stage.program_type, program.stage.run) == (ProgramType.RAY, "/shared/train.py")
    assert program.per_node is Launch.FIRST
    assert program.ray is not None
    assert (program.ray.args, program.ray.mode) == (("--epochs", "3"), RayMode.PRIVATE)
    assert program.ray.cpus_by_gpus


def test_amounts_of_a_ray_program_are_divided_exactly() -> None:
    found = job(
        ray={"resources": {"gpus": 3, "cpus": 8, "memory": "10B", "custom": {"licence": 1}}}
    )
    assert [task.demand.cpus_milli for task in found.tasks] == [3000, 3000, 2000]
    assert [task.demand.memory_bytes for task in found.tasks] == [4, 3, 3]
    assert [task.demand.custom for task in found.tasks] == [
        (("licence", 334),), (("licence", 333),), (("licence", 333),)
    ]  # fmt: skip


def test_amounts_of_a_ray_program_with_num_nodes_count_per_node() -> None:
    found = job(num_nodes=2, resources={"gpus": 4, "cpus": 8})
    assert found.distinct_nodes
    assert [task.demand for task in found.tasks] == [Demand(gpus=4, cpus_milli=8000)] * 2


@pytest.mark.parametrize(
    ("resources", "cpus_milli", "follows"),
    [({"gpus": 0}, 1000, False), ({"gpus": 0, "cpus": 6}, 6000, False), ({}, 0, True)],
)
def test_ray_program_on_one_node(resources: dict[str, Any], cpus_milli: int, follows: bool) -> None:
    found = job(resources=resources)
    (task,) = found.tasks
    assert task.demand == Demand(gpus=resources.get("gpus", 1), cpus_milli=cpus_milli)
    assert found.program.ray is not None
    assert found.program.ray.cpus_by_gpus == follows
    assert found.gang
