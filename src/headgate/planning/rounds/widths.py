"""How wide training jobs run: as wide as what all others leave makes worth while.

A policy decides as if each had its smallest width, on what it needs at least; what they hold beyond
that it sees as free. Jobs that it starts get more of what is left before they start, unless more
may start there in a next round; those that run are stopped to start again with more. GPUs go, a
width at a time, to the job that works so much faster per GPU, relative to its present speed (the
marginal return of ElasticFlow, ASPLOS 2023, for jobs of which each counts alike); before these, to
those that would miss their deadlines and can still meet them. A job that runs
grows only if that saves more time than its new start takes, and not again within `DWELL` such
times. Where others need what a job holds beyond its smallest width, it is stopped, to start again
with what is left for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from headgate.base.arrays import Ints
from headgate.base.errors import InvariantBroken
from headgate.model import WHOLE, SpeedCurve, Training
from headgate.planning.place.choose.compact import most_room_first
from headgate.planning.rounds.claims import Books, open_places
from headgate.planning.rounds.gives_way import GIVES_WAY, PlanBeside, take
from headgate.planning.rounds.hidden import at_widths
from headgate.planning.units.unit import all_units
from headgate.protocol import Group, Plan, SetWidth, Start, Steps
from headgate.protocol.order_reasons import Grows
from headgate.state import JobState, Snapshot, TaskState
from headgate.state.elastic import training_jobs, unit_size
from headgate.state.ledger import Ledger
from headgate.state.life import EXECUTING

DWELL = 20.0
"""Between two changes of its width, a job works at least this many times its `restart_s`."""

_SHORTEST_S = 60.0  # and at least so long


def with_widths(snapshot: Snapshot, decide: Callable[[Snapshot], Plan]) -> Plan:
    """Return the plan of `decide`, which sees training jobs with their smallest widths, with more.

    O(training jobs) if none is in flight.
    """
    jobs = [job for job in training_jobs(snapshot) if not _ends(snapshot, job)]
    if not jobs:
        return decide(snapshot)
    wide = {job: _curve(snapshot, job).widths[0] for job in jobs if _is_wide(snapshot, job)}
    logical = at_widths(snapshot, wide)
    plan = decide(logical)
    with suppress(InvariantBroken):  # a faulty plan, which admission rejects
        plan = _Widths(PlanBeside(snapshot, logical, plan), logical, jobs).plan()
    return plan


def _ends(snapshot: Snapshot, job: int) -> bool:
    """Return whether runs of a job have ended or are being stopped, or it moves."""
    rows = snapshot.tasks_of(job)
    states = snapshot.tasks.state.span(rows.start, rows.stop)
    ends = (TaskState.STOPPING, TaskState.MOVING, TaskState.FINISHED)
    return bool(np.isin(states, ends).any())


def _curve(snapshot: Snapshot, job: int) -> SpeedCurve:
    training = snapshot.job(job).training
    assert training is not None
    return training.speeds


def _is_wide(snapshot: Snapshot, job: int) -> bool:
    return unit_size(snapshot, job) > _curve(snapshot, job).widths[0]


@dataclass(slots=True, kw_only=True)
class _TrainingJob:
    """A job in a round, and the width that it is to have."""

    row: int
    curve: SpeedCurve
    before: int  # its width
    runs: bool
    tasks: range
    unit_gpus: float  # of a task; of one without GPUs 1
    left_s: float  # that its work takes with its smallest width, at a speed of 1
    deadline_s: float  # from now on; inf without one
    restart_s: float
    group: int | None = None  # that starts it
    places: list[Start] = field(default_factory=list)  # of its tasks beyond its smallest width
    may_grow: bool = True

    @property
    def width(self) -> int:
        return self.curve.widths[0] + len(self.places)

    def next_width(self) -> int | None:
        """Return the next larger width with a higher rate, None if there is none."""
        rate = self.curve.rate(self.width)
        faster = (
            width
            for width, each in zip(self.curve.widths, self.curve.rates, strict=True)
            if width > self.width and each > rate
        )
        return next(faster, None)

    def takes_s(self, width: int) -> float:
        """Return how long what is left of its work takes with a width."""
        start_s = self.restart_s if self.runs and width != self.before else 0.0
        return start_s + self.left_s * self.curve.rates[0] / self.curve.rate(width)

    def gain(self) -> tuple[float, float]:
        """Return what its next width gains: the most comes first.

        First those that would miss their deadlines and need not, the earliest first; then how much
        faster it works, per GPU more, -inf without such a width.
        """
        width = self.next_width()
        if width is None:
            return -math.inf, -math.inf
        can_end = self.takes_s(self.curve.best) <= self.deadline_s < self.takes_s(self.width)
        faster = self.curve.rate(width) / self.curve.rate(self.width) - 1
        by = -self.deadline_s if can_end else -math.inf
        return by, faster / (width - self.width) / self.unit_gpus


class _Widths:
    """One round."""

    def __init__(self, beside: PlanBeside, logical: Snapshot, jobs: list[int]) -> None:
        self._beside, self._snapshot, self._logical = beside, beside.snapshot, logical
        self._again_at = math.inf
        self._node_of_gpu = beside.snapshot.gpus.node.array()
        plan, snapshot = beside.plan, beside.snapshot
        starts = plan.starts
        self._group_of = dict(
            zip(snapshot.tasks.job.take(starts.task).tolist(), starts.group.tolist(), strict=True)
        )
        stopped = np.concatenate((plan.stops.task, plan.moves.task))
        others = {*snapshot.tasks.job.take(stopped).tolist()}
        self._jobs = [self._job(row) for row in jobs if row not in others]
        for job in self._jobs:
            if job.runs:
                self._keep(job)

    def _job(self, row: int) -> _TrainingJob:
        snapshot, tasks = self._snapshot, self._snapshot.tasks_of(row)
        spec = snapshot.job(row)
        training, deadline_s = spec.training, spec.deadline_s
        assert training is not None
        deadline_s = math.inf if deadline_s is None else deadline_s
        return _TrainingJob(
            row=row,
            curve=_curve(self._snapshot, row),
            before=unit_size(self._snapshot, row),
            runs=self._snapshot.tasks.state[tasks[0]] in EXECUTING,
            tasks=tasks,
            unit_gpus=self._snapshot.demand(tasks[0]).gpus_milli / WHOLE or 1.0,
            left_s=self._left_s(row, training),
            deadline_s=snapshot.jobs.submitted_at[row] + deadline_s - snapshot.now,
            restart_s=training.restart_s,
            group=self._group_of.get(row),
        )

    def _left_s(self, row: int, training: Training) -> float:
        """Return how long the rest of a job's work takes with its smallest width."""
        snapshot, first = self._snapshot, self._snapshot.jobs.first_task[row]
        saved_s: float = snapshot.tasks.progress_s[first]
        if snapshot.tasks.state[first] in EXECUTING:
            saved_s += snapshot.checkpoint_progress_s(first, snapshot.now)
        return max(0.0, training.narrowest_s - saved_s)

    def _keep(self, job: _TrainingJob) -> None:
        """Let a job that runs keep its width, if nothing else needs what it holds; else less.

        It may start elsewhere then.
        """
        snapshot, left = self._snapshot, self._beside.left
        for task in job.tasks[job.width : job.before]:
            place = Start(task, snapshot.tasks.node[task], snapshot.held_gpus(task))
            if not take(left, snapshot, place):
                break
            job.places.append(place)
        if job.width == job.before:
            job.may_grow = self._pays(job)
            return
        for place in job.places:
            left.free(snapshot, place)
        job.places.clear()
        while self._widen(job, most=job.before):
            pass
        job.may_grow = False

    def _pays(self, job: _TrainingJob) -> bool:
        """Return whether a job has worked long enough to be stopped, and has enough left to do.

        More than one start takes, with the next width.
        """
        snapshot, width, first = self._snapshot, job.next_width(), job.tasks[0]
        if width is None or snapshot.tasks.state[first] != TaskState.RUNNING:
            return False
        since = snapshot.tasks.started_at[first]
        from_at = since + max(_SHORTEST_S, DWELL * job.restart_s)
        if from_at > snapshot.now:
            self._again_at = min(self._again_at, from_at)
            return False
        return job.takes_s(job.width) - job.takes_s(width) > job.restart_s

    def _widen(self, job: _TrainingJob, most: int) -> bool:
        """Give a job its next width if that is at most so much, and there is room; return if so.

        Of one that starts, on what is free now.
        """
        width, snapshot = job.next_width(), self._snapshot
        if width is None or width > most:
            return False
        left, now = self._beside.left, self._beside.now
        books = (left,) if job.runs else (left, now)
        more: list[Start] = []
        for task in job.tasks[job.width : width]:
            place = self._place(task)
            if place is None or not self._take(books, place):
                for each in more:
                    for book in books:
                        book.free(snapshot, each)
                return False
            more.append(place)
        job.places += more
        return True

    def _take(self, books: Sequence[Books], place: Start) -> bool:
        """Take a place in all books, or in none."""
        for number, book in enumerate(books):
            if not take(book, self._snapshot, place):
                for taken in books[:number]:
                    taken.free(self._snapshot, place)
                return False
        return True

    def _place(self, task: int) -> Start | None:
        """Return a place for a task of what is left, which is not taken yet: the roomiest node."""
        ledger, demand = self._beside.left.ledger, self._snapshot.tasks.demand[task]
        room = self._room(ledger, demand)
        node = int(room.argmax()) if len(room) else 0
        gpus = ledger.best_gpus(demand, node) if len(room) and room[node] else None
        return None if gpus is None else Start(task, node, gpus)

    def _room(self, ledger: Ledger, demand: int) -> Ints:
        """Return how many tasks of a demand fit each node now, `[nodes]`."""
        if not self._snapshot.names.demands[demand].gpus:
            return ledger.room(demand)
        nodes = len(self._snapshot.nodes.alive)
        gpus = np.bincount(self._node_of_gpu, ledger.gpu_room(demand), minlength=nodes)
        return ledger.room(demand, gpus=gpus.astype(np.int64))

    def _more_starts(self) -> bool:
        """Return whether something waits that fits beside the plan: it may start in a next round.

        O(jobs that wait x nodes).
        """
        logical, ledger = self._logical, self._beside.left.ledger
        started, tried = {*self._beside.plan.starts.task.tolist()}, set[object]()
        columns = logical.jobs
        waiting = columns.waiting.array() + columns.waiting_cpu.array()
        active = columns.state.array() == JobState.ACTIVE
        for job in np.flatnonzero(active & (waiting > 0)).tolist():
            for unit in (unit for units in all_units(logical, job) for unit in units):
                if unit.tasks[0] in started:
                    continue
                if unit.shape not in tried and open_places(logical, ledger, unit) is not None:
                    return True
                tried.add(unit.shape)
        return False

    def _grow(self) -> None:
        """Give widths to the jobs that gain most by them while there is room."""
        plan = self._beside.plan
        soon = plan.again_at is not None and plan.again_at <= self._snapshot.now
        delayed = self._beside.delayed
        starts = [j for j in self._jobs if j.group is not None and j.group not in delayed]
        if starts and self._more_starts():
            starts = []
        runs = [] if soon or delayed else [j for j in self._jobs if j.runs and j.may_grow]
        open_jobs = [*starts, *runs]
        while open_jobs:
            job = max(open_jobs, key=lambda each: (each.gain(), -each.row))
            if not self._widen(job, most=job.curve.widths[-1]):
                open_jobs.remove(job)

    # --- the plan ------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Return the plan with the widths that jobs get."""
        self._grow()
        plan = self._beside.with_steps([])
        widths = [*plan.widths]
        for job in self._jobs:
            if job.group in self._beside.delayed:
                job.group = None
            if job.runs or job.group is not None:
                width, reason = job.width, GIVES_WAY if job.width < job.before else Grows()
            else:  # it waits on, for what it needs at least
                width, reason = job.curve.widths[0], None
            if width != job.before:
                widths.append(SetWidth(job.row, width, reason))
        again_at = min(self._again_at, math.inf if plan.again_at is None else plan.again_at)
        return replace(
            plan,
            steps=self._replaced(plan.steps),
            widths=(*widths,),
            again_at=None if math.isinf(again_at) else again_at,
        )

    def _replaced(self, steps: Steps) -> Steps:
        """Return steps with other starts of the jobs that start with more tasks."""
        new = self._compact([job for job in self._jobs if job.group is not None and job.places])
        if not new:
            return steps
        jobs = self._snapshot.tasks.job

        def groups() -> Iterator[Group]:
            for group in steps:
                job = next((row for s in group.steps if (row := jobs[s.task]) in new), None)
                if job is None:
                    yield group
                else:
                    others = (step for step in group.steps if jobs[step.task] != job)
                    yield Group((*others, *new[job]), group.reason)

        return Steps.of(groups())

    def _compact(self, jobs: list[_TrainingJob]) -> dict[int, list[Start]]:
        """Return the starts of jobs by row: on few nodes each, the widest first.

        Where they do not fit so, on those where their tasks were placed.
        """
        snapshot, now = self._snapshot, self._beside.now
        planned = [*self._beside.plan.starts]
        places = {
            job.row: [*(start for start in planned if start.task in job.tasks), *job.places]
            for job in jobs
        }
        for place in (place for each in places.values() for place in each):
            now.free(snapshot, place)
        found: dict[int, list[Start]] = {}
        for job in sorted(jobs, key=lambda each: -each.width):
            starts = self._on_few_nodes(job)
            if len(starts) < job.width:
                return places
            found[job.row] = starts
        return found

    def _on_few_nodes(self, job: _TrainingJob) -> list[Start]:
        """Return places for the tasks of a job, taken, or for some of them."""
        ledger, demand = self._beside.now.ledger, self._snapshot.tasks.demand[job.tasks[0]]
        nodes = most_room_first(self._room(ledger, demand), job.width)
        found: list[Start] = []
        for task, node in zip(job.tasks[: job.width], nodes, strict=False):
            gpus = ledger.best_gpus(demand, node)
            start = None if gpus is None else Start(task, node, gpus)
            if start is None or not take(self._beside.now, self._snapshot, start):
                break
            found.append(start)
        return found
