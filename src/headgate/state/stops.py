"""The stops of runs, by task: kept until the task's job leaves the state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headgate.protocol import RunStop, StopKind
from headgate.state.elastic import is_surplus
from headgate.state.life import PENDING, TaskState
from headgate.state.view import View

STOPS_KEPT = 8
"""How many stops of a task are kept, the latest ones."""

_BY_PLANS = (StopKind.PREEMPTED, StopKind.RECLAIMED, StopKind.MOVED)


class StopLog(Mapping[int, tuple[RunStop, ...]]):
    """The last stops of tasks, in order, by row; frozen at a cost only after a change."""

    def __init__(self, stops: Mapping[int, tuple[RunStop, ...]]) -> None:
        """Start with the stops of a snapshot."""
        self._by_task = dict(stops)
        self._frozen: Mapping[int, tuple[RunStop, ...]] | None = None

    def __getitem__(self, task: int) -> tuple[RunStop, ...]:
        """Return the stops of a task; KeyError where it has none."""
        return self._by_task[task]

    def __iter__(self) -> Iterator[int]:
        """Yield the tasks that have stops."""
        return iter(self._by_task)

    def __len__(self) -> int:
        """Return the number of tasks that have stops."""
        return len(self._by_task)

    def of_run(self, task: int, attempt: int) -> RunStop | None:
        """Return the stop of a task's last run, which is this attempt."""
        last = self._by_task.get(task, ())[-1:]
        return last[0] if last and last[0].attempt == attempt else None

    def record(self, task: int, stop: RunStop) -> None:
        """Add a stop, replacing an earlier one of the same run."""
        before = self._by_task.get(task, ())
        before = before[:-1] if self.of_run(task, stop.attempt) else before
        self._by_task[task] = (*before, stop)[-STOPS_KEPT:]
        self._frozen = None

    def withdraw(self, task: int, attempt: int) -> None:
        """Remove the stop of a run that has finished before it was stopped."""
        if self.of_run(task, attempt) is not None:
            self._by_task[task] = self._by_task[task][:-1]
            self._frozen = None

    def freeze(self) -> Mapping[int, tuple[RunStop, ...]]:
        """Return the stops as of now."""
        if self._frozen is None:
            self._frozen = dict(self._by_task)
        return self._frozen


def is_cancelled(view: View, task: int) -> bool:
    """Return whether a task is CANCELLED, or will be once its run has ended, without its job."""
    if view.tasks.state[task] != TaskState.STOPPING:
        return bool(view.tasks.state[task] == TaskState.CANCELLED)
    last = view.stops.get(task, ())[-1:]
    of_run = bool(last) and last[0].attempt == view.tasks.attempts[task]
    return of_run and last[0].cause.kind is StopKind.CANCELLED


def preemption(view: View, task: int) -> str | None:
    """Return why a task's last run was preempted or moved, None once it runs again or has ended.

    None for surplus of an elastic job, which is stopped in the course of things.
    """
    last = view.stops.get(task, ())[-1:]
    if not last or last[0].cause.kind not in _BY_PLANS or is_surplus(view, task):
        return None
    state, attempt = view.tasks.state[task], view.tasks.attempts[task]
    again = state not in (TaskState.STOPPING, TaskState.MOVING, *PENDING)
    again = again or last[0].attempt != attempt
    return None if again else last[0].cause.text


def waits_preempted(view: View, task: int) -> bool:
    """Return whether a task waits since its last run was preempted."""
    return view.tasks.state[task] in PENDING and preemption(view, task) is not None
