"""Scenarios with jobs given by their form: tasks, inputs and replicas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spec.test_scenario import CLUSTER, load

from headgate.model import Demand, Job, Shard, Task
from headgate.spec import Scenario


def of(folder: Path, **job: Any) -> tuple[Scenario, Job]:
    scenario = load(folder, f"{CLUSTER}jobs:\n  - {json.dumps({'name': 'j'} | job)}\n")
    ((_, made),) = scenario.submissions
    return scenario, made


def each(**more: Any) -> dict[str, Any]:
    return {"count": 2, "size_bytes": 10, "compute_s": 3.0} | more


STEP = Task(demand=Demand(cpus_milli=1000), compute_s=1.0, output_bytes=5)
MAP = Task(compute_s=3.0)


def test_a_map_with_a_reduce(tmp_path: Path) -> None:
    reduce = {"compute_s": 1.0, "output_bytes": 5, "tasks": 2}
    scenario, job = of(tmp_path, kind="k", for_each=each(output_bytes=8, reduce=reduce))
    first = tuple(Task(reads=(f"j/{i}/0",), compute_s=3.0, output_bytes=8) for i in range(2))
    merge = Task(
        reads=("j/0", "j/1"),
        after=(0, 1),
        demand=Demand(cpus_milli=1000),
        compute_s=1.0,
        output_bytes=5,
    )
    assert job.tasks == (*first, merge, merge)
    assert scenario.task_names == {"j": ("j/0", "j/1", "j/2", "j/3")}
    assert job.shards == (Shard(id="j/0/0", size_bytes=10), Shard(id="j/1/0", size_bytes=10))
    assert job.runtime_class == "k"


def test_tasks_with_checkpoints(tmp_path: Path) -> None:
    reduce = {"compute_s": 9.0, "checkpoint_s": 1.5}
    _, job = of(tmp_path, for_each=each(checkpoint_s=2, reduce=reduce))
    assert [task.checkpoint_s for task in job.tasks] == [2, 2, 1.5]
    _, job = of(tmp_path, wavefront={"rows": 1, "columns": 1, "compute_s": 9, "checkpoint_s": 4})
    assert [task.checkpoint_s for task in job.tasks] == [4]
    _, job = of(tmp_path, tasks=[{"compute_s": 9, "checkpoint_s": 4}, {"compute_s": 9}])
    assert [task.checkpoint_s for task in job.tasks] == [4, 0]


def test_results_in_parts(tmp_path: Path) -> None:
    reduce = {"compute_s": 1.0, "tasks": 2, "partitioned": True, "gpus": 1, "gpu_memory": "1GB"}
    _, job = of(tmp_path, for_each=each(reduce=reduce))
    assert [task.parts for task in job.tasks] == [2, 2, 1, 1]
    assert [task.reads for task in job.tasks[2:]] == [("j/0.0", "j/1.0"), ("j/0.1", "j/1.1")]
    demand = Demand(gpus=1, gpu_memory_bytes=10**9)
    assert [task.demand for task in job.tasks[2:]] == [demand] * 2
    assert job.runtime_class == ""


def test_pairs_by_index_and_all_pairs(tmp_path: Path) -> None:
    sizes = ["1kB", 60]
    _, job = of(tmp_path, for_each=each(size_bytes=sizes))
    assert [task.reads for task in job.tasks] == [("j/0/0", "j/0/1"), ("j/1/0", "j/1/1")]
    _, job = of(tmp_path, for_each=each(size_bytes=sizes, pairs="all"))
    assert [task.reads for task in job.tasks] == [
        ("j/0/0", "j/0/1"), ("j/0/0", "j/1/1"), ("j/1/0", "j/0/1"), ("j/1/0", "j/1/1"),
    ]  # fmt: skip
    assert {shard.id: shard.size_bytes for shard in job.shards} == {
        "j/0/0": 1000, "j/0/1": 60, "j/1/0": 1000, "j/1/1": 60,
    }  # fmt: skip


def test_iterations_and_a_reduce_of_the_last_update(tmp_path: Path) -> None:
    step = {"compute_s": 1.0, "output_bytes": 5}
    _, job = of(tmp_path, for_each=each(iterations=2, update=step, reduce={"compute_s": 9}))
    assert job.tasks == (
        Task(reads=("j/0/0",), compute_s=3.0),
        Task(reads=("j/1/0",), compute_s=3.0),
        Task(
            reads=("j/0", "j/1"),
            after=(0, 1),
            demand=Demand(cpus_milli=1000),
            compute_s=1.0,
            output_bytes=5,
        ),
        Task(reads=("j/0/0", "j/2"), after=(2,), compute_s=3.0),
        Task(reads=("j/1/0", "j/2"), after=(2,), compute_s=3.0),
        Task(
            reads=("j/3", "j/4"),
            after=(3, 4),
            demand=Demand(cpus_milli=1000),
            compute_s=1.0,
            output_bytes=5,
        ),
        Task(reads=("j/5",), after=(5,), demand=Demand(cpus_milli=1000), compute_s=9),
    )


def test_a_wavefront_reads_its_neighbours_and_shards_if_any(tmp_path: Path) -> None:
    shape = {"rows": 2, "columns": 2, "compute_s": 3.0}
    scenario, job = of(tmp_path, wavefront=shape | {"reduce": {"compute_s": 1}})
    assert job.tasks == (
        MAP,
        Task(reads=("j/0",), after=(0,), compute_s=3.0),
        Task(reads=("j/0",), after=(0,), compute_s=3.0),
        Task(reads=("j/1", "j/2"), after=(1, 2), compute_s=3.0),
        Task(
            reads=("j/0", "j/1", "j/2", "j/3"),
            after=(0, 1, 2, 3),
            demand=Demand(cpus_milli=1000),
            compute_s=1,
        ),
    )
    assert scenario.replicas == ()
    scenario, job = of(tmp_path, wavefront=shape | {"size_bytes": 7, "replicas": 2})
    assert job.tasks[3].reads == ("j/3/0", "j/1", "j/2")
    assert len(scenario.replicas) == 8


@pytest.mark.parametrize("key", ["for_each", "wavefront"])
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 3))
def test_every_shard_has_the_given_number_of_replicas(
    tmp_path_factory: pytest.TempPathFactory, key: str, count: int, sizes: int, replicas: int
) -> None:
    """Forms read placed shards alone (and results): nothing else, and each of them."""
    number = {"count": count} if key == "for_each" else {"rows": count, "columns": 1}
    data = {"size_bytes": [100 + i for i in range(sizes)], "replicas": replicas}
    form = number | data | {"compute_s": 1}
    scenario, job = of(tmp_path_factory.getbasetemp(), **{key: form})
    places: dict[str, set[str]] = {shard.id: set() for shard in job.shards}
    for shard, node in scenario.replicas:
        places[shard.id].add(node)
    assert [len(nodes) for nodes in places.values()] == [replicas] * (count * sizes)
    results = {f"j/{ordinal}" for ordinal in range(count)}
    assert {read for task in job.tasks for read in task.reads} - results == set(places)
