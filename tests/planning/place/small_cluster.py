"""Small clusters with runs that end at given times, for tests against brute force."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import numpy as np
from tests.planning.place.keeping import reserve

from headgate.base.arrays import Floats, Ints
from headgate.base.rng import Random
from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.place.choose import Placer
from headgate.planning.place.placement import placing
from headgate.planning.place.placing import Placing
from headgate.planning.times.reservations import Reservation
from headgate.planning.units.unit import Unit, waiting_units
from headgate.state import Scratch, Snapshot, State, TaskState

GIB = 2**30
NEVER = math.inf
ENDS = (2.0, 3.0, 5.0, 9.0, NEVER)
RUN_S = (1.0, 2.0, 6.0, NEVER)


class Holds(Protocol):
    """What is held when, which says by trying whether a unit fits."""

    def spans(self) -> Iterator[tuple[float, float]]: ...

    def fits(self, unit: Unit, at: float, s: float) -> bool: ...

    def keep(self, found: Reservation, s: float) -> None: ...

    def check(self) -> None: ...


class Cluster:
    """Nodes of some GPUs and some memory, with tasks that run until given times."""

    def __init__(self, rng: Random, gpu_memory: Callable[[], int] = lambda: 0) -> None:
        self.state = State()
        self.state.set_queue(Queue(name="q"))
        self.gpus = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
        for number, gpus in enumerate(self.gpus):
            self.state.add_node(
                Node(
                    id=f"n{number}",
                    rack="r",
                    gpus=tuple(Gpu(memory_bytes=gpu_memory()) for _ in range(gpus)),
                    memory_bytes=rng.randint(2, 8) * GIB,
                )
            )
        self.ends: dict[int, float] = {}  # by task
        self._jobs = 0

    def add(self, *demands: Demand, distinct: bool = False) -> int:
        """Add a waiting gang; return its row."""
        name, self._jobs = f"j{self._jobs}", self._jobs + 1
        tasks = tuple(Task(demand=demand) for demand in demands)
        row = self.state.add_job(
            Job(
                id=name,
                name=name,
                user="u",
                queue="q",
                tasks=tasks,
                gang=len(tasks) > 1,
                distinct_nodes=distinct,
            )
        )
        activate(self.state, row)
        return row

    def run(self, demand: Demand, node: int, end: float) -> None:
        """Start a task on a node until a time, if it fits there."""
        (task,) = self.state.tasks_of(self.add(demand))
        gpus = self.state.ledger.best_gpus(self.state.tasks.demand[task], node)
        if gpus is not None:
            self.state.take(task, node, gpus)
            self.state.move_task(task, TaskState.STARTING)
            self.ends[task] = end

    def run_some(self, rng: Random, count: int, demand: Callable[[], Demand]) -> None:
        """Start so many tasks, those that fit."""
        for _ in range(count):
            self.run(demand(), rng.randrange(len(self.gpus)), rng.choice(ENDS))

    def end_at(self, tasks: Ints) -> Floats:
        """Return when runs of tasks (rows) end."""
        return np.array([self.ends[task] for task in tasks.tolist()])

    def placing(self, scratch: Scratch, placer: Placer | None = None) -> Placing:
        """Return what places units on a timetable with the ends of the runs."""
        return placing(scratch, self.end_at, placer)


def earliest(held: Holds, unit: Unit, s: float, now: float = 0.0) -> float | None:
    """Return the first time from which all tasks of a unit fit for `s` seconds, by trying."""
    times = {now, *(t for span in held.spans() for t in span if now < t < NEVER)}
    return next((t for t in sorted(times) if held.fits(unit, t, s)), None)


def unit_of(snapshot: Snapshot, job: int) -> Unit:
    """Return the unit of a job."""
    (units,) = waiting_units(snapshot, job)
    (unit,) = units
    return unit


def reserve_earliest(
    rng: Random, held: Holds, units: Placing, snapshot: Snapshot, jobs: Iterable[int]
) -> None:
    """Reserve for the units of jobs in turn; assert that each is as early as trying finds."""
    for job in jobs:
        unit, run_s = unit_of(snapshot, job), rng.choice(RUN_S)
        expected = earliest(held, unit, run_s)
        found = reserve(units, unit, run_s)
        assert (found and found.at) == expected
        if found is not None:
            assert sum(number for _, _, number in found.tasks) == len(unit.tasks)
            held.keep(found, run_s)
            held.check()
