"""The timetable against brute force: what starts now, and the earliest start of what does not."""

from __future__ import annotations

import math
from itertools import groupby

import numpy as np
import pytest
from tests.planning.place.keeping import reserve
from tests.planning.place.roomiest import on_roomiest

from headgate.base.arrays import Floats, Ints
from headgate.base.rng import Random
from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.place.cheapest import CheapestGpus
from headgate.planning.place.choose.compact import most_room_first
from headgate.planning.place.timetable import GpuCosts, Timetable, latest_holders
from headgate.planning.units.unit import Unit, waiting_units
from headgate.state import JobState, Scratch, State, TaskState, moves

_NEVER = math.inf


def _state(sizes: list[int], demands: list[tuple[int, int]], *, distinct: bool = False) -> State:
    """Return idle nodes of these many GPUs, and a waiting job per (tasks, GPUs of each): a gang."""
    state = State()
    state.set_queue(Queue(name="q"))
    for number, gpus in enumerate(sizes):
        state.add_node(Node(id=f"n{number}", rack="r", gpus=(Gpu(memory_bytes=0),) * gpus))
    for number, (count, gpus) in enumerate(demands):
        tasks = tuple(Task(demand=Demand.of(gpus=gpus)) for _ in range(count))
        job = Job(
            id=f"j{number}", name="j", user="u", queue="q", tasks=tasks, gang=True,
            distinct_nodes=distinct,
        )  # fmt: skip
        row = state.add_job(job)
        activate(state, row)
    return state


def _unit(state: State, job: int) -> Unit:
    (units,) = waiting_units(state.freeze(), job)
    (unit,) = units
    return unit


def _timetable(state: State, ends: dict[int, float]) -> Timetable:
    """Return the timetable of a state in which GPU rows are held until these times."""
    table = Timetable(Scratch(state.freeze()), lambda tasks: np.zeros(len(tasks)))
    for row, end in ends.items():
        table.free_at[row] = end
    return table


