"""What elastic jobs run beyond their minimum: on what all others leave, and only as long.

A policy decides as if no surplus ran: it sees what jobs need at least (the logical state of spec 5,
section 2), with what surplus holds as free. Where it starts something on such a place, the surplus
there is stopped, and the start follows once that has ended. What is left is then divided again
among the elastic jobs that run, a unit at a time, to the job that is then farthest below its fair
share, until nothing more fits. Units move from one job to another only where the first stays at
least as near its share as the other gets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from headgate.base.errors import InvariantBroken
from headgate.planning.rounds.gives_way import GIVES_WAY, PlanBeside, take
from headgate.planning.rounds.hidden import without_runs
from headgate.planning.shares.equal_surplus import equal_surplus
from headgate.planning.shares.owners import Owners
from headgate.planning.units.price import uses_more
from headgate.protocol import Group, Plan, Start, Stop
from headgate.state import Snapshot, TaskState
from headgate.state.elastic import elastic_jobs, is_surplus, surplus_of, unit_size
from headgate.state.life import EXECUTING, RUNS


def with_surplus(
    snapshot: Snapshot, decide: Callable[[Snapshot], Plan], *, equal: bool = False
) -> Plan:
    """Return the plan of `decide`, which sees no surplus, with that of elastic jobs.

    With `equal`, the elastic jobs of each queue get equal parts of what its own jobs leave of its
    guarantee, or of the cluster where it has none, and no more. O(elastic jobs) if none is in
    flight.
    """
    jobs = elastic_jobs(snapshot)
    if not jobs:
        return _again(snapshot, decide(snapshot))
    tasks = snapshot.tasks
    fixed = _fixed(snapshot, jobs)
    surplus = (task for job in jobs for task in surplus_of(snapshot, job) if task not in fixed)
    runs = [t for t in surplus if tasks.state[t] in RUNS and tasks.target[t] < 0]
    logical = without_runs(snapshot, runs)
    plan = decide(logical)
    with suppress(InvariantBroken):  # a faulty plan, which admission rejects
        beside = PlanBeside(snapshot, logical, plan)
        plan = _Surplus(beside, logical, jobs, fixed, equal=equal).plan()
    return _again(snapshot, plan)


def _fixed(snapshot: Snapshot, jobs: list[int]) -> frozenset[int]:
    """Return the surplus runs (tasks, rows) that queues do not yield: those that ran longest.

    Of them those last that use more than they hold.

    As many as `yield_ratio` leaves of all surplus that the jobs of a queue may have, running or
    not: so that the number does not shrink with each unit that is stopped.
    """
    tasks = snapshot.tasks
    runs: dict[int, list[int]] = {}
    most: dict[int, int] = {}
    for job in jobs:
        queue = snapshot.jobs.queue[job]
        if snapshot.queue(queue).yield_ratio < 1:
            more = surplus_of(snapshot, job)
            runs.setdefault(queue, []).extend(t for t in more if tasks.state[t] in EXECUTING)
            most[queue] = most.get(queue, 0) + len(more)
    found: list[int] = []
    for queue, of_queue in runs.items():
        of_queue.sort(key=lambda task: _standing(snapshot, task))
        yields = math.ceil(snapshot.queue(queue).yield_ratio * most[queue] - 1e-9)
        found += of_queue[: most[queue] - yields]
    return frozenset(found)


def _standing(snapshot: Snapshot, task: int) -> tuple[bool, float, int]:
    """Return the order in which surplus runs (tasks, rows) stay, the first one longest."""
    return uses_more(snapshot, task), snapshot.tasks.launched_at[task], task


def _again(snapshot: Snapshot, plan: Plan) -> Plan:
    """Return a plan with another round immediately if it starts units that surplus waits for."""
    if not snapshot.names.elastic or not snapshot.jobs.beyond.array().any():
        return plan
    started = [task for task in plan.starts.task.tolist() if not is_surplus(snapshot, task)]
    jobs = snapshot.tasks.job.take(np.array(started, np.int64))
    if snapshot.jobs.beyond.take(jobs).any():
        return replace(plan, again_at=snapshot.now)
    return plan


@dataclass(slots=True, kw_only=True)
class _ElasticJob:
    """An elastic job in a round; its surplus as starts, on the places that it holds or gets."""

    row: int
    demand: int
    share: float  # units
    most: int  # units
    base: int  # units that run beside surplus
    is_whole: bool  # whether these are its minimum
    idle: list[int]  # tasks that may start, the next one last
    kept: list[Start] = field(default_factory=list)
    new: list[Start] = field(default_factory=list)

    def level(self, more: int = 0) -> float:
        """Return its units, and so many more, relative to its share."""
        return (self.units + more) / max(self.share, 1e-9)

    @property
    def may_grow(self) -> bool:
        return self.is_whole and bool(self.idle) and self.units < self.most

    @property
    def units(self) -> int:
        return self.base + len(self.kept) + len(self.new)


class _Surplus:
    """One round: the plan that saw no surplus, and what is left beside it for that."""

    def __init__(
        self,
        beside: PlanBeside,
        logical: Snapshot,
        jobs: list[int],
        fixed: frozenset[int],
        *,
        equal: bool,
    ) -> None:
        plan = beside.plan
        self._beside, self._snapshot, self._plan, self._fixed = beside, beside.snapshot, plan, fixed
        self._now, self._left = beside.now, beside.left
        self._ending = {*plan.stops.task.tolist(), *plan.moves.task.tolist()}
        self._jobs = [*self._elastic_jobs(jobs)]
        if equal:
            running = {job.row: job.demand for job in self._jobs if job.is_whole}
            parts = equal_surplus(logical, plan.starts.task, running)
            for job in self._jobs:
                job.share = float(job.base + parts.get(job.row, 0))
                job.most = int(job.share)
        for job in self._jobs:
            if not self._is_stopped(job.row):
                self._keep(job)

    # --- jobs ----------------------------------------------------------------------------------

    def _elastic_jobs(self, jobs: list[int]) -> Iterator[_ElasticJob]:
        """Yield the jobs in flight, with fair shares."""
        snapshot, tasks = self._snapshot, self._snapshot.tasks
        surplus = np.array([t for job in jobs for t in surplus_of(snapshot, job)], np.int64)
        holds = np.isin(tasks.state.take(surplus), EXECUTING)
        owners = Owners(snapshot, self._plan.starts.task, surplus[~holds])
        for job in jobs:
            rows = snapshot.tasks_of(job)
            first, more = rows[: unit_size(snapshot, job)], surplus_of(snapshot, job)
            demand = tasks.demand[first[0]]
            kind, amount = owners.kind(demand), max(owners.amount(demand), 1)
            runs = [task for task in first if tasks.state[task] in EXECUTING]
            idle = [task for task in reversed(more) if tasks.state[task] == TaskState.HELD]
            yield _ElasticJob(
                row=job,
                demand=demand,
                share=float(owners.share_by_job[kind, job]) / amount,
                most=len(rows),
                base=len(runs) + sum(task in self._fixed for task in more),
                is_whole=len(runs) == len(first),
                idle=idle,
            )

    def _is_stopped(self, job: int) -> bool:
        tasks = self._snapshot.tasks
        rows = self._snapshot.tasks_of(job)[: unit_size(self._snapshot, job)]
        ending = self._ending
        return any(tasks.state[task] == TaskState.STOPPING or task in ending for task in rows)

    def _yielding(self, job: _ElasticJob) -> list[int]:
        """Return the tasks (rows) of a job whose runs are surplus, and may be stopped."""
        tasks = self._snapshot.tasks
        runs = [t for t in surplus_of(self._snapshot, job.row) if tasks.state[t] in EXECUTING]
        return [t for t in runs if tasks.target[t] < 0 and t not in self._fixed]

    def _keep(self, job: _ElasticJob) -> None:
        """Let what runs of the surplus of a job stay where it fits, the longest runs first.

        Before those that use more than they hold: the last ones are stopped first.
        """
        snapshot = self._snapshot
        for task in sorted(self._yielding(job), key=lambda task: _standing(snapshot, task)):
            place = Start(task, snapshot.tasks.node[task], snapshot.held_gpus(task))
            if job.units < job.most and take(self._left, self._snapshot, place):
                job.kept.append(place)

    # --- division ------------------------------------------------------------------------------

    def _grow(self) -> None:
        """Give units to the jobs farthest below their shares while any finds a place."""
        open_jobs = [job for job in self._jobs if job.may_grow]
        while open_jobs:
            job = min(open_jobs, key=lambda each: (each.level(1), each.row))
            place = self._open_place(job) or self._exchanged(job)
            if place is None:
                open_jobs.remove(job)
                continue
            job.idle.pop()
            job.new.append(place)
            if not job.may_grow:
                open_jobs.remove(job)

    def _open_place(self, job: _ElasticJob) -> Start | None:
        """Return a free place for a unit, taken; on the last node that has one.

        Policies fill nodes from the first one on, so there it is in the way last.
        """
        ledger = self._left.ledger
        for node in np.flatnonzero(ledger.nodes_with_room(job.demand))[::-1].tolist():
            gpus = ledger.best_gpus(job.demand, node)
            if gpus is not None:
                place = Start(job.idle[-1], node, gpus)
                return place if take(self._left, self._snapshot, place) else None
        return None

    def _exchanged(self, job: _ElasticJob) -> Start | None:
        """Return a place that units of jobs farther above their shares leave, taken; or None.

        On the node where the fewest have to.
        """
        others = [
            other
            for other in self._jobs
            if other is not job and other.kept and other.level(-1) >= job.level(1)
        ]
        by_node: dict[int, list[tuple[_ElasticJob, Start]]] = {}
        for other in sorted(others, key=lambda each: -each.level()):
            for place in reversed(other.kept):
                by_node.setdefault(place.node, []).append((other, place))
        best: tuple[Start, list[tuple[_ElasticJob, Start]]] | None = None
        for node, units in by_node.items():
            found = self._fewest(job, node, units)
            if found is not None and (best is None or len(found[1]) < len(best[1])):
                best = found
                if len(best[1]) == 1:
                    break
        if best is None:
            return None
        place, leaving = best
        for other, unit in leaving:
            other.kept.remove(unit)
            self._left.free(self._snapshot, unit)
        taken = take(self._left, self._snapshot, place)
        assert taken, "it fits without these"
        return place

    def _fewest(
        self, job: _ElasticJob, node: int, units: list[tuple[_ElasticJob, Start]]
    ) -> tuple[Start, list[tuple[_ElasticJob, Start]]] | None:
        """Return a place on a node, and which units leave it; None if too few may."""
        leaving: list[tuple[_ElasticJob, Start]] = []
        less: dict[int, int] = {}
        found: Start | None = None
        for other, unit in units:
            lost = less.get(other.row, 0) + 1
            if other.level(-lost) < job.level(1):
                continue
            less[other.row] = lost
            leaving.append((other, unit))
            self._left.free(self._snapshot, unit)
            gpus = self._left.ledger.best_gpus(job.demand, node)
            place = None if gpus is None else Start(job.idle[-1], node, gpus)
            if place is not None and take(self._left, self._snapshot, place):
                self._left.free(self._snapshot, place)
                found = place
                break
        for _, unit in reversed(leaving):
            taken = take(self._left, self._snapshot, unit)
            assert taken, "it held this"
        return None if found is None else (found, leaving)

    # --- the plan ------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Return the plan, with the surplus that is stopped, and that which starts."""
        again_at = self._plan.again_at
        if again_at is None or again_at > self._snapshot.now:  # else more starts soon
            self._grow()
        snapshot = self._snapshot
        steps: list[Group] = []
        for job in self._jobs:
            stay = {place.task for place in job.kept}
            leave = (task for task in self._yielding(job) if task not in stay)
            steps += [Group((Stop(task),), GIVES_WAY) for task in leave]
            steps += [Group((place,)) for place in job.new if take(self._now, snapshot, place)]
        return self._beside.with_steps(steps)
