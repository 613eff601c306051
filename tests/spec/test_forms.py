"""Forms of jobs against independent descriptions: the inputs and order of every task."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.model import Demand, Task, result_id
from headgate.spec.forms import iterated, mapped, merged, wavefront

MODEL = Task(demand=Demand(gpus=2, gpu_memory_bytes=5), compute_s=3.0, output_bytes=100)
SECOND = Task(demand=Demand(cpus_milli=3000), compute_s=1.0, output_bytes=7)


def shards(groups: int, width: int = 1) -> list[tuple[str, ...]]:
    return [tuple(f"d{column}/{row}" for column in range(width)) for row in range(groups)]


def needs(task: Task) -> tuple[Demand, float, int]:
    return task.demand, task.compute_s, task.output_bytes


def ancestors(tasks: tuple[Task, ...], ordinal: int) -> set[int]:
    """Return all tasks that must have finished before one starts."""
    found: set[int] = set()
    waiting = [ordinal]
    while waiting:
        for earlier in tasks[waiting.pop()].after:
            if earlier not in found:
                found.add(earlier)
                waiting.append(earlier)
    return found


@given(st.integers(1, 6), st.integers(1, 3))
def test_a_map_has_one_task_per_group_and_no_order(groups: int, width: int) -> None:
    tasks = mapped(shards(groups, width), task=MODEL)
    assert [task.reads for task in tasks] == shards(groups, width)
    assert all(task.after == () and needs(task) == needs(MODEL) for task in tasks)


@given(st.integers(1, 6), st.integers(1, 4))
def test_merge_tasks_read_all_results(groups: int, count: int) -> None:
    first = mapped(shards(groups), task=MODEL)
    tasks = merged("j", first, count=count, task=SECOND)
    assert tasks[:groups] == first
    assert len(tasks) == groups + count
    for merge in tasks[groups:]:
        assert merge.after == tuple(range(groups))
        assert merge.reads == tuple(f"j/{ordinal}" for ordinal in range(groups))
        assert needs(merge) == needs(SECOND)


@given(st.integers(1, 6), st.integers(2, 4))
def test_merge_tasks_read_a_part_of_each_result(groups: int, count: int) -> None:
    """Every part of every result is read exactly once, by the task of its number."""
    tasks = merged("j", mapped(shards(groups), task=MODEL), count=count, partitioned=True,
                   task=SECOND)  # fmt: skip
    assert [task.parts for task in tasks] == [count] * groups + [1] * count
    readers = {read: i for i, merge in enumerate(tasks[groups:]) for read in merge.reads}
    assert readers == {f"j/{o}.{part}": part for o in range(groups) for part in range(count)}
    assert sum(len(merge.reads) for merge in tasks[groups:]) == len(readers)
    assert all(merge.after == tuple(range(groups)) for merge in tasks[groups:])


def test_one_part_is_the_whole_result() -> None:
    first = mapped(shards(3), task=MODEL)
    whole = merged("j", first, count=1, task=SECOND)
    assert merged("j", first, count=1, partitioned=True, task=SECOND) == whole


def test_results_in_parts_are_merged_whole_by_another_merge() -> None:
    parted = merged("j", mapped(shards(2), task=MODEL), count=2, partitioned=True, task=SECOND)
    tasks = merged("j", parted, count=1, task=SECOND, of=(0, 3))
    assert tasks[:4] == parted
    assert (tasks[4].after, tasks[4].reads) == ((0, 3), ("j/0.0", "j/0.1", "j/3"))


@given(st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_a_cell_of_a_wavefront_waits_for_all_above_and_to_the_left(
    rows: int, columns: int, reading: bool
) -> None:
    own = shards(rows * columns, 2) if reading else None
    tasks = wavefront("j", rows, columns, task=MODEL, reads=own)
    assert len(tasks) == rows * columns
    for i in range(rows):
        for j in range(columns):
            here = i * columns + j
            neighbours = [(a, b) for a, b in ((i - 1, j), (i, j - 1)) if a >= 0 and b >= 0]
            results = [f"j/{a * columns + b}" for a, b in neighbours]
            assert list(tasks[here].reads) == [*(own[here] if own else ()), *results]
            assert [result_id("j", earlier) for earlier in tasks[here].after] == results
            assert ancestors(tasks, here) == {
                a * columns + b for a in range(i + 1) for b in range(j + 1)
            } - {here}
            assert needs(tasks[here]) == needs(MODEL)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2))
def test_an_iteration_waits_for_the_update_before_it(
    groups: int, iterations: int, width: int
) -> None:
    tasks = iterated("j", shards(groups, width), iterations, task=MODEL, update=SECOND)
    names = [(k, i) for k in range(iterations) for i in [*range(groups), "update"]]
    assert len(tasks) == len(names)
    for ordinal, (k, i) in enumerate(names):
        task = tasks[ordinal]
        earlier = {names[a] for a in ancestors(tasks, ordinal)}
        done = {name for name in names if name[0] < k}
        mates = {(k, mate) for mate in range(groups)}
        assert earlier == done | (mates if i == "update" else set())
        ids = {name: f"j/{o}" for o, name in enumerate(names)}
        if i == "update":
            assert task.reads == tuple(ids[k, mate] for mate in range(groups))
        else:
            assert isinstance(i, int)
            state = [ids[k - 1, "update"]] if k else []
            assert task.reads == (*shards(groups, width)[i], *state)
        assert needs(task) == needs(SECOND if i == "update" else MODEL)
