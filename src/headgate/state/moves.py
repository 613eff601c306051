"""Moves: a run ends to start again elsewhere, on a grant that is held for its task meanwhile.

While the run is being stopped, its task refers to two grants: that of the run, and its `target`.
They are one and the same for a member of a gang that moves without it. Then the run's grant is
released, and the target is the grant of the task, which is MOVING until its next run starts: at
the same instant, unless runs of other members of its gang have not ended yet.

A task's GPUs are counted once, wherever they are: a target counts for no job or queue until then.
"""

from __future__ import annotations

import numpy as np

from headgate.base.column import Array
from headgate.state.elastic import unit_size
from headgate.state.life import TaskState
from headgate.state.state import State
from headgate.state.tables import FOR_MOVE, FOR_RUN
from headgate.state.view import View


def unit_of(view: View, task: int) -> range:
    """Return the tasks (rows) that move together with a task: its gang, or the task alone."""
    job = view.tasks.job[task]
    if not view.jobs.gang[job]:
        return range(task, task + 1)
    return view.tasks_of(job)[: unit_size(view, job)]


def is_moving(view: View, task: int) -> bool:
    """Return whether a place is held for the next run of a task."""
    return bool(view.tasks.target[task] >= 0 or view.tasks.state[task] == TaskState.MOVING)


def stays(view: View, task: int, node: int, gpus: tuple[int, ...]) -> bool:
    """Return whether a place is that which a task holds already."""
    held = view.held_gpus(task)
    return bool(view.tasks.node[task] == node) and sorted(held) == sorted(gpus)


def hold_target(state: State, task: int, node: int, gpus: tuple[int, ...]) -> None:
    """Hold a place for the next run of a task; InvariantBroken where it does not fit."""
    own = stays(state, task, node, gpus)
    target = state.tasks.grant[task] if own else state.take(task, node, gpus, FOR_MOVE)
    state.tasks.target[task] = target


def vacate(state: State, task: int) -> None:
    """End the run of a task that is stopped to move: it holds its target alone, and is MOVING."""
    tasks, target = state.tasks, state.tasks.target[task]
    state.lose_run(task)
    tasks.over_bytes[task] = tasks.over_gpu_bytes[task] = 0
    if tasks.grant[task] != target:
        state.free(tasks.grant[task])
    tasks.grant[task], tasks.target[task] = target, -1
    tasks.node[task] = state.grants.node[target]
    state.move_task(task, TaskState.MOVING)


def arrive(state: State, task: int) -> None:
    """Begin the next run of a MOVING task on the place that it holds."""
    grant = state.tasks.grant[task]
    if state.grants.purpose[grant] == FOR_MOVE:
        state.grants.purpose[grant] = FOR_RUN
        state.jobs.migrations[state.tasks.job[task]] += 1
    state.begin_run(task, state.tasks.node[task])


def give_up(state: State, task: int) -> None:
    """Release the places held for the next runs of a task's unit: it does not move.

    Those whose runs have ended wait again; the other runs are stopped without a target.
    """
    if not is_moving(state, task):
        return
    for member in unit_of(state, task):
        grant, target = state.tasks.grant[member], state.tasks.target[member]
        if target >= 0:
            state.tasks.target[member] = -1
            if target != grant:
                state.free(target)
        elif state.tasks.state[member] == TaskState.MOVING:
            state.free(grant)
            state.tasks.grant[member] = -1
            state.count_gpus(member, -1)
            state.move_task(member, TaskState.WAITING)


def moving_tasks(view: View) -> list[int]:
    """Return the tasks for whose next runs places are held, ascending; O(grants).

    Each unit that moves has a member with a grant of its own for that.
    """
    grants = view.grants.purpose.array().nonzero()[0].tolist()
    units = {unit_of(view, view.grants.task[grant]) for grant in grants}
    return sorted(task for unit in units for task in unit)


def grants_of_moves(view: View) -> tuple[list[int], list[int]]:
    """Return the grants (rows) of tasks that move: those kept, and those left.

    Kept are those on which their next runs start, left those that are released before.
    """
    kept: list[int] = []
    left: list[int] = []
    for task in moving_tasks(view):
        grant, target = view.tasks.grant[task], view.tasks.target[task]
        kept.append(grant if target < 0 else target)
        if target not in (-1, grant):
            left.append(grant)
    return kept, left


def gpus_of(view: View, grants: list[int]) -> Array:
    """Return the GPUs (rows) of some grants."""
    rows: list[int] = []
    for grant in grants:
        first = view.nodes.first_gpu[view.grants.node[grant]]
        rows += [first + index for index in view.grants.gpus[grant]]
    return np.array(rows, np.int64)


def units_on(view: View, node: int) -> list[int]:
    """Return a task of each unit that moves from, or to, or with a member on a node."""
    units: dict[range, int] = {}
    for task in moving_tasks(view):
        places = (view.tasks.grant[task], view.tasks.target[task])
        if any(grant >= 0 and view.grants.node[grant] == node for grant in places):
            units.setdefault(unit_of(view, task), task)
    return [*units.values()]


def units_to(view: View, node: int) -> list[int]:
    """Return a task of each unit with a place that is held for its next run on a node."""
    grants = view.grants.purpose.array().nonzero()[0].tolist()
    tasks = [view.grants.task[grant] for grant in grants if view.grants.node[grant] == node]
    return [*{unit_of(view, task): task for task in tasks}.values()]


def units_on_withheld(view: View, node: int) -> list[int]:
    """Return a task of each unit that moves to a GPU of a node that other programs use."""
    withheld = set(view.withheld_gpus_of(node))
    units: dict[range, int] = {}
    for task in moving_tasks(view):
        target = view.tasks.target[task]
        grant = view.tasks.grant[task] if target < 0 else target
        if view.grants.node[grant] == node and withheld & set(view.grants.gpus[grant]):
            units.setdefault(unit_of(view, task), task)
    return [*units.values()]
