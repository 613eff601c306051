"""Tasks on parts of GPUs in a round that serves units: what starts beside reservations of parts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headgate.base.arrays import Floats, Ints
from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.place.serve import Answer, Serving, Turn
from headgate.planning.place.why import WhyWaits
from headgate.planning.units.unit import Unit, waiting_units
from headgate.protocol.reasons import GPU_MEMORY, BackfillTooLong, Shortage
from headgate.state import Scratch, Snapshot, State, TaskState

HALF, QUARTER = Demand(gpus=1, gpu_milli=500), Demand(gpus=1, gpu_milli=250)
MOST = Demand(gpus=1, gpu_milli=700)
ONE = Demand(gpus=1)


def _state(gpus: int, *waiting: list[Demand]) -> State:
    """Return a node of some GPUs, and waiting jobs with these tasks, gangs if there are several."""
    state = State()
    state.set_queue(Queue(name="q"))
    state.add_node(Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1000),) * gpus))
    for number, demands in enumerate(waiting):
        tasks = tuple(Task(demand=demand) for demand in demands)
        gang, name = len(tasks) > 1, f"j{number}"
        row = state.add_job(Job(id=name, name=name, user="u", queue="q", tasks=tasks, gang=gang))
        activate(state, row)
    return state


def _run(state: State, job: int, gpu: int) -> int:
    """Start the only task of a job on a GPU; return its row."""
    (task,) = state.tasks_of(job)
    state.take(task, 0, (gpu,))
    state.move_task(task, TaskState.STARTING)
    return task


def _unit(snapshot: Snapshot, job: int) -> Unit:
    (units,) = waiting_units(snapshot, job)
    (unit,) = units
    return unit


def _served(serving: Serving, *turns: Turn) -> list[Answer]:
    return [serving.answer(turn) for turn in turns]


def _serving(snapshot: Snapshot, ends: dict[int, float]) -> Serving:
    """Return a round in which the runs of tasks (rows) end at these times."""

    def end_at(tasks: Ints) -> Floats:
        return np.array([ends.get(task, math.inf) for task in tasks.tolist()])

    return Serving(Scratch(snapshot), end_at, keeps_free=True)


def _first_reserved(*later: list[Demand]) -> tuple[Snapshot, Serving]:
    """Return a round with one GPU, 0.7 of which are held until 10, then reserved for 5 seconds."""
    state = _state(1, [MOST], [MOST], *later)
    runs = _run(state, 0, 0)
    snapshot = state.freeze()
    serving = _serving(snapshot, {runs: 10.0})
    unit = _unit(snapshot, 1)
    assert _served(serving, Turn(unit, 5.0, 5.0, reserves=True)) == [Answer.RESERVED]
    assert [each.at for each in serving.reservations] == [10.0]
    return snapshot, serving


def test_what_fits_beside_a_reserved_part_starts_for_however_long() -> None:
    snapshot, serving = _first_reserved([QUARTER], [QUARTER])
    small, second = (_unit(snapshot, job) for job in (2, 3))
    assert _served(serving, Turn(small), Turn(second, 1.0)) == [Answer.STARTED, Answer.WAITS]


def test_another_reservation_shares_the_gpu_or_waits_for_the_first() -> None:
    snapshot, serving = _first_reserved([QUARTER], [HALF])
    for job, at in ((2, 0.0), (3, 15.0)):
        turn = Turn(_unit(snapshot, job), 7.0, 7.0, starts=False, reserves=True)
        assert _served(serving, turn) == [Answer.RESERVED]
        assert serving.reservations[-1].at == at
    planned = [each.planned(snapshot, 7.0) for each in serving.reservations]
    assert [(each.gpus, each.milli) for each in planned] == [((0,), (n,)) for n in (700, 250, 500)]


def _with_reserved_halves(*later: list[Demand]) -> tuple[Snapshot, Serving]:
    """Return a round with two GPUs, one of them free, of which all halves are reserved from 10 on.

    By one gang, for 5 seconds.
    """
    state = _state(2, [ONE], [HALF] * 4, *later)
    runs = _run(state, 0, 0)
    snapshot = state.freeze()
    serving = _serving(snapshot, {runs: 10.0})
    gang = _unit(snapshot, 1)
    assert _served(serving, Turn(gang, 5.0, 5.0, reserves=True)) == [Answer.RESERVED]
    return snapshot, serving


def test_run_before_reserved_parts_ends_in_time() -> None:
    snapshot, serving = _with_reserved_halves([ONE], [HALF], [HALF])
    one, half, other = (_unit(snapshot, job) for job in (2, 3, 4))
    turns = Turn(one, 10.5), Turn(half, 10.5), Turn(half, 10.0), Turn(one, 10.0), Turn(other, 9.0)
    waits, starts = Answer.WAITS, Answer.STARTED
    assert _served(serving, *turns) == [waits, waits, starts, waits, starts]


def test_shorter_run_on_part_starts_where_a_longer_one_does_not() -> None:
    """Also where the GPU is held in part, and reserved whole."""
    state = _state(1, [QUARTER], [ONE], [HALF])
    runs = _run(state, 0, 0)
    snapshot = state.freeze()
    serving, half = _serving(snapshot, {runs: 10.0}), _unit(snapshot, 2)
    turns = Turn(_unit(snapshot, 1), 5.0, 5.0, reserves=True), Turn(half, 20.0), Turn(half, 10.0)
    assert _served(serving, *turns) == [Answer.RESERVED, Answer.WAITS, Answer.STARTED]


def test_claimed_gpu_takes_no_part_but_one_in_part_use_does() -> None:
    state = _state(2, [HALF], [ONE], [HALF], [HALF])
    runs = _run(state, 0, 0)
    snapshot = state.freeze()
    serving = _serving(snapshot, {runs: 10.0})
    serving.placing.claim(snapshot.tasks.demand[1], np.full(2, 50.0))
    halves = [Turn(_unit(snapshot, job), 100.0) for job in (2, 3)]
    assert _served(serving, *halves) == [Answer.STARTED, Answer.WAITS]
    assert serving.scratch.starts[0].gpus == (0,)
    found = serving.placing.earliest(halves[1].unit, 5.0)
    assert found is not None
    assert (found.at, found.gpus.tolist()) == (10.0, [0]), "on the other half of that one"


def test_reason_says_for_how_long_a_part_is_free() -> None:
    snapshot, serving = _with_reserved_halves([HALF])
    why = WhyWaits(serving.scratch, serving.placing.table, serving.reservations)
    unit = _unit(snapshot, 2)
    assert why.reason(unit, 10.0) is None
    reason = why.reason(unit, 11.0)
    assert isinstance(reason, BackfillTooLong)
    assert (reason.hole_s, reason.ahead) == (10.0, "j1")


def test_reserved_part_waits_for_those_alone_that_leave_by_then() -> None:
    state = _state(1, [QUARTER], [HALF], [HALF])
    stays, leaves = _run(state, 0, 0), _run(state, 1, 0)
    snapshot = state.freeze()
    serving, unit = _serving(snapshot, {stays: 90.0, leaves: 10.0}), _unit(snapshot, 2)
    assert _served(serving, Turn(unit, 5.0, 5.0, reserves=True)) == [Answer.RESERVED]
    reason = WhyWaits(serving.scratch, serving.placing.table, serving.reservations).reason(unit)
    reserved = getattr(reason, "reserved", None)
    assert (reserved.at, reserved.after) == (pytest.approx(10.0), ("j1",))


def test_reason_of_a_task_on_memory_alone_names_memory_where_no_gpu_is_open() -> None:
    state = _state(1, [ONE], [Demand(gpus=1, gpu_milli=0, gpu_memory_bytes=300)])
    runs = _run(state, 0, 0)
    snapshot = state.freeze()
    serving, unit = _serving(snapshot, {runs: 10.0}), _unit(snapshot, 1)
    assert _served(serving, Turn(unit, 5.0)) == [Answer.WAITS]
    reason = WhyWaits(serving.scratch, serving.placing.table, []).reason(unit)
    assert reason == Shortage(resource=GPU_MEMORY, needed=300, most_free=0)
    assert "GPU memory: 300 B needed, at most 0 B free on a GPU" in str(reason)