def _fits_at(
    table: Timetable, nodes: list[int], unit: Unit, gpus: int, at: float, s: float
) -> bool:
    """Return whether enough places are free from a time on for `s` seconds, by definition."""
    usable = []
    for row, node in enumerate(nodes):
        kept = table._spans.of(row)
        is_free = table.free_at[row] <= at and all(at + s <= b or e <= at for b, e in kept)
        usable += [node] if is_free else []
    places = [len(list(some)) // gpus for _, some in groupby(sorted(usable))]
    return sum(min(p, 1) if unit.distinct_nodes else p for p in places) >= len(unit.tasks)


@pytest.mark.parametrize("seed", range(60))
def test_reservations_are_at_the_earliest_time_at_which_a_unit_fits(seed: int) -> None:
    rng = Random(seed)
    sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
    demands = [(rng.randint(1, 3), rng.randint(1, 3)) for _ in range(4)]
    state = _state(sizes, demands, distinct=rng.random() < 0.3)
    nodes = [node for node, count in enumerate(sizes) for _ in range(count)]
    ends = {row: rng.choice((0.0, 0.0, 3.0, 5.0, 9.0, _NEVER)) for row in range(len(nodes))}
    table = _timetable(state, ends)
    for job, (_, gpus) in enumerate(demands):
        unit, run_s = _unit(state, job), rng.choice((1.0, 2.0, 6.0, _NEVER))
        ends = {end for row in range(len(table.reserved_from)) for _, end in table._spans.of(row)}
        times = {0.0, *table.free_at.tolist(), *ends} - {_NEVER}
        expected = min(
            (t for t in sorted(times) if _fits_at(table, nodes, unit, gpus, t, run_s)), default=None
        )
        found = reserve(on_roomiest(table), unit, run_s)
        assert (found and found.at) == expected
        if found is not None:
            assert len(set(found.gpus.tolist())) == gpus * len(unit.tasks)
            per_node = [len(list(s)) for _, s in groupby(sorted(nodes[g] for g in found.gpus))]
            assert all(count % gpus == 0 for count in per_node)
            assert not unit.distinct_nodes or max(per_node) == gpus


def test_reservation_takes_what_becomes_free_last_so_that_the_rest_stays_usable() -> None:
    state = _state([6], [(1, 4), (1, 2)])
    table = _timetable(state, dict.fromkeys(range(2, 6), 10.0))
    found = reserve(on_roomiest(table), _unit(state, 0), 100.0)
    assert found is not None
    assert found.at == 10.0
    assert found.gpus.tolist() == [2, 3, 4, 5]
    assert on_roomiest(table).start(
        _unit(state, 1), _NEVER
    )  # on what the reservation does not need


def test_unit_starts_on_reserved_gpus_only_if_it_ends_in_time() -> None:
    state = _state([4], [(1, 4), (1, 2), (1, 2)])
    table = _timetable(state, {2: 10.0, 3: 10.0})
    reserved = reserve(on_roomiest(table), _unit(state, 0), 5.0)
    assert reserved is not None
    assert reserved.at == 10.0
    assert not on_roomiest(table).start(_unit(state, 1), 11.0)
    assert on_roomiest(table).start(_unit(state, 1), 10.0)
    assert not on_roomiest(table).start(_unit(state, 2), 1.0)


def test_claimed_gpus_are_not_given_to_units() -> None:
    state = _state([4], [(1, 3), (1, 2)])
    table = _timetable(state, {})
    on_roomiest(table).claim(0, np.full(2, 7.0))
    assert not on_roomiest(table).start(_unit(state, 0), 1.0)
    assert on_roomiest(table).start(_unit(state, 1), 1.0)
    reserved = on_roomiest(table).earliest(_unit(state, 0), 1.0)
    assert reserved is not None
    assert reserved.at == 7.0


@pytest.mark.parametrize("seed", range(40))
def test_start_places_a_unit_if_and_only_if_it_fits_now(seed: int) -> None:
    rng = Random(seed)
    sizes = [rng.randint(1, 4) for _ in range(3)]
    demands = [(rng.randint(1, 3), rng.randint(1, 3)) for _ in range(5)]
    state = _state(sizes, demands, distinct=rng.random() < 0.3)
    scratch = Scratch(state.freeze())
    table = Timetable(scratch, lambda tasks: np.zeros(len(tasks)))
    for job in range(len(demands)):
        unit = _unit(state, job)
        earliest = on_roomiest(table).earliest(unit, 1.0)
        fits = earliest is not None and earliest.at == 0.0
        before = len(scratch.starts)
        assert on_roomiest(table).start(unit, 1.0) == fits
        started = scratch.starts[before:]
        assert len(started) == (len(unit.tasks) if fits else 0)
        assert not unit.distinct_nodes or len({s.node for s in started}) == len(started)


def test_members_of_unequal_demand_on_distinct_nodes_wait_for_another_node() -> None:
    state = State()
    state.set_queue(Queue(name="q"))
    for number, gpus in enumerate((3, 1)):
        state.add_node(Node(id=f"n{number}", rack="r", gpus=(Gpu(memory_bytes=0),) * gpus))
    tasks = (Task(demand=Demand(gpus=2)), Task(demand=Demand(gpus=1)))
    job = Job(id="j", name="j", user="u", queue="q", tasks=tasks, gang=True, distinct_nodes=True)
    row = state.add_job(job)
    activate(state, row)
    table = _timetable(state, {3: 5.0})
    unit = _unit(state, row)
    found = on_roomiest(table).earliest(unit, 1.0)
    assert found is not None
    assert found.at == 5.0
    for gpus in (found.gpus, CheapestGpus(table).of_unit(unit, _costs(table))):
        assert gpus is not None
        assert max(gpus.tolist()) == 3
        assert len(gpus) == 3


def _costs(table: Timetable) -> GpuCosts:
    """Return the times at which GPUs become free as costs; what else tasks hold is out of reach."""
    return GpuCosts(table.free_at, lambda tasks: np.full(len(tasks), math.inf))


@pytest.mark.parametrize("seed", range(40))
def test_cheapest_gpus_are_free_first_where_costs_are_times(seed: int) -> None:
    rng = Random(seed)
    sizes = [rng.randint(1, 4) for _ in range(3)]
    state = _state(sizes, [(rng.randint(1, 3), rng.randint(1, 3))], distinct=rng.random() < 0.3)
    ends = {row: rng.choice((0.0, 3.0, 5.0, 9.0, _NEVER)) for row in range(sum(sizes))}
    table, unit = _timetable(state, ends), _unit(state, 0)
    earliest = on_roomiest(table).earliest(unit, 1.0)
    cheapest = CheapestGpus(table).of_unit(unit, _costs(table))
    assert (earliest is None) == (cheapest is None)
    if earliest is not None and cheapest is not None:
        assert table.free_at[cheapest].sum() <= table.free_at[earliest.gpus].sum()
        assert table.free_at[cheapest].max(initial=0.0) == earliest.at


def _cheapest(
    table: Timetable, nodes: list[int], memory: list[int], unit: Unit, spec: Task, cpus: list[int]
) -> list[int] | None:
    """Return the cheapest GPUs of a unit of equal tasks, by going through all places."""
    places: list[tuple[float, int, list[int]]] = []
    for node in sorted(set(nodes)):
        fitting = [
            row for row in range(len(nodes))
            if nodes[row] == node and memory[row] >= spec.demand.gpu_memory_bytes
        ]  # fmt: skip
        fitting.sort(key=lambda row: (table.free_at[row], row))
        count = len(fitting) // spec.demand.gpus
        for n in range(min(count, 1 if unit.distinct_nodes else count)):
            some = fitting[n * spec.demand.gpus : (n + 1) * spec.demand.gpus]
            room = cpus[node] // (spec.demand.cpus_milli // 1000 or 1)
            late = _NEVER if n >= room else 0.0  # no run frees CPUs
            places.append((max(late, *(table.free_at[row] for row in some)), node, some))
    first = sorted(sorted(places, key=lambda p: p[0])[: len(unit.tasks)], key=lambda p: p[1])
    if len(first) < len(unit.tasks) or max(p[0] for p in first) == _NEVER:
        return None
    return [row for p in first for row in p[2]]


@pytest.mark.parametrize("seed", range(60))
def test_cheapest_gpus_stay_exact_while_costs_change(seed: int) -> None:
    rng, state = Random(seed), State()
    state.set_queue(Queue(name="q"))
    equal = rng.randint(1, 4) if rng.random() < 0.5 else 0
    cpus = [rng.randint(1, 8) for _ in range(3)]
    for number in range(3):
        gpus = tuple(
            Gpu(memory_bytes=rng.choice((1, 2))) for _ in range(equal or rng.randint(1, 4))
        )
        state.add_node(Node(id=f"n{number}", rack="r", gpus=gpus, cpus=cpus[number]))
    specs = []
    for number in range(4):
        spec = Task(
            demand=Demand.of(
                gpus=rng.randint(1, 3), gpu_memory_bytes=rng.choice((0, 2)), cpus=rng.randint(1, 2)
            )
        )
        specs.append(spec)
        job = Job(
            id=f"j{number}", name="j", user="u", queue="q", gang=True,
            tasks=(spec,) * rng.randint(2, 4), distinct_nodes=rng.random() < 0.3,
        )  # fmt: skip
        row = state.add_job(job)
        activate(state, row)
    nodes, memory = state.gpus.node.array().tolist(), state.gpus.memory_bytes.array().tolist()
    times = (0.0, 3.0, 5.0, 5.0, 9.0, _NEVER)
    table = _timetable(state, {row: rng.choice(times) for row in range(len(nodes))})
    cheapest = CheapestGpus(table)
    for _ in range(6):
        for number, spec in enumerate(specs):
            unit = _unit(state, number)
            found = cheapest.of_unit(unit, _costs(table))
            expected = _cheapest(table, nodes, memory, unit, spec, cpus)
            assert (None if found is None else found.tolist()) == expected
        table.hold(np.array([rng.randint(0, len(nodes) - 1)]), rng.choice(times))


def _compact_one_by_one(room: list[int], count: int) -> list[int]:
    nodes: list[int] = []
    room = room.copy()
    while len(nodes) < count and max(room, default=0):
        missing = count - len(nodes)
        enough = [n for n, places in enumerate(room) if places >= missing]
        node = min(enough, key=lambda n: room[n]) if enough else room.index(max(room))
        nodes += [node] * min(missing, room[node])
        room[node] = 0
    return nodes


@pytest.mark.parametrize("seed", range(100))
def test_tasks_go_to_the_roomiest_nodes_and_the_last_ones_where_they_just_fit(seed: int) -> None:
    rng = Random(seed)
    room = [rng.randint(0, 6) for _ in range(rng.randint(1, 8))]
    count = rng.randint(1, 15)
    assert most_room_first(np.array(room), count) == _compact_one_by_one(room, count)


def test_unequal_members_on_distinct_nodes_are_reserved_on_a_node_each() -> None:
    state = _state([1, 1, 2], [(2, 1)])
    tasks = (Task(demand=Demand(gpus=2)), Task(demand=Demand(gpus=1)))
    job = Job(
        id="gang", name="gang", user="u", queue="q", tasks=tasks, gang=True, distinct_nodes=True
    )
    row = state.add_job(job)
    activate(state, row)
    table = _timetable(state, {0: 3.0, 1: 9.0, 2: 5.0})
    found = on_roomiest(table).earliest(_unit(state, 1), 1.0)
    assert found is not None
    assert (found.at, sorted(found.gpus.tolist())) == (5.0, [0, 2, 3])


def test_gpu_claimed_for_after_its_reservation_stays_kept_until_then() -> None:
    state = _state([4], [(1, 3)])
    table = _timetable(state, {2: 10.0})
    reserved = reserve(on_roomiest(table), _unit(state, 0), 5.0)
    assert reserved is not None
    on_roomiest(table).claim(0, np.array([1.0, 1.0]))
    open_gpu = {0, 1, 2, 3} - set(reserved.gpus.tolist())
    assert np.flatnonzero(~table.is_kept(np.arange(4))).tolist() == sorted(open_gpu)
    assert not table.has_open(), "the one that is not reserved is claimed from now on"


def _at_100(tasks: Ints) -> Floats:
    return np.full(len(tasks), 100.0)


@pytest.mark.parametrize("milli", [1000, 500])
def test_target_of_a_move_is_held_by_its_next_run_and_the_place_left_is_free_soon(
    milli: int,
) -> None:
    state = _state([2], [])
    task = Task(demand=Demand(gpus=1, gpu_milli=milli))
    state.add_job(Job(id="m", name="m", user="u", queue="q", tasks=(task,)))
    state.move_job(0, JobState.ACTIVE)
    state.move_task(0, TaskState.WAITING)
    state.launch(0, 0, (0,), attempt=1)
    moves.hold_target(state, 0, 0, (1,))
    state.move_task(0, TaskState.STOPPING)
    free_at = latest_holders(state.freeze(), _at_100, free=0.0, left=0.001)
    assert free_at.tolist() == [pytest.approx(0, abs=0.01), 100.0]
    moves.vacate(state, 0)
    free_at = latest_holders(state.freeze(), _at_100, free=0.0, left=0.001)
    assert free_at.tolist() == [0.0, 100.0]
