"""Parts of GPUs over time, against brute force over every instant and every assignment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tests.planning.place.held_parts import Held
from tests.planning.place.keeping import reserve
from tests.planning.place.placers import PLACERS, SETTINGS
from tests.planning.place.small_cluster import (
    GIB,
    NEVER,
    RUN_S,
    Cluster,
    earliest,
    reserve_earliest,
    unit_of,
)

from headgate.base.rng import Random
from headgate.model import Demand
from headgate.planning.place.choose.packed import Packed
from headgate.planning.place.placing import Placing
from headgate.planning.place.timetable import GpuCosts, Timetable
from headgate.planning.times.reservations import Reservation
from headgate.state import Scratch

ALL_BYTES = 8 * GIB

Place = Callable[[Cluster, Scratch], Placing]
"""Returns what places units."""


def _packed(cluster: Cluster, scratch: Scratch) -> Placing:
    table = Timetable(scratch, cluster.end_at)
    return Placing(table, Packed(table))


WAYS: dict[str, Place] = {
    "packed": _packed,
    **{
        ", ".join(setting.values()): partial(Cluster.placing, placer=placer)
        for setting, placer in zip(SETTINGS, PLACERS, strict=True)
    },
}


def _demand(rng: Random) -> Demand:
    """Return what a task on whole GPUs, or on parts of one or two, holds; some no share of them."""
    memory_bytes = rng.choice((0, 0, 1, 3)) * GIB
    if rng.random() < 0.3:
        return Demand.of(gpus=rng.randint(1, 2), memory_bytes=memory_bytes)
    milli = rng.choice((0, 200, 250, 400, 500, 700))
    return Demand.of(
        gpus=2 if rng.random() < 0.2 else 1,
        gpu_milli=milli,
        gpu_memory_bytes=rng.choice((0, 1, 2, 5) if milli else (1, 2)) * GIB,
        memory_bytes=memory_bytes,
    )


def _cluster(rng: Random) -> Cluster:
    cluster = Cluster(rng, lambda: rng.choice((ALL_BYTES, ALL_BYTES, ALL_BYTES // 2)))
    cluster.run_some(rng, rng.randint(0, 10), partial(_demand, rng))
    return cluster


@pytest.mark.parametrize("seed", range(400))
def test_reservations_of_equal_tasks_are_at_the_earliest_time_at_which_they_fit(seed: int) -> None:
    rng = Random(seed)
    cluster = _cluster(rng)
    waiting = []
    for _ in range(5):
        count = rng.randint(1, 4)
        distinct = count > 1 and rng.random() < 0.3
        waiting.append(cluster.add(*[_demand(rng)] * count, distinct=distinct))
    snapshot = cluster.state.freeze()
    held, units = Held(cluster.ends, snapshot), cluster.placing(Scratch(snapshot))
    reserve_earliest(rng, held, units, snapshot, waiting)


def _serve(
    rng: Random, cluster: Cluster, waiting: list[int], place: Place = Cluster.placing
) -> tuple[int, int, int]:
    """Start or reserve units in order; return how many are reserved, missed a start, or are late.

    Nothing that starts delays a reservation, and no reservation another one.
    """
    snapshot, reserved, missed, late = cluster.state.freeze(), 0, 0, 0
    held, scratch = Held(cluster.ends, snapshot), Scratch(snapshot)
    units = place(cluster, scratch)
    for job in waiting:
        unit, run_s, before = unit_of(snapshot, job), rng.choice(RUN_S), len(scratch.starts)
        expected = earliest(held, unit, run_s)
        if units.start(unit, run_s):
            first = snapshot.nodes.first_gpu
            for task, node, gpus in scratch.starts[before:]:
                rows = [first[node] + gpu for gpu in gpus]
                held.take(snapshot.demand(task), rows, node, 0.0, run_s)
        else:
            missed += expected == 0.0
            found = reserve(units, unit, run_s)
            if expected is not None:
                reserved += 1
                late += found is None or found.at > expected
            if found is not None:
                assert expected is not None
                assert found.at >= expected
                assert sum(number for _, _, number in found.tasks) == len(unit.tasks)
                held.keep(found, run_s)
        held.check()
    return reserved, missed, late


@pytest.mark.parametrize("seed", range(300))
def test_equal_tasks_start_if_they_fit_and_delay_no_reservation(seed: int) -> None:
    rng = Random(seed)
    cluster, waiting = _cluster(rng), []
    for _ in range(8):
        count = rng.randint(1, 3)
        distinct = count > 1 and rng.random() < 0.3
        waiting.append(cluster.add(*[_demand(rng)] * count, distinct=distinct))
    _, missed, late = _serve(rng, cluster, waiting)
    assert (missed, late) == (0, 0)


def _serve_mixed(seed: int, place: Place = Cluster.placing) -> tuple[int, int, int]:
    rng = Random(seed)
    cluster, waiting = _cluster(rng), []
    for _ in range(8):
        demands = [_demand(rng) for _ in range(rng.randint(1, 4))]
        waiting.append(cluster.add(*demands, distinct=len(demands) > 1 and rng.random() < 0.3))
    return _serve(rng, cluster, waiting, place)


@pytest.mark.parametrize("seed", [*range(300), 3117, 3566, 4349])
def test_gangs_of_several_demands_delay_no_reservation(seed: int) -> None:
    _serve_mixed(seed)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(15))
def test_no_placer_delays_a_reservation(way: str, seed: int) -> None:
    _serve_mixed(seed, WAYS[way])


def test_few_gangs_of_several_demands_are_reserved_later_than_they_might_start() -> None:
    """Their demands are placed in turn, those with most GPUs first; no other way is tried."""
    reserved, missed, late = np.sum([_serve_mixed(seed) for seed in range(100)], axis=0).tolist()
    assert missed <= 0.01 * reserved
    assert late <= 0.08 * reserved


@pytest.mark.parametrize("way", ["default", *WAYS])
@pytest.mark.parametrize("seed", range(25))
def test_cheapest_gpus_of_equal_tasks_cost_what_trying_finds(way: str, seed: int) -> None:
    """Those of a gang share GPUs; what else is held does not count. Sets cost as much or more."""
    rng = Random(seed)
    cluster = Cluster(rng, lambda: rng.choice((ALL_BYTES, ALL_BYTES // 2)))
    count = rng.randint(1, 6)
    demand = replace(_demand(rng), memory_bytes=0)
    row = cluster.add(*[demand] * count, distinct=count > 1 and rng.random() < 0.3)
    snapshot = cluster.state.freeze()
    cost = np.array([rng.choice((0.0, 1.0, 3.0, 7.0)) for _ in snapshot.gpus.node.array()])
    unit, least = unit_of(snapshot, row), None
    for most in sorted(set(cost.tolist()), reverse=True):
        held = Held({}, snapshot)
        for gpu in np.flatnonzero(cost > most).tolist():
            held.take(Demand(gpus=1), [gpu], snapshot.gpus.node[gpu], 0.0, NEVER)
        least = most if held.fits(unit, 0.0, 1.0) else least
    placing = WAYS.get(way, Cluster.placing)(cluster, Scratch(snapshot))
    found = placing.cheapest_places(unit, GpuCosts(cost, cluster.end_at))
    if found is None:
        assert least is None or way not in ("default", "packed")
        return
    assert least is not None
    dearest = cost[found.gpus].max()
    assert dearest >= least
    assert dearest == least or way not in ("default", "packed")
    held = Held({}, snapshot)
    held.keep(Reservation(unit=unit, at=0.0, gpus=found.gpus, tasks=found.tasks), 1.0)
    held.check()
    assert sum(number for _, _, number in found.tasks) == count
