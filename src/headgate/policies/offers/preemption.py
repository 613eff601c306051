"""Preemption of runs of jobs far above their share, for jobs below theirs.

A job that holds more than `(1 + slack)` times its share may lose runs down to its share, but never
all of them; so never a gang, which is one run. None is preempted for a task that would not start
then, since it lacks other resources than a GPU. Runs in state STOPPING count as ended, and their
GPUs as allocated to jobs below their share: no further run is preempted for a GPU that is being
freed. None is preempted while a multi-GPU unit is in line, which chooses first of what runs leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headgate.base.arrays import Ints
from headgate.model import WHOLE
from headgate.planning.place.limits import preempted_for
from headgate.planning.place.room_freed import RoomFreed
from headgate.planning.units.settled import may_stop
from headgate.planning.units.unit import one_task
from headgate.policies.offers.greedy_round import GreedyRound
from headgate.protocol import NO_STEPS, Group, Steps, Stop
from headgate.state import Snapshot, TaskState
from headgate.state.moves import gpus_of, grants_of_moves, is_moving


def victims(snapshot: Snapshot, greedy: GreedyRound, slack: float) -> Steps:
    """Return the preemptions after a completed round, in the order in which they are chosen.

    GPUs are tentatively allocated one at a time to the job below its share that holds fewest; for
    each, the victim is the latest run of those whose GPU the job can use.
    O((jobs below their share + victims) x GPUs).
    """
    if greedy.line:
        return NO_STEPS
    return Steps.of(_Preemption(snapshot, greedy, slack).run())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    task: int  # row
    job: int
    gpus: Ints  # rows
    gpu_classes: tuple[int, ...]  # of these


class _Preemption:
    """The choice of victims; jobs are indices into `Standing.jobs`."""

    def __init__(self, snapshot: Snapshot, greedy: GreedyRound, slack: float) -> None:
        rows, quotas = greedy.standing.rows, greedy.quotas
        self._lines = [rows.lines_of(job) for job in greedy.standing.jobs.tolist()]
        self._waiting = greedy.waiting.copy()
        self._held = greedy.held.copy()  # GPUs, less those of STOPPING runs
        self._room = greedy.room_milli() // WHOLE  # GPUs by queue, and by user alone
        for row in range(rows.queues, len(self._room)):
            self._room[row] = (quotas.limit(row) - quotas.used(row)) // WHOLE
        self._freed: list[int] = []  # classes of GPUs of STOPPING runs, ascending
        self._runs: list[_Run] = []  # that may be victims, latest first
        running = np.zeros_like(self._held)
        self._split_runs(snapshot, greedy, running)
        over = self._held > (1 + slack) * greedy.target
        self._spare_gpus = np.where(over, self._held - greedy.target, 0)
        self._spare_runs = running - 1
        self._missing = greedy.target - self._held
        self._snapshot, self._greedy = snapshot, greedy
        self._seeking: dict[tuple[int, int], list[int]] = {}  # by job and type: tasks left
        self._accepts = greedy.standing.accepts

    def _split_runs(self, snapshot: Snapshot, greedy: GreedyRound, running: Ints) -> None:
        """Collect the GPUs of STOPPING runs, and the runs that may be victims; count runs."""
        tasks, index = (
            snapshot.tasks,
            {row: j for j, row in enumerate(greedy.standing.jobs.tolist())},
        )
        holder = snapshot.gpus.task.array()
        left = set(gpus_of(snapshot, grants_of_moves(snapshot)[1]).tolist())
        by_task: dict[int, list[int]] = {}
        for gpu in np.flatnonzero(holder >= 0).tolist():
            by_task.setdefault(int(holder[gpu]), []).append(gpu)
        held_by = np.array([*by_task], np.int64)
        stoppable = set(held_by[may_stop(snapshot, held_by)].tolist())
        for task, gpus in by_task.items():
            row = tasks.job[task]
            job = index.get(row)
            classes = tuple(sorted(greedy.standing.hardware.gpu_class[gpus].tolist()))
            if is_moving(snapshot, task):  # it keeps as many GPUs as it leaves
                here = [gpu for gpu in gpus if gpu in left]
                self._freed += greedy.standing.hardware.gpu_class[here].tolist()
                if job is not None:
                    running[job] += 1
                continue
            if tasks.state[task] == TaskState.STOPPING:
                self._freed += classes
                self._room[[*greedy.standing.rows.lines_of(row)]] += len(classes)
                if job is not None:
                    self._held[job] -= len(classes)
            elif job is not None:
                running[job] += 1
                if snapshot.jobs.gang[row]:  # a gang is one run, and no job loses its last
                    continue
                if task in stoppable:
                    held = np.array(gpus, np.int64)
                    self._runs.append(_Run(task=task, job=job, gpus=held, gpu_classes=classes))
        self._freed.sort()
        # The time of a run counts from its launch, as `lost_gpu_s` does.
        self._runs.sort(key=lambda r: (snapshot.now - tasks.launched_at[r.task], -r.task))

    def run(self) -> list[Group]:
        """Return one group per victim, with the job that benefits as the reason."""
        victims: list[Group] = []
        beneficiaries = [j for j in range(len(self._held)) if self._needs(j)]
        while beneficiaries:
            job = min(beneficiaries, key=lambda j: (self._held[j], j))
            task_type = int(np.flatnonzero(self._waiting[job])[0])
            tasks = self._tasks(job, task_type)
            if self._take_freed(job, task_type):
                tasks.pop(0)
            else:
                run = self._latest(job, task_type, tasks)
                if run is None:
                    self._give_up(job, task_type)
                    if not self._needs(job):
                        beneficiaries.remove(job)
                    continue
                self._runs.remove(run)
                self._preempt(run, task_type)
                reason = preempted_for(self._snapshot, int(self._greedy.standing.jobs[job]))
                victims.append(Group((Stop(run.task),), reason))
            self._room[[*self._lines[job]]] -= 1
            self._held[job] += 1
            self._missing[job] -= 1
            self._waiting[job, task_type] -= 1
            if not self._needs(job):
                beneficiaries.remove(job)
        return victims

    def _give_up(self, job: int, task_type: int) -> None:
        """Seek nothing more for a job's tasks that accept no other GPUs than those of this type."""
        others = self._accepts[:, ~self._accepts[task_type]].any(axis=1)
        self._waiting[job, ~others] = 0

    def _preempt(self, run: _Run, task_type: int) -> None:
        """Count a run as preempted for a task of this type; its other GPUs as being freed."""
        width = len(run.gpu_classes)
        self._spare_gpus[run.job] -= width
        self._spare_runs[run.job] -= 1
        self._room[[*self._lines[run.job]]] += width
        rest = list(run.gpu_classes)
        rest.remove(next(each for each in rest if self._accepts[task_type, each]))
        self._freed = sorted(self._freed + rest)

    def _needs(self, job: int) -> bool:
        return bool(self._missing[job] > 0 and self._waiting[job].any())

    def _take_freed(self, job: int, task_type: int) -> bool:
        """Allocate the smallest GPU being freed that fits; return whether there was one."""
        fitting = next((each for each in self._freed if self._accepts[task_type, each]), None)
        if fitting is None or self._room[[*self._lines[job]]].min() <= 0:
            return False
        self._freed.remove(fitting)
        return True

    @cached_property
    def _room_freed(self) -> RoomFreed:
        return self._greedy.multi_gpu.room_freed()

    def _tasks(self, job: int, task_type: int) -> list[int]:
        """Return the tasks (rows) of a job and a type that still seek a GPU."""
        if (job, task_type) not in self._seeking:
            standing, here = self._greedy.standing, self._greedy.tasks_of(job)
            of_type = standing.task[here][standing.task_type[here] == task_type]
            left = of_type[~np.isin(of_type, self._greedy.offered())]
            self._seeking[job, task_type] = left.tolist()
        return self._seeking[job, task_type]

    def _starts_on(self, run: _Run, tasks: list[int]) -> bool:
        """Return whether one of some tasks starts on a GPU of a run once that has ended; drop it.

        Those of one demand start alike.
        """
        firsts = {self._snapshot.tasks.demand[task]: task for task in reversed(tasks)}
        for task in reversed(firsts.values()):
            unit = one_task(self._snapshot, task)
            if self._room_freed.holds(unit, run.gpus[:1], (run.task,)):
                tasks.remove(task)
                return True
        return False

    def _latest(self, job: int, task_type: int, tasks: list[int]) -> _Run | None:
        """Return the victim for a job, or None; of its own queue if that is at its ceiling.

        And of its user if that is at its own. One of `tasks` starts once it has ended.
        """
        for run in self._runs:
            width, same = len(run.gpu_classes), self._lines[run.job]
            room = min(self._room[row] + width * (row in same) for row in self._lines[job])
            may_lose = self._spare_runs[run.job] > 0 and self._spare_gpus[run.job] >= width
            may_lose &= self._accepts[task_type, list(run.gpu_classes)].any() and room > 0
            if may_lose and self._starts_on(run, tasks):
                return run
        return None
