"""Why units wait, against placement by trial: what fits, for how long, and what is in the way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from tests.planning.place.keeping import reserve
from tests.planning.place.roomiest import on_roomiest

from headgate.base.rng import Random, stream
from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.place.timetable import Timetable
from headgate.planning.place.why import WhyWaits, being_stopped
from headgate.planning.times.reservations import Reservation
from headgate.planning.units.unit import Unit, waiting_units
from headgate.protocol.reasons import (
    GPU_MEMORY,
    GPU_SHARE,
    BackfillTooLong,
    Fragmented,
    GangShort,
    GpuMemory,
    NoFittingNode,
    NoFreeGpu,
    NothingFits,
    QueueLimit,
    Shortage,
)
from headgate.state import Scratch, State, TaskState, moves
from headgate.testing.random_worlds import random_state

_NEVER = math.inf


def _node(name: str, *memory: int, cpus: int = 64, memory_bytes: int | None = None) -> Node:
    gpus = tuple(Gpu(memory_bytes=size) for size in memory)
    return Node(id=name, rack="r", gpus=gpus, cpus=cpus, memory_bytes=memory_bytes)


def _job(name: str, *tasks: Task, queue: str = "q", distinct: bool = False) -> Job:
    return Job(
        id=name, name=name, user="u", queue=queue, tasks=tasks, gang=len(tasks) > 1,
        distinct_nodes=distinct,
    )  # fmt: skip


def _state(nodes: Sequence[Node], jobs: Sequence[Job]) -> State:
    """Return idle nodes and waiting jobs; queue `poor` may hold 2 GPUs."""
    state = State()
    state.set_queue(Queue(name="q"))
    state.set_queue(Queue(name="poor", max_gpus=2))
    for node in nodes:
        state.add_node(node)
    for job in jobs:
        row = state.add_job(job)
        activate(state, row)
    return state


def _unit(state: State, name: str) -> Unit:
    (units,) = waiting_units(state.freeze(), state.names.job_rows[name])
    return next(iter(units))


def _run(state: State, name: str, node: int, gpus: Sequence[Sequence[int]]) -> None:
    """Start the tasks of a job on GPUs of a node."""
    tasks = state.tasks_of(state.names.job_rows[name])
    for task, each in zip(tasks, gpus, strict=True):
        state.launch(task, node, tuple(each), attempt=1)


def _timetable(state: State, ends: dict[str, float]) -> Timetable:
    """Return the timetable of a state in which runs of jobs end at these times."""

    def end_at(tasks: np.ndarray) -> np.ndarray:
        return np.array([ends[state.job(state.tasks.job[t]).id] for t in tasks.tolist()])

    return Timetable(Scratch(state.freeze()), end_at)


def _why(state: State, name: str, table: Timetable | None = None, **keywords: object) -> object:
    scratch = Scratch(state.freeze()) if table is None else table.scratch
    return WhyWaits(scratch, table).reason(_unit(state, name), **keywords)


# --- against placement by trial ------------------------------------------------------------------


def _places(windows: Sequence[Sequence[float]], cpus: Sequence[int], unit: _Shape, s: float) -> int:
    """Return the most tasks that fit now for `s` seconds: every way of sharing them is tried."""
    gpus = tuple(sum(w >= s for w in node) for node in windows)

    @cache
    def most(node: int, left: int) -> int:
        if node == len(gpus) or not left:
            return 0
        options = [n for n in range(left + 1) if _on_one(n, gpus[node], cpus[node], unit)]
        return max(n + most(node + 1, left - n) for n in options)

    return most(0, unit[0])


_Shape = tuple[int, int, int, bool]  # tasks, GPUs and CPUs of each, whether on distinct nodes


def _on_one(tasks: int, gpus: int, cpus: int, unit: _Shape) -> bool:
    return tasks * unit[1] <= gpus and tasks * unit[2] <= cpus and (tasks <= 1 or not unit[3])


@pytest.mark.parametrize("seed", range(150))
def test_reason_agrees_with_placement_by_trial(seed: int) -> None:
    rng = Random(seed)
    sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
    cpus = [rng.randint(0, 6) for _ in sizes]
    count, each = rng.randint(1, 4), rng.randint(1, 3)
    unit = (count, each, rng.choice((0, 0, 1, 2)), rng.random() < 0.3)
    need = Task(demand=Demand.of(gpus=each, cpus=float(unit[2])))
    nodes = [
        _node(f"n{n}", *[1] * size, cpus=c)
        for n, (size, c) in enumerate(zip(sizes, cpus, strict=True))
    ]
    state = _state(nodes, [_job("gang", *[need] * count, distinct=unit[3]), _job("next", Task())])
    table = _timetable(state, {})
    for gpu in range(sum(sizes)):
        table.free_at[gpu] = rng.choice((0.0, 0.0, 0.0, 7.0))
        table.reserved_from[gpu] = rng.choice((_NEVER, 3.0, 5.0))
    first = np.cumsum([0, *sizes])
    windows = [
        [table.reserved_from[g] for g in range(first[n], first[n + 1]) if not table.free_at[g]]
        for n in range(len(sizes))
    ]
    ahead = Reservation(unit=_unit(state, "next"), at=3.0, gpus=np.zeros(0, np.int64), tasks=())
    run_s = rng.choice((2.0, 4.0, _NEVER))
    reason = WhyWaits(table.scratch, table, [ahead]).reason(_unit(state, "gang"), run_s)
    fit, free = _places(windows, cpus, unit, 0.0), sum(map(len, windows))
    if _places(windows, cpus, unit, run_s) == count:
        assert reason is None
    elif fit == count:
        holes = [w for w in (3.0, 5.0, _NEVER) if _places(windows, cpus, unit, w) == count]
        assert reason == BackfillTooLong(
            needs_s=None if run_s == _NEVER else run_s, hole_s=max(holes), ahead="next"
        )
    elif free < count * each and count > 1:
        assert isinstance(reason, GangShort)
        assert (reason.free_gpus, reason.needed_gpus) == (free, count * each)
        assert (reason.placeable_tasks, reason.tasks) == (fit, count)
    elif _places(windows, [99] * len(cpus), unit, 0.0) < count:  # for want of GPUs together
        most = max(map(len, windows))
        if max(sizes) < each and count == 1:
            assert isinstance(reason, NothingFits)
        elif free < each:
            assert reason == NoFreeGpu(free_gpus=free, needed_gpus=each, total_gpus=sum(sizes))
        else:
            assert isinstance(reason, Fragmented)
            assert (reason.free_gpus, reason.most_on_one_node) == (free, most)
            assert (reason.tasks, reason.needed_gpus) == (count, each)
            assert reason.placeable_tasks == (fit if count > 1 else 0)
    elif fit:
        assert isinstance(reason, GangShort)
        assert (reason.placeable_tasks, reason.lacking) == (fit, "cpus")
    else:
        assert isinstance(reason, Shortage)
        assert (reason.resource, reason.needed) == ("cpus", 1000 * unit[2])
        able = [c for c, w in zip(cpus, windows, strict=True) if len(w) >= each]
        assert reason.most_free == 1000 * max(able)


# --- one by one ----------------------------------------------------------------------------------


def test_unit_over_the_ceiling_of_its_queue_waits_for_the_queue() -> None:
    state = _state([_node("a", 1, 1, 1)], [_job("j", Task(demand=Demand(gpus=3)), queue="poor")])
    assert _why(state, "j") == QueueLimit(queue="poor", used_gpus=0, max_gpus=2)


def test_free_gpus_that_are_too_small_are_named_with_the_largest() -> None:
    jobs = [
        _job("big", Task(demand=Demand(gpus=1, gpu_memory_bytes=80))),
        _job("j", Task(demand=Demand(gpus=1, gpu_memory_bytes=80))),
    ]
    state = _state([_node("a", 80, 40)], jobs)
    _run(state, "big", 0, [(0,)])
    assert _why(state, "j") == GpuMemory(needed_bytes=80, largest_free_bytes=40)


def test_gpus_are_counted_that_have_the_memory() -> None:
    jobs = [
        _job("big", Task(demand=Demand(gpus=1, gpu_memory_bytes=80))),
        _job("j", Task(demand=Demand(gpus=2, gpu_memory_bytes=80))),
    ]
    state = _state([_node("a", 80, 80, 40)], jobs)
    _run(state, "big", 0, [(0,)])
    assert _why(state, "j") == NoFreeGpu(free_gpus=1, needed_gpus=2, total_gpus=2, memory_bytes=80)


def test_task_that_no_node_could_hold_is_reported_so() -> None:
    state = _state([_node("a", 1, 1), _node("b", 1)], [_job("j", Task(demand=Demand(gpus=3)))])
    assert _why(state, "j") == NothingFits(need="3 GPUs on one node")


def test_shortage_is_of_the_nodes_that_have_the_gpus() -> None:
    """The node with memory has no free GPU: 12 of the 64 bytes are free where there are GPUs."""
    nodes = [
        _node("a", 1, memory_bytes=100), _node("b", 1, 1, memory_bytes=12),
        _node("c", 1, 1, memory_bytes=8),
    ]  # fmt: skip
    state = _state(nodes, [_job("j", Task(demand=Demand(gpus=2, memory_bytes=64)))])
    reason = _why(state, "j")
    assert reason == Shortage(resource="memory", needed=64, most_free=12, beside="2 GPUs")
    assert str(reason) == (
        "Shortage(memory: 64 B needed, at most 12 B free on a node with 2 GPUs free; "
        "starts when running tasks end)"
    )


def test_node_that_lacks_one_resource_and_a_node_that_lacks_another() -> None:
    nodes = [_node("a", 1, cpus=1, memory_bytes=64), _node("b", 1, cpus=9, memory_bytes=1)]
    state = _state(
        nodes, [_job("j", Task(demand=Demand(gpus=1, cpus_milli=4000, memory_bytes=64)))]
    )
    need = "a GPU, 4 CPUs and 64 B of memory"
    assert _why(state, "j") == NoFittingNode(need=need)


@pytest.mark.parametrize(
    ("held", "wanted", "reason"),
    [
        (
            Task(demand=Demand(gpus=1, gpu_milli=700)),
            Task(demand=Demand(gpus=1, gpu_milli=500)),
            (GPU_SHARE, 500, 300),
        ),
        (
            Task(demand=Demand(gpus=1, gpu_milli=100, gpu_memory_bytes=90)),
            Task(demand=Demand(gpus=1, gpu_milli=500, gpu_memory_bytes=20)),
            (GPU_MEMORY, 20, 10),
        ),
        (
            Task(demand=Demand(gpus=1, gpu_milli=100, gpu_memory_bytes=90)),
            Task(demand=Demand(gpus=1, gpu_milli=500)),
            (GPU_MEMORY, 50, 10),
        ),
        (Task(), Task(demand=Demand(gpus=1, gpu_milli=500)), (GPU_SHARE, 500, 0)),
    ],
)
def test_part_of_a_gpu_waits_for_the_share_or_the_memory_that_is_left(
    held: Task, wanted: Task, reason: tuple[str, int, int]
) -> None:
    state = _state([_node("a", 100)], [_job("held", held), _job("j", wanted)])
    _run(state, "held", 0, [(0,)])
    resource, needed, most_free = reason
    assert _why(state, "j") == Shortage(resource=resource, needed=needed, most_free=most_free)


def test_gang_with_members_that_are_being_stopped_waits_for_them() -> None:
    state = _state([_node("a", 1, 1, 1)], [_job("gang", Task(), Task())])
    state.launch(0, 0, (0,), attempt=1)
    state.move_task(0, TaskState.RUNNING)
    state.move_task(0, TaskState.STOPPING)
    reason = being_stopped(Scratch(state.freeze()), 0)
    assert (reason.stopping_tasks, reason.tasks, reason.free_gpus) == (1, 2, 2)


def test_gang_of_unequal_tasks_is_short_of_gpus() -> None:
    state = _state(
        [_node("a", 1, 1), _node("b", 1)],
        [_job("j", Task(demand=Demand(gpus=2)), Task(demand=Demand(gpus=2)))],
    )
    reason = _why(state, "j")
    assert reason == GangShort(placeable_tasks=1, tasks=2, free_gpus=3, needed_gpus=4)
    state = _state(
        [_node("a", 1, 1), _node("b", 1)], [_job("j", Task(demand=Demand(gpus=2)), Task(), Task())]
    )
    reason = _why(state, "j")
    assert reason == GangShort(placeable_tasks=2, tasks=3, free_gpus=3, needed_gpus=4)


# --- reservations --------------------------------------------------------------------------------


def test_reservation_names_the_jobs_whose_runs_end_before_it() -> None:
    names = ["a", "b", "c", "d", "e"]
    jobs = [*(_job(name, Task()) for name in names), _job("gang", *[Task()] * 6)]
    state = _state([_node("n", *[1] * 6)], jobs)
    for gpu, name in enumerate(names):
        _run(state, name, 0, [(gpu,)])
    ends = dict(zip(names, (50.0, 10.0, 40.0, 20.0, 30.0), strict=True))
    table, unit = _timetable(state, ends), _unit(state, "gang")
    reservation = reserve(on_roomiest(table), unit, 5.0)
    assert reservation is not None
    reason = WhyWaits(table.scratch, table, [reservation]).reason(unit, 5.0)
    assert isinstance(reason, GangShort)
    assert reason.detail() == (
        "1 of 6 needed GPUs are free; reserved for 00:00:50 UTC when runs of e, c, a and 2 other "
        "jobs have ended"
    )
    assert reason.reserved is not None
    assert (reason.reserved.at, reason.reserved.ahead_s) == (50.0, 50.0)


def test_later_reservation_names_the_unit_before_it_on_the_same_gpus() -> None:
    jobs = [
        _job("run", Task(demand=Demand(gpus=2))),
        _job("one", Task(demand=Demand(gpus=2))),
        _job("two", Task(demand=Demand(gpus=2))),
    ]
    state = _state([_node("n", 1, 1)], jobs)
    _run(state, "run", 0, [(0, 1)])
    table = _timetable(state, {"run": 10.0})
    made = [reserve(on_roomiest(table), _unit(state, name), 5.0) for name in ("one", "two")]
    reservations = [each for each in made if each is not None]
    assert [each.at for each in reservations] == [10.0, 15.0]
    reason = WhyWaits(table.scratch, table, reservations).reason(_unit(state, "two"), 5.0)
    assert isinstance(reason, NoFreeGpu)
    assert reason.reserved is not None
    assert reason.reserved.after == ("run", "one")


def test_unit_that_would_run_into_a_reservation_names_its_job_and_the_hole() -> None:
    jobs = [
        _job("run", Task(demand=Demand(gpus=2))),
        _job("wide", Task(demand=Demand(gpus=4))),
        _job("late", Task(demand=Demand(gpus=2))),
    ]
    state = _state([_node("n", 1, 1, 1, 1)], jobs)
    _run(state, "run", 0, [(0, 1)])
    table = _timetable(state, {"run": 2400.0})
    reservation = reserve(on_roomiest(table), _unit(state, "wide"), 60.0)
    assert reservation is not None
    late = _unit(state, "late")
    why = WhyWaits(table.scratch, table, [reservation])
    reason = why.reason(late, 7200.0)
    assert str(reason) == (
        "BackfillTooLong(needs 2 h, GPUs are free for 40 min; starts after wide, for which they "
        "are reserved)"
    )
    assert not on_roomiest(table).start(late, 7200.0)
    assert why.reason(late, 2400.0) is None
    assert on_roomiest(table).start(late, 2400.0)


def test_reservation_without_a_known_end_gives_no_time() -> None:
    state = _state([_node("n", 1)], [_job("run", Task()), _job("j", Task())])
    _run(state, "run", 0, [(0,)])
    table, unit = _timetable(state, {"run": 1e300}), _unit(state, "j")
    reservation = reserve(on_roomiest(table), unit, 5.0)
    assert reservation is not None
    reason = WhyWaits(table.scratch, table, [reservation]).reason(unit, 5.0)
    assert isinstance(reason, NoFreeGpu)
    assert reason.way_out() == "GPUs are reserved, it starts when runs of run have ended"


def test_runs_on_parts_of_a_reserved_gpu_are_named() -> None:
    jobs = [
        _job("p1", Task(demand=Demand(gpus=1, gpu_milli=300))),
        _job("p2", Task(demand=Demand(gpus=1, gpu_milli=300))),
        _job("j", Task()),
    ]
    state = _state([_node("n", 100)], jobs)
    for name in ("p1", "p2"):
        _run(state, name, 0, [(0,)])
    table, unit = _timetable(state, {"p1": 5.0, "p2": 9.0}), _unit(state, "j")
    reservation = reserve(on_roomiest(table), unit, 5.0)
    assert reservation is not None
    reason = WhyWaits(table.scratch, table, [reservation]).reason(unit, 5.0)
    assert isinstance(reason, NoFreeGpu)
    assert reason.reserved is not None
    assert set(reason.reserved.after) == {"p1", "p2"}


def test_gang_without_gpus_that_fits_has_no_reason() -> None:
    gang = Job(
        id="j",
        name="j",
        user="u",
        queue="q",
        tasks=(Task(demand=Demand(cpus_milli=2000)),) * 2,
        gang=True,
    )
    state = _state([_node("a", cpus=4)], [gang])
    unit = Unit(job=0, tasks=(0, 1), demands=(state.tasks.demand[0],) * 2)
    assert WhyWaits(Scratch(state.freeze())).reason(unit) is None
    state = _state([_node("a", cpus=3)], [gang])
    reason = WhyWaits(Scratch(state.freeze())).reason(unit)
    assert reason is not None
    assert reason.detail() == (
        "1 of 2 tasks fit now, the others lack CPUs; starts when all its tasks fit together"
    )


def test_units_of_one_shape_are_explained_by_their_own_run_times() -> None:
    jobs = [_job("wide", Task(demand=Demand(gpus=2))), _job("a", Task()), _job("b", Task())]
    state = _state([_node("n", 1, 1)], jobs)
    table = _timetable(state, {})
    table.reserved_from[:] = (10.0, 20.0)
    ahead = Reservation(unit=_unit(state, "wide"), at=20.0, gpus=np.array([1]), tasks=())
    why = WhyWaits(table.scratch, table, [ahead])
    assert why.reason(_unit(state, "a"), 15.0) is None
    assert why.reason(_unit(state, "b"), 30.0) == BackfillTooLong(
        needs_s=30.0, hole_s=20.0, ahead="wide"
    )


def _any(job: Job) -> bool:
    del job
    return True


def _has_parts(job: Job) -> bool:
    return any(task.demand.in_part for task in job.tasks)


def test_one_task_fits_by_counting_where_it_fits_a_node_by_placing() -> None:
    """Also beside parts of GPUs that other programs or a drain withhold from further runs."""
    fit = waits = 0
    for seed in range(200):
        rng = stream(seed, "withheld")
        state = random_state(seed, _has_parts if seed % 2 else _any, every_kind=True)
        for node in state.live_nodes():
            if rng.random() < 0.2:
                for task in moves.units_to(state, node):
                    moves.give_up(state, task)
                state.ledger.drain(node, draining=True)
            else:
                state.ledger.withhold(node, [n for n in range(4) if rng.random() < 0.6])
        scratch = Scratch(state.freeze())
        why = WhyWaits(scratch)
        for task in np.flatnonzero(state.tasks.state.array() == TaskState.WAITING).tolist():
            demand = state.tasks.demand[task]
            unit = Unit(job=state.tasks.job[task], tasks=(task,), demands=(demand,))
            placed = any(
                scratch.ledger.best_gpus(demand, n) is not None for n in state.live_nodes()
            )
            assert why.tasks_that_fit(unit) == placed, seed
            assert placed or why.reason(unit) is not None, seed
            fit, waits = fit + placed, waits + (not placed)
    assert min(fit, waits) > 100


def test_a_share_of_a_gpu_of_unknown_memory_fits_by_counting() -> None:
    state = _state([_node("n", 0)], [_job("share", Task(demand=Demand(gpus=1, gpu_milli=500)))])
    assert WhyWaits(Scratch(state.freeze())).tasks_that_fit(_unit(state, "share")) == 1


def test_nothing_is_placed_by_an_explanation() -> None:
    jobs = [
        _job("gang", *[Task(demand=Demand(gpus=2))] * 2),
        _job("j", Task(demand=Demand(gpus=3))),
    ]
    state = _state([_node("a", 1, 1, 1)], jobs)
    scratch = Scratch(state.freeze())
    why = WhyWaits(scratch)
    for name in ("gang", "j"):
        why.reason(_unit(state, name), 5.0)
    assert scratch.starts == []
    assert scratch.ledger.nodes.free_gpus[0] == 3
