"""What is said never to fit does not fit, by trying every way to place it."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headgate.decision.fit import gang_misfit, misfit
from headgate.model import Gpu, Node, Task
from headgate.spec.scenario_jobs import find_cycle

NODES = st.lists(
    st.tuples(st.lists(st.integers(1, 3), max_size=3), st.integers(0, 3)).map(
        lambda spec: Node(
            id="n", rack="r", gpus=tuple(Gpu(memory_bytes=m) for m in spec[0]), cpus=spec[1]
        )
    ),
    min_size=1,
    max_size=3,
)
NEED = st.one_of(
    st.builds(Task, gpus=st.integers(1, 3), gpu_memory_bytes=st.integers(0, 3)),
    st.builds(Task, gpus=st.just(0), cpus=st.integers(1, 3)),
)

Room = tuple[tuple[tuple[int, ...], int], ...]  # per node: memory of its free GPUs, free slots


def room_of(nodes: list[Node]) -> Room:
    return tuple((tuple(sorted(g.memory_bytes for g in n.gpus)), n.cpus) for n in nodes)


def fits(tasks: list[Task], room: Room) -> bool:
    """Try every node for the first task, and the rest in what is left."""
    if not tasks:
        return True
    task, rest = tasks[0], tasks[1:]
    for number, (gpus, cpus) in enumerate(room):
        if task.gpus:
            # Any GPU that is large enough may be taken: try each smallest one to start from.
            usable = [i for i, memory in enumerate(gpus) if memory >= task.gpu_memory_bytes]
            choices = [
                (tuple(m for i, m in enumerate(gpus) if i not in usable[s : s + task.gpus]), cpus)
                for s in range(len(usable) - task.gpus + 1)
            ]
        else:
            choices = [(gpus, cpus - task.cpus)] if cpus >= task.cpus else []
        for choice in choices:
            if fits(rest, (*room[:number], choice, *room[number + 1 :])):
                return True
    return False


@given(NEED, NODES)
def test_one_task(task: Task, nodes: list[Node]) -> None:
    assert bool(misfit(task, nodes)) == (not fits([task], room_of(nodes)))


@given(st.lists(NEED, min_size=1, max_size=4), NODES)
def test_a_gang_that_can_start_is_never_refused(tasks: list[Task], nodes: list[Node]) -> None:
    if fits(tasks, room_of(nodes)):
        assert gang_misfit(tasks, nodes) == ""


@given(NEED, st.integers(1, 5), NODES)
def test_a_gang_of_tasks_alike_is_refused_exactly(
    need: Task, count: int, nodes: list[Node]
) -> None:
    assert bool(gang_misfit([need] * count, nodes)) == (not fits([need] * count, room_of(nodes)))


@given(
    st.integers(1, 7).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(0, n - 1), max_size=3).map(tuple), min_size=n, max_size=n
        )
    )
)
def test_a_cycle_is_found_where_there_is_one(after: list[tuple[int, ...]]) -> None:
    try:
        list(TopologicalSorter(dict(enumerate(after))).static_order())
    except CycleError:
        cycle = find_cycle(after)
        assert len(cycle) > 1
        assert cycle[0] == cycle[-1]
        assert all(there in after[here] for here, there in pairwise(cycle))
    else:
        assert find_cycle(after) == []
