"""The commands that a state implies: a launch for every run, a stop for every run being stopped.

They follow from the state alone, so that a world that lost them, after a crash, gets them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headgate.protocol import Command, LaunchGang, LaunchTask, StopTask, WakeAt
from headgate.state import State, TaskState


def launch_of(state: State, task: int) -> LaunchTask:
    """Return the launch of a task's current run; its sources are those of now."""
    node = state.tasks.node[task]
    return LaunchTask(
        run=state.run_id(task),
        node=state.node(node).id,
        gpus=state.tasks.held[task],
        reads=state.planned_reads(task, node),
        progress_s=state.tasks.progress_s[task],
    )


def gang_launch(state: State, job: int, tasks: Iterable[int]) -> LaunchGang:
    """Return the launch of these tasks of a gang, by their ordinals."""
    return LaunchGang(
        members=tuple(launch_of(state, task) for task in sorted(tasks)),
        nodes=tuple(state.node(state.tasks.node[task]).id for task in state.tasks_of(job)),
    )


def stop_of(state: State, task: int) -> StopTask:
    """Return the stop of a task's current run."""
    return StopTask(run=state.run_id(task), node=state.node(state.tasks.node[task]).id)


def outstanding(state: State) -> Iterator[Command]:
    """Yield the launches of all runs, gangs last, then the stops, then the timers; O(tasks)."""
    holding = state.holding()
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
    for timer, at in state.timers.items():
        yield WakeAt(timer=timer, at=at)
