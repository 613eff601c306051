"""Job files of every form: their tasks, inputs and programs."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import SpecError
from headgate.model import Demand, Job, Shard, Task
from headgate.spec import expand, load_job

A = tuple(Shard(id=f"a/{i}", size_bytes=10 + i) for i in range(3))
B = tuple(Shard(id=f"b/{i}", size_bytes=20 + i) for i in range(2))
ONE = (Shard(id="one/0", size_bytes=5),)
MANY = tuple(Shard(id=f"many/{i}", size_bytes=1) for i in range(2000))
DATASETS = {"a": A, "b": B, "one": ONE, "many": MANY}


def expanded(job: dict[str, Any]) -> Job:
    return expand(
        load_job(json.dumps({"data": {}} | job)),
        job_id="j",
        user="u",
        datasets=DATASETS,
        file_sizes={},
    )


def sources(*names: str) -> dict[str, dict[str, str]]:
    return {name: {"from": name} for name in names}


def runs(job: Job) -> list[tuple[str, int, int, int]]:
    """Return what every task runs: its program, its index, of how many, and its parts."""
    found = []
    for ordinal in range(len(job.tasks)):
        program = job.task_program(ordinal)
        assert program is not None
        assert program.stage in job.program.stages
        found.append((program.stage.run, program.index, program.stage.count, program.parts))
    return found


CPU = Task(demand=Demand(cpus_milli=1000))


def test_all_pairs_of_two_data() -> None:
    tasks = {"for_each": ["a", "b"], "pairs": "all", "run": "m:f"}
    job = expanded({"data": sources("a", "b"), "tasks": tasks})
    assert [task.reads for task in job.tasks] == [
        ("a/0", "b/0"), ("a/0", "b/1"), ("a/1", "b/0"), ("a/1", "b/1"), ("a/2", "b/0"),
        ("a/2", "b/1"),
    ]  # fmt: skip
    assert sorted(shard.id for shard in job.shards) == ["a/0", "a/1", "a/2", "b/0", "b/1"]
    assert runs(job) == [("m:f", i, 6, 1) for i in range(6)]
    assert job.runtime_class == "m:f"


def test_tasks_that_read_nothing_are_one_object() -> None:
    job = expanded({"tasks": {"count": 5000, "run": "m:f", "params": {"k": 1}}})
    assert len(job.tasks) == 5000
    assert len({id(task) for task in job.tasks}) == 1


def test_one_shard_goes_with_each_of_many() -> None:
    tasks = {"for_each": ["a", "one"], "pairs": "all", "run": "m:f"}
    job = expanded({"data": sources("a", "one"), "tasks": tasks})
    assert [task.reads for task in job.tasks] == [(f"a/{i}", "one/0") for i in range(3)]


def test_results_in_parts_one_for_each_reduce_task() -> None:
    job = expanded(
        {
            "data": sources("b"),
            "tasks": {"for_each": "b", "run": "split {shard} {outputs}"},
            "reduce": {"run": "cat {shards} > {output}", "tasks": 3, "partitioned": True},
        }
    )
    assert job.tasks == (
        Task(reads=("b/0",), parts=3),
        Task(reads=("b/1",), parts=3),
        *(
            Task(reads=(f"j/0.{i}", f"j/1.{i}"), after=(0, 1), demand=Demand(cpus_milli=1000))
            for i in range(3)
        ),
    )
    first, second = "split {shard} {outputs}", "cat {shards} > {output}"
    assert runs(job) == [(first, 0, 2, 3), (first, 1, 2, 3), *((second, i, 3, 1) for i in range(3))]
    assert job.runtime_class == first


def test_cells_of_a_wavefront_read_their_shards_and_their_neighbours() -> None:
    tasks = {
        "wavefront": {"rows": 3, "columns": 2},
        "for_each": ["a", "b"],
        "pairs": "all",
        "run": "m:f",
        "resources": {"gpus": 0},
    }
    job = expanded({"data": sources("a", "b"), "tasks": tasks, "reduce": {"run": "m:g"}})
    for (i, row), (j, column) in itertools.product(enumerate(A), enumerate(B)):
        cell = {(0, 0): 0, (0, 1): 1, (1, 0): 2, (1, 1): 3, (2, 0): 4, (2, 1): 5}
        earlier = [cell[at] for at in ((i - 1, j), (i, j - 1)) if at in cell]
        assert job.tasks[cell[i, j]] == Task(
            reads=(row.id, column.id, *(f"j/{o}" for o in earlier)),
            after=tuple(earlier),
            demand=Demand(cpus_milli=1000),
        )
    results = tuple(f"j/{o}" for o in range(6))
    assert job.tasks[6:] == (
        Task(reads=results, after=tuple(range(6)), demand=Demand(cpus_milli=1000)),
    )
    assert runs(job) == [*(("m:f", i, 6, 1) for i in range(6)), ("m:g", 0, 1, 1)]


def test_a_wavefront_needs_no_data() -> None:
    job = expanded({"tasks": {"wavefront": {"rows": 1, "columns": 3}, "run": "cat {shards}"}})
    assert job.tasks == (
        Task(),
        Task(reads=("j/0",), after=(0,)),
        Task(reads=("j/1",), after=(1,)),
    )


def test_iterations_end_in_updates_and_the_reduce_reads_the_last() -> None:
    job = expanded(
        {
            "data": sources("b"),
            "tasks": {"for_each": "b", "iterations": 2, "run": "m:f", "params": {"k": 1}},
            "update": {"run": "m:u"},
            "reduce": {"run": "m:r", "resources": {"cpus": 2}},
        }
    )
    assert job.tasks == (
        Task(reads=("b/0",)),
        Task(reads=("b/1",)),
        Task(reads=("j/0", "j/1"), after=(0, 1), demand=Demand(cpus_milli=1000)),
        Task(reads=("b/0", "j/2"), after=(2,)),
        Task(reads=("b/1", "j/2"), after=(2,)),
        Task(reads=("j/3", "j/4"), after=(3, 4), demand=Demand(cpus_milli=1000)),
        Task(reads=("j/5",), after=(5,), demand=Demand(cpus_milli=2000)),
    )
    one = [("m:f", 0, 2, 1), ("m:f", 1, 2, 1), ("m:u", 0, 1, 1)]
    assert runs(job) == [*one, *one, ("m:r", 0, 1, 1)]
    program = job.task_program(3)
    assert program is not None
    assert program.stage.params == {"k": 1}


def test_tasks_without_data_can_be_repeated() -> None:
    job = expanded(
        {
            "tasks": {"count": 2, "iterations": 2, "run": "echo {shard}", "resources": {"gpus": 0}},
            "update": {"run": "cat {shards}"},
        }
    )
    first = (CPU, CPU, Task(reads=("j/0", "j/1"), after=(0, 1), demand=Demand(cpus_milli=1000)))
    again = Task(reads=("j/2",), after=(2,), demand=Demand(cpus_milli=1000))
    last = Task(reads=("j/3", "j/4"), after=(3, 4), demand=Demand(cpus_milli=1000))
    assert job.tasks == (*first, again, again, last)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 3))
def test_every_task_of_a_program_belongs_to_one_stage(
    iterations: int, count: int, merges: int
) -> None:
    job: dict[str, Any] = {"tasks": {"count": count, "iterations": iterations, "run": "m:f"}}
    job |= {"update": {"run": "m:u"}}
    if merges:
        job |= {"reduce": {"run": "m:r", "tasks": merges}}
    expected = [
        *([*(("m:f", i, count, 1) for i in range(count)), ("m:u", 0, 1, 1)] * iterations),
        *(("m:r", i, merges, 1) for i in range(merges)),
    ]
    assert runs(expanded(job)) == expected


def test_too_many_tasks_are_rejected_before_they_are_made() -> None:
    def rejection(job: dict[str, Any]) -> str:
        with pytest.raises(SpecError) as error:
            expanded(job)
        (problem,) = error.value.problems
        return str(problem)

    tasks = {"for_each": ["many", "many"], "pairs": "all", "run": "m:f"}
    problem = rejection({"data": sources("many"), "tasks": tasks})
    assert problem == "tasks.for_each: these are 4000000 tasks, and a job has at most 1000000"
    tasks = {"for_each": "many", "run": "m:f"}
    problem = rejection(
        {"data": sources("many"), "tasks": tasks, "reduce": {"run": "m", "tasks": 501}}
    )
    assert problem == (
        "tasks.for_each: its reduce tasks read 1002000 results, and those of a job read at most "
        "1000000"
    )
