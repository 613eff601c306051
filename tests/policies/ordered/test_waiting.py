"""The units of waiting jobs as arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.machine.job_order import activate
from headgate.model import Demand, Job, Queue, Task
from headgate.policies.ordered.waiting import WaitingUnits
from headgate.state import State

RUN_S = np.array([3.0, 9.0, 5.0, 4.0, 6.0, 2.0, math.nan])
"""How long each task is expected to run; unknown of the last one."""


class Known:
    """Estimates that are given."""

    def run_s(self, tasks: Ints) -> Floats:
        return RUN_S[tasks]


def test_units_are_gangs_whole_and_single_tasks_and_take_as_long_as_their_longest_task() -> None:
    state = State()
    state.set_queue(Queue(name="q"))
    for name, gpus, gang in (
        ("gang", (1, 2, 1), True),
        ("many", (1, 2), False),
        ("new", (1, 1), True),
    ):
        tasks = tuple(Task(demand=Demand(gpus=each)) for each in gpus)
        job = Job(id=name, name=name, user="u", queue="q", tasks=tasks, gang=gang)
        activate(state, state.add_job(job))
    known: Any = Known()
    units = WaitingUnits.of(state.freeze(), known, np.arange(3), 9000)
    found = zip(
        *(each.tolist() for each in (units.job, units.lead, units.milli, units.run_s)), strict=True
    )
    assert [*found] == [
        (0, 0, 4000, 9.0), (1, 3, 1000, 4.0), (1, 4, 2000, 6.0), (2, 5, 2000, math.inf),
    ]  # fmt: skip
    small = WaitingUnits.of(state.freeze(), known, np.arange(3), 1000)
    assert (small.job.tolist(), small.run_s.tolist()) == ([1], [4.0])
