"""Lineage: which tasks a finished task frees, and which must run again when results are lost."""

from __future__ import annotations

from headgate.model import Shard, result_id
from headgate.state import JobState, State, TaskState


def finished(state: State, task: int, output_bytes: int) -> None:
    """Note a task's result on its node, and let those that waited for it wait for a GPU."""
    dependents = state.dependents.get(task, ())
    if output_bytes or task in state.results:
        job = state.job(state.tasks.job[task])
        value = Shard(id=result_id(job.id, state.ordinal(task)), size_bytes=output_bytes)
        shard = state.results[task] = state.shard(value)
        state.add_replica(shard, state.tasks.node[task])
    for later in dependents:
        if not state.tasks.blockers[later]:
            continue
        state.tasks.blockers[later] -= 1
        if not state.tasks.blockers[later] and state.tasks.state[later] == TaskState.BLOCKED:
            state.move_task(later, TaskState.WAITING)


def revive(state: State) -> list[int]:
    """Make tasks wait again whose lost results are still needed, and return them.

    A result is needed by a later task that reads it and has not finished, or, where no task comes
    later, by the user while the job is in flight. What a revived task reads may be lost too, so
    this goes back as far as it must. O(tasks with results).
    """
    lost = [
        task
        for task, shard in state.results.items()
        if state.tasks.state[task] == TaskState.FINISHED
        and not state.replicas(shard)
        and state.jobs.state[state.tasks.job[task]] == JobState.ACTIVE
    ]
    revived: dict[int, None] = {}
    while True:
        more = [t for t in lost if t not in revived and _needed(state, t, revived)]
        if not more:
            break
        revived.update(dict.fromkeys(more))
    for task in revived:
        state.move_task(task, TaskState.WAITING)
    for task in revived:
        reblock(state, task)
        for later in state.dependents.get(task, ()):
            reblock(state, later)
    return list(revived)


def _needed(state: State, task: int, revived: dict[int, None]) -> bool:
    dependents = state.dependents.get(task)
    if not dependents:
        return True
    shard = state.results[task]
    return any(
        (later in revived or state.tasks.state[later] != TaskState.FINISHED)
        and shard in state.reads(later)
        for later in dependents
    )


def reblock(state: State, task: int) -> None:
    """Count again what a task waits for; block it when that is something."""
    if state.tasks.state[task] == TaskState.FINISHED:
        return
    blockers = state.unfinished_before(task)
    state.tasks.blockers[task] = blockers
    if blockers and state.tasks.state[task] == TaskState.WAITING:
        state.move_task(task, TaskState.BLOCKED)
