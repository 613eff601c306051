"""Lineage: lost results are recomputed, exactly those that are still needed."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.machine import lineage
from headgate.model import Task, result_ids
from headgate.protocol import FailureKind, NodeLost, ReplicaLost, TaskFinished
from headgate.state import State

Bench = Any  # of conftest.py


def run(bench: Bench, ordinal: int, node: str) -> None:
    """Run one task of job j to its end."""
    bench.finished(bench.run("j", ordinal, node), 50)


def chain(*, output_bytes: int = 50) -> list[Task]:
    """0 -> 1 -> 2, each reading the result before it."""
    return [
        Task(output_bytes=output_bytes),
        Task(after=(0,), reads=("j/0",), output_bytes=output_bytes),
        Task(after=(1,), reads=("j/1",)),
    ]


def test_task_waits_for_exactly_its_predecessors(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", [Task(), Task(), Task(after=(0, 1))])
    run(bench, 0, "a")
    assert bench.tasks("j") == ["finished", "waiting", "blocked"]
    run(bench, 1, "a")
    assert bench.tasks("j") == ["finished", "finished", "waiting"]


def test_a_task_reads_the_result_where_it_was_made(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", chain())
    run(bench, 0, "b")
    (launch,) = bench.plan(("j", 1, "a", (0,)))
    (read,) = launch.reads
    assert (read.shard.id, read.shard.size_bytes, read.sources) == ("j/0", 50, ("b",))


def test_lost_result_that_is_needed_is_recomputed_first(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", chain())
    run(bench, 0, "b")
    bench.lose("b")
    assert bench.tasks("j") == ["waiting", "blocked", "blocked"]
    for ordinal in (0, 1, 2):
        run(bench, ordinal, "a")
    assert bench.job_state("j") == "finished"


def test_lost_results_are_recomputed_across_all_lost_levels(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", chain())
    run(bench, 0, "b")
    run(bench, 1, "b")
    bench.lose("b")
    assert bench.tasks("j") == ["waiting", "blocked", "blocked"]


def test_task_with_an_existing_result_does_not_run_again(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", chain())
    run(bench, 0, "a")
    run(bench, 1, "b")
    bench.lose("b")
    assert bench.tasks("j") == ["finished", "waiting", "blocked"]


def test_result_no_longer_needed_is_not_recomputed(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", chain())
    run(bench, 0, "b")
    run(bench, 1, "a")
    bench.lose("b")
    assert bench.tasks("j") == ["finished", "finished", "waiting"]


def test_a_task_that_only_comes_after_and_reads_nothing_needs_no_result(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", [Task(output_bytes=50), Task(after=(0,))])
    run(bench, 0, "b")
    bench.lose("b")
    assert bench.tasks("j") == ["finished", "waiting"]


def test_final_result_is_recomputed_while_the_job_is_in_flight(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", [Task(output_bytes=50), Task()])
    run(bench, 0, "b")
    bench.lose("b")
    assert bench.tasks("j") == ["waiting", "waiting"]


def test_a_finished_job_stays_finished_whatever_is_lost(bench: Bench) -> None:
    bench.node("a")
    bench.job("j", [Task(output_bytes=50)])
    run(bench, 0, "a")
    bench.lose("a")
    assert bench.job_state("j") == "finished"


def test_result_with_another_copy_is_not_recomputed(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", chain())
    run(bench, 0, "b")
    bench.replica("j/0", "a")
    bench.lose("b")
    assert bench.tasks("j") == ["finished", "waiting", "blocked"]
    bench.give(ReplicaLost(at=bench.at, shard="j/0", node="a"))
    assert bench.tasks("j") == ["waiting", "blocked", "blocked"]


def test_reader_that_runs_when_its_source_is_lost_may_finish(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", chain())
    run(bench, 0, "b")
    reader = bench.run("j", 1, "a")
    bench.lose("b")
    assert bench.tasks("j") == ["waiting", "running", "blocked"]
    bench.finished(reader, 50)  # it had read all that it needed
    assert bench.tasks("j") == ["waiting", "finished", "waiting"]


def test_reader_that_lost_its_source_waits_for_the_recomputation(bench: Bench) -> None:
    bench.node("a")
    bench.node("b")
    bench.job("j", chain(), retries=0)
    run(bench, 0, "b")
    reader = bench.run("j", 1, "a")
    bench.lose("b")
    bench.failed(reader, FailureKind.LOST, "no replica is left")
    assert bench.tasks("j") == ["waiting", "blocked", "blocked"]
    for ordinal in (0, 1, 2):
        run(bench, ordinal, "a")
    assert bench.job_state("j") == "finished"


def test_both_inputs_of_a_reader_are_recomputed_before_it_runs(bench: Bench) -> None:
    bench.node("a")
    bench.node("b", gpus=2)
    tasks = [
        Task(output_bytes=50),
        Task(output_bytes=50),
        Task(after=(0, 1), reads=("j/0", "j/1")),
    ]
    bench.job("j", tasks)
    run(bench, 0, "b")
    run(bench, 1, "b")
    bench.lose("b")
    assert bench.tasks("j") == ["waiting", "waiting", "blocked"]
    run(bench, 1, "a")
    assert bench.tasks("j") == ["waiting", "finished", "blocked"]
    run(bench, 0, "a")
    assert bench.tasks("j") == ["finished", "finished", "waiting"]


@pytest.mark.parametrize("results", [10, 2000])
def test_cost_of_a_lost_replica_does_not_grow_with_the_number_of_results(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, results: int
) -> None:
    bench.node("a", gpus=results)
    bench.job("j", [Task(output_bytes=1)] * results + [Task(after=(0,), reads=("j/0",))])
    launched = bench.plan(*(("j", n, "a", (n,)) for n in range(results)))
    bench.give(*(TaskFinished(at=bench.at, run=c.run, output_bytes=1) for c in launched))
    looked_at: list[int] = []
    lost = lineage._lost

    def counted(state: State, task: int) -> bool:
        looked_at.append(task)
        return lost(state, task)

    monkeypatch.setattr(lineage, "_lost", counted)
    bench.give(ReplicaLost(at=bench.at, shard="j/0", node="a"))
    assert looked_at == [0]
    assert bench.tasks("j")[0] == "waiting"


@pytest.mark.parametrize("lost", [10, 100])
def test_loss_of_many_results_of_one_reader_visits_its_inputs_a_few_times(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    bench.node("a", gpus=lost)
    maps = [Task(output_bytes=1)] * lost
    reads = tuple(f"j/{n}" for n in range(lost))
    bench.job("j", [*maps, Task(after=tuple(range(lost)), reads=reads)])
    launched = bench.plan(*(("j", n, "a", (n,)) for n in range(lost)))
    bench.give(*(TaskFinished(at=bench.at, run=c.run, output_bytes=1) for c in launched))
    visits = {"reads": 0, "unfinished_before": 0}

    def count(name: str) -> None:
        original = getattr(State, name)

        def counted(state: State, task: int) -> object:
            visits[name] += task == lost
            return original(state, task)

        monkeypatch.setattr(State, name, counted)

    for name in visits:
        count(name)
    bench.engine.handle(NodeLost(at=bench.at, node="a"))
    assert 1 <= visits["reads"] <= 2
    assert visits["unfinished_before"] == 1
    assert bench.tasks("j") == ["waiting"] * lost + ["blocked"]


@pytest.mark.parametrize("parts", [2, 20])
def test_lost_result_in_many_parts_is_judged_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    bench.node("a")
    bench.node("b")
    reader = Task(after=(0,), reads=tuple(result_ids("j", 0, parts)))
    bench.job("j", [Task(output_bytes=parts, parts=parts), reader, Task()])
    run(bench, 0, "a")
    run(bench, 1, "b")
    judged: list[int] = []
    needed = lineage._needed

    def counted(state: State, task: int, *more: Any) -> bool:
        judged.append(task)
        return needed(state, task, *more)

    monkeypatch.setattr(lineage, "_needed", counted)
    bench.lose("a")
    assert judged == [0]
    assert bench.tasks("j") == ["finished", "finished", "waiting"]
