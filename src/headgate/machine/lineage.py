"""Lineage: which tasks a finished task unblocks, and which run again when results are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from headgate.machine.running_limit import unblock
from headgate.model import part_sizes
from headgate.state import JobState, State, TaskState
from headgate.state.life import DONE


def finished(state: State, task: int, output_bytes: int, part_bytes: tuple[int, ...] = ()) -> None:
    """Record a task's result on its node, and unblock the tasks that waited for it.

    `part_bytes` are the sizes of its parts; without them its parts are equal.
    """
    dependents = state.dependents.get(task, ())
    if output_bytes or task in state.results:
        sizes = part_bytes or part_sizes(output_bytes, state.task(task).parts)
        for shard in state.keep_result(task, sizes):
            state.set_replica(shard, state.tasks.node[task])
    for later in dependents:
        if not state.tasks.blockers[later]:
            continue
        state.tasks.blockers[later] -= 1
        if not state.tasks.blockers[later] and state.tasks.state[later] == TaskState.BLOCKED:
            unblock(state, later)


def requeue_lost(state: State, shards: Iterable[int]) -> list[int]:
    """Requeue the tasks whose results were lost with these shards, if needed; return them.

    A result is needed by a later task that reads it and will run, or, without a later task,
    by the user while the job is in flight. Inputs of a requeued task may be lost as well: their
    tasks are requeued, too, as far back as needed. `shards` are rows that have just lost a replica.
    O(shards + inputs and later tasks of the tasks concerned), independent of all other results.
    """
    requeued: dict[int, None] = {}
    reads = cache(lambda task: frozenset(state.reads(task)))
    makers = (state.result_of[shard] for shard in shards if shard in state.result_of)
    suspects = list(dict.fromkeys(makers))
    while suspects:
        task = suspects.pop()
        if task in requeued or not _lost(state, task) or not _needed(state, task, requeued, reads):
            continue
        requeued[task] = None
        suspects += [state.result_of[s] for s in state.reads(task) if s in state.result_of]
    for task in requeued:
        unblock(state, task)
    concerned: dict[int, None] = {}
    for task in requeued:
        concerned.update(dict.fromkeys((task, *state.dependents.get(task, ()))))
    for task in concerned:
        _recount_blockers(state, task)
    return list(requeued)


def _lost(state: State, task: int) -> bool:
    """Return whether a finished task of a job in flight has a result with a missing shard."""
    return (
        state.tasks.state[task] == TaskState.FINISHED
        and state.jobs.state[state.tasks.job[task]] == JobState.ACTIVE
        and state.job(state.tasks.job[task]).elastic is None  # that job only ends
        and not all(state.is_kept(shard) for shard in state.results[task])
    )


def _needed(
    state: State,
    task: int,
    requeued: dict[int, None],
    reads: Callable[[int], frozenset[int]],
) -> bool:
    """Return whether a later task still reads what is lost, or no task comes later."""
    dependents = state.dependents.get(task)
    if not dependents:
        return True
    lost = [shard for shard in state.results[task] if not state.is_kept(shard)]
    return any(
        (later in requeued or state.tasks.state[later] not in DONE)
        and not reads(later).isdisjoint(lost)
        for later in dependents
    )


def _recount_blockers(state: State, task: int) -> None:
    """Recount the unfinished predecessors of a task; block it if there are any."""
    if state.tasks.state[task] == TaskState.FINISHED:
        return
    blockers = state.unfinished_before(task)
    state.tasks.blockers[task] = blockers
    if blockers and state.tasks.state[task] in (TaskState.HELD, TaskState.WAITING):
        state.move_task(task, TaskState.BLOCKED)
