"""The commands that a state implies: a launch for every run, a stop for every run being stopped.

They follow from the state alone, so that a world that lost them in a crash gets them again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from headgate.machine.fleet import node_commands
from headgate.model import Demand
from headgate.protocol import Command, LaunchGang, LaunchTask, StopCause, StopTask, WakeAt
from headgate.state import State, TaskState
from headgate.state.elastic import unit_size


def launch_of(state: State, task: int) -> LaunchTask:
    """Return the launch of a task's current run, with the current replicas as sources."""
    node, run = state.tasks.node[task], state.run_id(task)
    job = state.job(state.tasks.job[task])
    gpus = state.held_gpus(task)
    return LaunchTask(
        run=run,
        node=state.node(node).id,
        gpus=gpus,
        reads=state.planned_reads(task, node),
        holds=_holds(state, task, node, gpus),
        program=job.task_program(run.ordinal),
        progress_s=state.tasks.progress_s[task],
        time_limit_s=job.time_limit_s,
        grace_s=job.grace_s,
    )


def _holds(state: State, task: int, node: int, gpus: tuple[int, ...]) -> Demand:
    """Return the demand that a run holds, with the bytes of a share of a GPU."""
    demand: Demand = state.names.demands[state.tasks.demand[task]]
    if not demand.in_part or demand.gpu_memory_bytes:
        return demand
    memory_bytes = state.gpus.memory_bytes[state.nodes.first_gpu[node] + gpus[0]]
    return replace(demand, gpu_memory_bytes=demand.part_bytes(memory_bytes))


def gang_launch(state: State, job: int, tasks: Iterable[int]) -> LaunchGang:
    """Return the launch of these tasks of a gang, by their ordinals."""
    return LaunchGang(
        members=tuple(launch_of(state, task) for task in sorted(tasks)),
        nodes=tuple(
            state.node(state.tasks.node[task]).id
            for task in state.tasks_of(job)[: unit_size(state, job)]
        ),
    )


def stop_of(state: State, task: int) -> StopTask:
    """Return the stop of a task's current run."""
    run, node = state.run_id(task), state.node(state.tasks.node[task]).id
    stop = state.stops.of_run(task, run.attempt)
    if stop is None:
        return StopTask(run=run, node=node)
    lender = state.names.queue_rows.get(stop.cause.lender)
    grace_s = None if lender is None else state.queue(lender).grace_s
    return StopTask(
        run=run, node=node, now=stop.now, grace_s=math.inf if grace_s is None else grace_s
    )


def hurry(state: State, job: int, cause: StopCause) -> Iterator[Command]:
    """End the grace period of a job's runs that are being stopped; yield their stops."""
    for task in state.tasks_of(job):
        if state.tasks.state[task] == TaskState.STOPPING:
            before = state.stops.of_run(task, state.tasks.attempts[task])
            state.record_stop(task, cause if before is None else before.cause, now=True)
            yield stop_of(state, task)


def outstanding(state: State) -> Iterator[Command]:
    """Yield the launches of all runs, gangs last, then stops, nodes and timers; O(tasks)."""
    holding = [t for t in state.holding() if state.tasks.state[t] != TaskState.MOVING]
    gangs: dict[int, list[int]] = {}
    for task in holding:
        job = state.tasks.job[task]
        if state.job(job).gang:
            gangs.setdefault(job, []).append(task)
        else:
            yield launch_of(state, task)
    for job, tasks in gangs.items():
        yield gang_launch(state, job, tasks)
    for task in holding:
        if state.tasks.state[task] == TaskState.STOPPING:
            yield stop_of(state, task)
    yield from node_commands(state)
    for timer, at in state.timers.items():
        yield WakeAt(timer=timer, at=at)
