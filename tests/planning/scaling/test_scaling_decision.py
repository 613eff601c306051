"""The scaling decision: which nodes are ordered for what waits, and which idle ones go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model import Demand, Gpu
from headgate.model.scaling import Scaling, Shape
from headgate.planning.scaling.decision import Member, Pending, Wanted, holds, nearest_shape, wanted
from headgate.planning.units.fit import runs_that_fit

MB = 10**6
POD1 = Shape(name="pod1", cpus=1, memory_bytes=512 * MB)
POD2 = Shape(name="pod2", cpus=2, memory_bytes=512 * MB)
POD3 = Shape(name="pod3", cpus=2, memory_bytes=1024 * MB)
CATALOGUE = Scaling(shapes=(POD1, POD2, POD3), utilisation=1.0)


def task(cpus: int = 1, memory: int = 512 * MB, gpus: int = 0, gpu_memory: int = 0) -> Demand:
    return Demand(
        cpus_milli=1000 * cpus, memory_bytes=memory, gpus=gpus, gpu_memory_bytes=gpu_memory
    )


def pods(count: int, **fields: object) -> list[Member]:
    """Return that many nodes of the first shape, which were not ordered; in use by default."""
    return [Member(node=POD1.node(f"n{n}", "r"), **fields) for n in range(count)]  # type: ignore[arg-type]


def decide(
    parked: list[Pending],
    nodes: list[Member],
    *,
    scaling: Scaling = CATALOGUE,
    waiting: tuple[Pending, ...] = (),
    ordered: tuple[str, ...] = (),
    now: float = 0.0,
) -> Wanted:
    return wanted(
        scaling, now=now, parked=parked, waiting=waiting, nodes=nodes, ordered=list(ordered)
    )


def test_two_tasks_of_two_cpus_get_a_node_each_and_the_third_a_larger_one() -> None:
    """Spillover paper, section 6: two pods for Task2 and one for Task3; Task1 has nodes."""
    parked = [Pending(demands=(task(2),), count=2), Pending(demands=(task(2, 1024 * MB),))]
    assert sorted(decide(parked, pods(4)).orders) == ["pod2", "pod2", "pod3"]


def test_nodes_on_their_way_are_not_ordered_again() -> None:
    parked = [Pending(demands=(task(2),), count=2), Pending(demands=(task(2, 1024 * MB),))]
    assert decide(parked, pods(4), ordered=("pod2", "pod3")).orders == ("pod2",)
    assert decide(parked, pods(4), ordered=("pod2", "pod2", "pod3")).orders == ()


def test_several_parked_tasks_share_a_new_node() -> None:
    large = Shape(name="large", gpus=(Gpu(memory_bytes=80),) * 4, cpus=8)
    scaling = Scaling(shapes=(POD1, large), utilisation=1.0)
    parked = [
        Pending(demands=(task(1, 0, gpus=1, gpu_memory=80),), count=3),
        Pending(demands=(task(5, 0, gpus=1, gpu_memory=40),)),
    ]
    assert decide(parked, pods(1), scaling=scaling).orders == ("large",)


def test_smallest_shape_is_the_cheapest() -> None:
    dear, cheap = replace(POD3, name="dear", cost_per_h=2.0), replace(POD3, cost_per_h=1.0)
    scaling = Scaling(shapes=(dear, cheap), utilisation=1.0)
    assert decide([Pending(demands=(task(2, 1024 * MB),))], [], scaling=scaling).orders == ("pod3",)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"max_nodes": 5}, "max_nodes is 5"),
        ({"max_cost_per_h": 1.5}, "max_cost_per_h is 1.5"),
        ({}, "max of shape pod2 is 1"),
    ],
)
def test_ceiling_leaves_a_task_without_a_node_and_says_which(
    limits: dict[str, float], why: str
) -> None:
    pod2 = replace(POD2, cost_per_h=1.0, most=None if limits else 1)
    scaling = Scaling(shapes=(pod2,), utilisation=1.0, **limits)  # type: ignore[arg-type]
    found = decide([Pending(demands=(task(2),), count=2)], pods(4), scaling=scaling)
    assert (found.orders, found.unmet) == (("pod2",), {0: why})


def test_gang_that_cannot_be_completed_orders_nothing() -> None:
    scaling = replace(CATALOGUE, max_nodes=5)
    gang = Pending(demands=(task(2), task(2)), distinct_nodes=True)
    found = decide([gang], pods(4), scaling=scaling)
    assert (found.orders, found.unmet) == ((), {0: "max_nodes is 5"})


def test_demand_that_no_shape_holds_names_the_nearest() -> None:
    found = decide([Pending(demands=(task(4, 512 * MB),))], pods(1))
    assert found.orders == ()
    assert "no shape has 4 CPUs" in found.unmet[0]
    assert "the nearest is pod2" in found.unmet[0]
    assert nearest_shape(CATALOGUE, task(1, 900 * MB)) == POD3


def test_horizontal_scaling_takes_the_greater_of_utilisation_and_demand() -> None:
    """Spillover paper, section 5: N1 = ceil(4 / 0.8) = 5; N2 by capacity: 4 + 3 CPUs of 1 each."""
    held = pods(4, held=(task(1),))
    at_80 = replace(CATALOGUE, utilisation=0.8)
    assert decide([], held, scaling=at_80).orders == ("pod1",)
    waiting = (Pending(demands=(task(1),), count=3),)
    assert decide([], held, waiting=waiting, scaling=at_80).orders == ("pod1",) * 3


def test_floor_is_ordered() -> None:
    assert decide([], [], scaling=replace(CATALOGUE, floor=2)).orders == ("pod1", "pod1")


def test_idle_ordered_node_goes_after_its_timeout_and_never_below_the_floor() -> None:
    idle = [Member(node=POD2.node(f"o{n}", "r"), shape="pod2", idle_since=5.0) for n in range(3)]
    nodes = pods(1) + idle
    scaling = replace(CATALOGUE, idle_after_s=30.0, floor=2)
    before = decide([], nodes, scaling=scaling, now=34.0)
    assert (before.drains, before.again_at) == ((), 35.0)
    assert decide([], nodes, scaling=scaling, now=35.0).drains == ("o0", "o1")


def test_node_that_was_not_ordered_or_is_in_use_is_never_drained() -> None:
    nodes = [*pods(2, idle_since=0.0), Member(node=POD2.node("o", "r"), shape="pod2")]
    assert decide([], nodes, now=1e6) == Wanted()


def test_idle_node_stays_while_what_waits_could_use_it() -> None:
    """Such as a task that a reservation of another keeps from starting."""
    idle = Member(node=POD2.node("o", "r"), shape="pod2", idle_since=0.0)
    waiting = (Pending(demands=(task(2),)),)
    assert decide([], [*pods(1), idle], waiting=waiting, now=1e6).drains == ()


SHAPES = st.lists(
    st.builds(
        Shape,
        name=st.sampled_from("abcdef"),
        cpus=st.integers(1, 4),
        memory_bytes=st.sampled_from([100, 200, None]),
        gpus=st.integers(0, 2).map(lambda n: (Gpu(memory_bytes=10),) * n),
        cost_per_h=st.sampled_from([0.0, 1.0, 2.5]),
        most=st.sampled_from([None, 1, 3]),
    ),
    min_size=1, max_size=4, unique_by=lambda shape: shape.name,
)  # fmt: skip
DEMANDS = st.builds(
    Demand,
    cpus_milli=st.sampled_from([0, 500, 1000, 2000, 3000]),
    memory_bytes=st.sampled_from([0, 50, 150]),
    gpus=st.integers(0, 2),
)
UNITS = st.builds(
    Pending,
    demands=st.lists(DEMANDS, min_size=1, max_size=3).map(tuple),
    count=st.integers(1, 3),
    distinct_nodes=st.booleans(),
)


@settings(max_examples=150)
@given(
    shapes=SHAPES, parked=st.lists(UNITS, max_size=4), max_nodes=st.sampled_from([None, 1, 4]),
    ceiling=st.sampled_from([None, 0.0, 5.0]),
)  # fmt: skip
def test_orders_hold_all_parked_units_within_the_ceilings_and_are_made_once(
    shapes: list[Shape], parked: list[Pending], max_nodes: int | None, ceiling: float | None
) -> None:
    scaling = Scaling(
        shapes=tuple(shapes), max_nodes=max_nodes, max_cost_per_h=ceiling, utilisation=1.0
    )
    found = decide(parked, [], scaling=scaling)
    named = {shape.name: shape for shape in shapes}
    assert max_nodes is None or len(found.orders) <= max_nodes
    cost = sum(named[name].cost_per_h for name in found.orders)
    assert ceiling is None or cost <= ceiling + 1e-6
    for shape in shapes:
        assert shape.most is None or found.orders.count(shape.name) <= shape.most
    limited = max_nodes is not None or ceiling is not None or any(s.most for s in shapes)
    for number, unit in enumerate(parked):
        possible = all(any(holds(shape, demand) for shape in shapes) for demand in unit.demands)
        if not possible:
            assert number in found.unmet
        elif not limited:
            assert number not in found.unmet
            for demand in unit.demands:
                assert any(runs_that_fit(named[n].node("", ""), demand) for n in found.orders)
    if not found.unmet:
        assert decide(parked, [], scaling=scaling, ordered=found.orders).orders == ()
        # no node without a task: as many nodes as tasks at most
        assert len(found.orders) <= sum(unit.count * len(unit.demands) for unit in parked)


@settings(max_examples=150)
@given(
    shapes=SHAPES,
    waiting=st.lists(UNITS, max_size=2),
    idle=st.lists(st.integers(0, 3), max_size=5),
    busy=st.integers(0, 3),
    floor=st.integers(0, 3),
    utilisation=st.sampled_from([0.5, 0.8, 1.0]),
)
def test_drained_nodes_are_not_ordered_again(
    shapes: list[Shape],
    waiting: list[Pending],
    idle: list[int],
    busy: int,
    floor: int,
    utilisation: float,
) -> None:
    scaling = Scaling(shapes=tuple(shapes), floor=floor, utilisation=utilisation, idle_after_s=10.0)
    nodes = []
    for number, which in enumerate(idle):
        shape = shapes[which % len(shapes)]
        node = shape.node(f"i{number}", "r")
        nodes.append(Member(node=node, shape=shape.name, idle_since=0.0))
    nodes += [Member(node=shapes[0].node(f"b{n}", "r")) for n in range(busy)]
    waits = tuple(waiting)
    found = decide([], nodes, scaling=scaling, waiting=waits, now=100.0)
    left = [member for member in nodes if member.node.id not in found.drains]
    assert len(left) >= min(floor, len(nodes))
    if found.drains:
        assert decide([], left, scaling=scaling, waiting=waits, now=100.0).orders == ()
