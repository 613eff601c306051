"""Demands and gangs reported as infeasible do not fit, by exhaustive placement."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, pairwise, takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model import Demand, Gpu, Node, Task
from headgate.planning.units.fit import (
    demand_text,
    infeasible_demand,
    infeasible_gang,
    members_that_fit,
    runs_that_fit,
)
from headgate.spec.scenario_jobs import find_cycle
from headgate.state import State
from headgate.state.ledger import Ledger

KIND = "fpga"
SIZES = (20, 40, 60)  # bytes of which a quarter is whole


def node_of(sizes: list[int], cpus: int, memory_bytes: int | None, fpga: int) -> Node:
    return Node(
        id="n",
        rack="r",
        gpus=tuple(Gpu(memory_bytes=size) for size in sizes),
        cpus=cpus,
        memory_bytes=memory_bytes,
        custom=((KIND, fpga),) if fpga else (),
    )


NODES = st.lists(
    st.builds(
        node_of,
        st.lists(st.sampled_from(SIZES), max_size=3),
        st.integers(0, 3),
        st.none() | st.integers(0, 3),
        st.sampled_from((0, 0, 500, 2000)),
    ),
    min_size=1,
    max_size=3,
)
AMOUNTS = {
    "memory_bytes": st.sampled_from((0, 0, 0, 1, 2)),
    "custom": st.sampled_from(((), (), (), ((KIND, 500),), ((KIND, 1500),))),
}
WHOLE_GPUS = st.builds(
    Demand.of,
    gpus=st.integers(1, 3),
    gpu_memory_bytes=st.sampled_from((0, *SIZES)),
    cpus=st.sampled_from((None, None, 0.5, 1.0)),
    **AMOUNTS,
)
SHARE = st.builds(
    Demand.of,
    gpu_milli=st.sampled_from((250, 500, 750)),
    gpu_memory_bytes=st.sampled_from((0, 0, 5, 10, 30)),
    cpus=st.sampled_from((None, None, 0.5)),
    **AMOUNTS,
)
MEMORY_ALONE = st.builds(
    Demand.of, gpu_milli=st.just(0), gpu_memory_bytes=st.sampled_from((5, 10, 30)), **AMOUNTS
)
NO_GPU = st.builds(
    Demand.of, gpus=st.just(0), cpus=st.sampled_from((None, 0.25, 1.0, 2.5)), **AMOUNTS
)
NEED = st.builds(Task, demand=st.one_of(WHOLE_GPUS, SHARE, MEMORY_ALONE, NO_GPU))

Left = tuple[int, int, int]  # of a GPU: bytes in all, free thousandths, free bytes
Free = tuple[tuple[Left, ...], tuple[tuple[str, float], ...]]  # of a node: GPUs, other amounts
Room = tuple[Free, ...]


def room_of(nodes: list[Node]) -> Room:
    return tuple(
        (
            tuple(sorted((g.memory_bytes, 1000, g.memory_bytes) for g in n.gpus)),
            (
                ("cpus", 1000 * n.cpus),
                ("memory", math.inf if n.memory_bytes is None else n.memory_bytes),
                (KIND, dict(n.custom).get(KIND, 0)),
            ),
        )
        for n in nodes
    )


def held_of(task: Task, gpu: Left) -> Left | None:
    """Return the rest of a GPU once a task also holds part of it; None if it does not fit."""
    (size, milli, free_bytes), demand = gpu, task.demand
    if demand.gpu_milli == 1000:
        whole = milli == 1000 and free_bytes == size and size >= demand.gpu_memory_bytes
        return (size, 0, 0) if whole else None
    part = demand.gpu_memory_bytes or size * demand.gpu_milli // 1000
    if milli < demand.gpu_milli or free_bytes < part:
        return None
    return size, milli - demand.gpu_milli, free_bytes - part


def ways(task: Task, free: Free) -> set[Free]:
    """Return the rest of a node for every placement of a task."""
    (gpus, amounts), demand = free, task.demand
    needs = {"cpus": demand.cpus_milli, "memory": demand.memory_bytes, KIND: 0}
    needs |= dict(demand.custom)
    if any(amount < needs[name] for name, amount in amounts):
        return set()
    left = tuple((name, amount - needs[name]) for name, amount in amounts)
    found = set()
    for chosen in combinations(range(len(gpus)), demand.gpus):
        after = [held_of(task, gpu) if i in chosen else gpu for i, gpu in enumerate(gpus)]
        if None not in after:
            found.add((tuple(sorted(gpu for gpu in after if gpu)), left))
    return found


@lru_cache(maxsize=100_000)
def fits(tasks: tuple[Task, ...], room: Room) -> bool:
    """Try every placement of the first task, and the other tasks in the rest."""
    if not tasks:
        return True
    return any(
        fits(tasks[1:], tuple(sorted((*room[:number], left, *room[number + 1 :]))))
        for number, free in enumerate(room)
        for left in ways(tasks[0], free)
    )


@settings(max_examples=400)
@given(NEED, NODES)
def test_one_task_is_infeasible_exactly_when_no_node_fits_it(task: Task, nodes: list[Node]) -> None:
    fitting = [fits((task,), room_of([node])) for node in nodes]
    assert [runs_that_fit(node, task.demand) > 0 for node in nodes] == fitting
    assert bool(infeasible_demand(task.demand, nodes)) == (not any(fitting))


@settings(max_examples=400)
@given(st.lists(NEED, min_size=1, max_size=4), NODES)
def test_a_gang_that_can_start_is_never_rejected(tasks: list[Task], nodes: list[Node]) -> None:
    if fits(tuple(tasks), room_of(nodes)):
        assert infeasible_gang(tasks, nodes) == ""


@settings(max_examples=400)
@given(NEED, st.integers(1, 5), NODES)
def test_a_gang_of_equal_tasks_is_rejected_exactly(
    need: Task, count: int, nodes: list[Node]
) -> None:
    can_start = fits((need,) * count, room_of(nodes))
    assert bool(infeasible_gang([need] * count, nodes)) == (not can_start)
    apart = sum(fits((need,), room_of([node])) for node in nodes) >= count
    assert bool(infeasible_gang([need] * count, nodes, distinct_nodes=True)) == (not apart)


@pytest.mark.parametrize(
    ("large", "small"),
    [
        (Task(demand=Demand(gpus=2)), Task()),
        (Task(demand=Demand(gpus=1, cpus_milli=2000)), Task()),
        (Task(demand=Demand(gpus=1, memory_bytes=2)), Task()),
        (Task(demand=Demand(gpus=1, custom=((KIND, 2000),))), Task()),
        (Task(demand=Demand(gpus=1, gpu_memory_bytes=60)), Task()),
        (Task(demand=Demand(gpus=1, gpu_milli=750)), Task(demand=Demand(gpus=1, gpu_milli=250))),
        (
            Task(demand=Demand(gpus=1, gpu_milli=250, gpu_memory_bytes=60)),
            Task(demand=Demand(gpus=1, gpu_milli=250)),
        ),
        (Task(demand=Demand(cpus_milli=2000)), Task(demand=Demand(cpus_milli=500))),
    ],
)
def test_a_gang_is_not_counted_by_its_largest_task(large: Task, small: Task) -> None:
    """The node holds one large task alone, and two small ones beside it."""
    node = node_of([60, 40, 40, 40], 3, 3, 2000)
    if large.demand.gpu_milli < 1000:
        node = replace(node, gpus=node.gpus[:2])
    assert runs_that_fit(node, large.demand) <= 2
    gang = [large, *[small] * (runs_that_fit(node, large.demand) or 1)]
    assert fits(tuple(gang), room_of([node]))
    assert infeasible_gang(gang, [node]) == ""


@given(NEED, NODES)
def test_an_idle_node_holds_as_many_equal_tasks_as_fit_one_after_the_other(
    need: Task, nodes: list[Node]
) -> None:
    for node in nodes:
        held = runs_that_fit(node, need.demand)
        for count in range(min(held, 5) + 1):
            assert fits((need,) * count, room_of([node]))
        if held < 5:
            assert not fits((need,) * (held + 1), room_of([node]))


@given(st.lists(NEED, min_size=1, max_size=4), NODES)
def test_a_gang_that_first_fit_places_can_start(tasks: list[Task], nodes: list[Node]) -> None:
    nodes = [replace(node, id=f"n{number}") for number, node in enumerate(nodes)]
    if members_that_fit(tasks, nodes) == len(tasks):
        assert fits(tuple(tasks), room_of(nodes))
        assert infeasible_gang(tasks, nodes) == ""


@given(st.lists(NEED, min_size=1, max_size=4), NODES, st.booleans())
def test_members_that_fit_are_those_that_first_fit_places_until_one_does_not(
    tasks: list[Task], nodes: list[Node], apart: bool
) -> None:
    nodes = [replace(node, id=f"n{number}") for number, node in enumerate(nodes)]
    state = State()
    rows = [state.add_node(node) for node in nodes]

    def placed(number: int, task: Task) -> bool:
        demand = state.names.demand(task.demand)
        for row in rows:
            gpus = state.ledger.best_gpus(demand, row)
            if gpus is not None:
                state.ledger.take(number, demand, row, gpus)
                if apart:
                    rows.remove(row)
                return True
        return False

    fitting = sum(1 for _ in takewhile(lambda task: placed(*task), enumerate(tasks)))
    assert members_that_fit(tasks, nodes, distinct_nodes=apart) == fitting


def test_members_that_fit_tries_full_nodes_once_per_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    best_gpus = Ledger.best_gpus

    def counted(ledger: Ledger, demand: int, node: int) -> object:
        tried.append(node)
        return best_gpus(ledger, demand, node)

    monkeypatch.setattr(Ledger, "best_gpus", counted)
    nodes = [Node(id=f"n{n}", rack="r", gpus=(Gpu(memory_bytes=1),)) for n in range(100)]
    assert members_that_fit([Task()] * 101, nodes) == 100
    assert len(tried) <= 3 * 100


@pytest.mark.parametrize("milli", [100, 125, 200, 250, 333, 500])
def test_equal_shares_of_a_gpu_fill_it_whatever_its_memory(milli: int) -> None:
    """Shares that add up to at most one GPU fit it together, though its bytes do not divide."""
    node = node_of([(24 << 30) + 1], 0, None, 0)
    assert runs_that_fit(node, Demand(gpus=1, gpu_milli=milli)) == 1000 // milli


@pytest.mark.parametrize(
    ("demand", "words"),
    [
        (Demand(), "nothing"),
        (Demand(cpus_milli=1000), "a CPU"),
        (Demand(cpus_milli=2500), "2.5 CPUs"),
        (Demand(gpus=1), "a GPU"),
        (Demand(gpus=2, gpu_memory_bytes=5 << 30), "2 GPUs with 5 GiB"),
        (Demand(gpus=1, gpu_milli=250), "0.25 of a GPU"),
        (
            Demand(gpus=1, gpu_milli=250, gpu_memory_bytes=2 << 30),
            "0.25 of a GPU with 2 GiB of its memory",
        ),
        (Demand(gpus=1, gpu_milli=0, gpu_memory_bytes=2 << 30), "2 GiB of a GPU's memory"),
        (
            Demand(gpus=1, cpus_milli=4000, memory_bytes=1 << 30, custom=((KIND, 500),)),
            "a GPU, 4 CPUs, 1 GiB of memory and 0.5 of 'fpga'",
        ),
    ],
)
def test_a_demand_in_words(demand: Demand, words: str) -> None:
    assert demand_text(demand) == words


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


def test_run_on_parts_of_several_gpus_needs_as_many_gpus() -> None:
    gpu, demand = Gpu(memory_bytes=10), Task(demand=Demand(gpus=2, gpu_milli=200)).demand
    held = [
        runs_that_fit(Node(id="n", rack="r", gpus=(gpu,) * count, cpus=1), demand)
        for count in range(5)
    ]
    assert held == [0, 0, 5, 7, 10]
