"""Admission: which steps of a plan are feasible in the current state. Nothing is changed here.

A plan may be stale, so each of its groups is checked against the current state; a group that has
become infeasible since the snapshot is dropped, the others stay. A plan with a step that was
infeasible on its own snapshot is rejected as a whole: its policy is faulty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import groupby

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.base.errors import InvariantBroken
from headgate.machine.fleet import drains_of, orders_of, scaling_fault
from headgate.machine.resizing import with_resizes
from headgate.machine.widths import width_fault, widths_of
from headgate.model import RunId, amount_of
from headgate.protocol import (
    Admitted,
    Group,
    Memo,
    Move,
    Moved,
    Plan,
    PlanAdmitted,
    PlanReady,
    PlanRejected,
    Preempted,
    Reason,
    Start,
    Step,
    Steps,
    Stop,
)
from headgate.protocol.plan import Starts
from headgate.protocol.queue_reasons import TakenBack
from headgate.protocol.reasons import MovedFor, OutrankedBy, PreemptedFor
from headgate.state import JobState, Snapshot, State, TaskState
from headgate.state.elastic import may_all_start, may_start, unit_size, unit_sizes
from headgate.state.grants import ManyGrants
from headgate.state.hardened import kept
from headgate.state.ledger import Ledger
from headgate.state.life import EXECUTING
from headgate.state.moves import stays, unit_of
from headgate.state.quotas import GPUS, AtLimit, Quotas, amounts_of
from headgate.state.view import View

_MANY = 64  # steps from which on columns are faster than steps one by one


def admit(state: State, seen: Snapshot, event: PlanReady) -> PlanAdmitted | PlanRejected:
    """Return the admitted part of a plan, or why it is rejected; `seen` is its snapshot.

    O(steps + jobs in its memo), and O(nodes + GPUs) for a large plan. Never raises, whatever a
    policy returns.
    """
    try:
        return _admit(state, seen, event)
    except Exception as error:  # noqa: BLE001  # any policy may return anything
        text = f"the plan cannot be read: {type(error).__name__}: {error}"
        return PlanRejected(at=event.at, message=text)


def _admit(state: State, seen: Snapshot, event: PlanReady) -> PlanAdmitted | PlanRejected:
    plan, fresh = event.plan, seen.version == state.version
    fault = _memo_fault(seen, plan) or scaling_fault(seen, plan) or width_fault(seen, plan)
    steps = wanted = with_resizes(seen, plan.steps, plan.resizes)
    widths = {job: tasks for job, tasks, _ in plan.widths}
    if fault is None and not fresh:
        fault = _possible(seen, wanted, widths)[1]
        wanted = with_resizes(state, plan.steps, plan.resizes)
    if fault is None:
        steps, infeasible = _possible(seen if fresh else state, wanted, widths)
        fault = infeasible if fresh else None
    if fault is not None:
        return PlanRejected(at=event.at, message=f"the plan is infeasible: {fault}")
    return PlanAdmitted(
        at=event.at,
        starts=_starts(state, steps),
        stops=_stops(state, steps),
        moves=_moves(state, steps),
        memo={
            name: {state.job(job).id: float(value) for job, value in values.items()}
            for name, values in plan.memo.items()
            if values
        },
        node_memo={
            name: {state.node(node).id: float(value) for node, value in values.items()}
            for name, values in plan.node_memo.items()
            if values
        },
        again_at=plan.again_at,
        dropped=len(wanted) - len(steps),
        orders=orders_of(state, plan),
        drains=drains_of(state, plan, steps),
        hardened=kept(state, plan.hardened),
        widths=widths_of(state, plan, steps),
    )


def _starts(state: State, steps: Steps) -> tuple[Admitted, ...]:
    """Return the runs that start, by group, in a group the members of a gang together."""
    tasks, jobs, specs, nodes = state.tasks, state.jobs, state.names.jobs, state.nodes.spec
    group, starts, turns = steps.starts.group.tolist(), [], []
    first: dict[tuple[int, int], int] = {}  # group, gang -> its first member
    for number, (task, node, gpus) in enumerate(steps.starts):
        job = tasks.job[task]
        run = RunId(specs[job].id, task - jobs.first_task[job], tasks.next_attempt[task])
        starts.append(Admitted(run, nodes[node].id, gpus))
        first_member = first.setdefault((group[number], job), number) if jobs.gang[job] else number
        turns.append((group[number], first_member))
    order = sorted(range(len(starts)), key=turns.__getitem__)
    return tuple([starts[number] for number in order])


def _stops(state: State, steps: Steps) -> tuple[Preempted, ...]:
    """Return the runs that are stopped, by group; those of one reason in a row share it."""
    if not steps.stops:
        return ()
    stops = list(zip(steps.stops.group.tolist(), steps.stops.task.tolist(), strict=True))
    stops.sort(key=lambda stop: stop[0])
    whys = {
        number: (reason.cause(), _winner(reason), _lender(reason))
        for number, reason in steps.reasons.items()
    }
    return tuple(
        Preempted(tuple(state.run_id(task) for _, task in same), *why)
        for why, same in groupby(stops, key=lambda stop: whys.get(stop[0], ("", "", "")))
    )


def _winner(reason: Reason) -> str:
    """Return the job for which runs are preempted or moved, "" for several."""
    named = PreemptedFor | OutrankedBy | MovedFor | TakenBack
    return reason.job if isinstance(reason, named) else ""


def _lender(reason: Reason) -> str:
    """Return the queue that takes back what it has lent, "" if none does."""
    return reason.queue if isinstance(reason, TakenBack) else ""


def _moves(state: State, steps: Steps) -> tuple[Moved, ...]:
    """Return the runs that move, by group."""
    groups: dict[int, list[Admitted]] = {}
    for group, (task, node, gpus) in zip(steps.moves.group.tolist(), steps.moves, strict=True):
        admitted = Admitted(state.run_id(task), state.node(node).id, gpus)
        groups.setdefault(group, []).append(admitted)
    reasons = {number: (r.cause(), _winner(r)) for number, r in steps.reasons.items()}
    return tuple(Moved(tuple(runs), *reasons.get(n, ("", ""))) for n, runs in groups.items())


def _memo_fault(view: View, plan: Plan) -> str | None:
    """Return what is wrong with the memos or the time `again_at` of a plan."""
    if plan.again_at is not None and not math.isfinite(plan.again_at):
        return f"the time of its next round is {plan.again_at}"
    by_job = _values_fault(plan.memo, "job", len(view.jobs.state), lambda row: view.job(row).id)
    return by_job or _values_fault(
        plan.node_memo, "node", len(view.nodes.alive), lambda row: view.node(row).id
    )


def _values_fault(memo: Memo, what: str, rows: int, id_of: Callable[[int], str]) -> str | None:
    """Return what is wrong with the columns of a memo by row of a job or node."""
    for name, values in memo.items():
        if not isinstance(name, str):  # a policy may be untyped
            return f"{name!r} is no name of a memo"  # type: ignore[unreachable]  # see above
        for row, value in values.items():
            if not 0 <= row < rows:
                return f"{name}: there is no {what} {row}"
            if not math.isfinite(value):
                return f"{name} of {what} {id_of(row)} is {value}"
    return None


def _possible(
    view: State | Snapshot, steps: Steps, widths: Mapping[int, int]
) -> tuple[Steps, str | None]:
    """Return the feasible groups, each after those before it, and why the first other is not.

    `widths` are those that training jobs (rows) get before.
    """
    if not len(steps):
        return steps, None
    possible = _all_together(view, steps) if len(steps) >= _MANY and not widths else None
    trial = _Trial(view, widths, alone=len(steps.starts) == 1 and not len(steps.moves))
    if possible is None:
        taken = [trial.take(group) for group in steps]
        if all(taken):
            return steps, None
        return steps.only(np.array(taken)), trial.fault
    if possible.all():
        return steps, None
    first = np.arange(len(possible)) == possible.argmin()
    trial.take(next(iter(steps.only(first))))
    return steps.only(possible), trial.fault


def _ledger(view: View) -> Ledger:
    """Return a ledger for reading only."""
    if isinstance(view, State):
        return view.ledger
    return Ledger(view.names, view.nodes, view.gpus, view.grants)


class _Trial:
    """Groups tried one after the other in a tentative ledger; an infeasible one takes nothing."""

    def __init__(self, view: View, widths: Mapping[int, int], *, alone: bool) -> None:
        """Start from a view; `alone`: there is one start in all groups."""
        self._view, self._widths, self._alone = view, widths, alone
        self._ledger: Ledger | None = None
        self._tasks: set[int] = set()  # started or stopped; never iterated
        self._quotas = Quotas(view)
        self.fault: str | None = None  # of the first infeasible group

    def take(self, group: Group) -> bool:
        """Take what a group holds; return whether it is feasible. O(its steps)."""
        starts = [step for step in group.steps if isinstance(step, Start)]
        stops = [step.task for step in group.steps if isinstance(step, Stop)]
        moves = [step for step in group.steps if isinstance(step, Move)]
        moved = [move.task for move in moves]
        fault = self._stop_fault(stops + moved)
        if fault is None and starts and self._alone:  # no other start needs the rest
            fault = self._start_fault(_ledger(self._view), starts)
        elif fault is None and (starts or moves):
            if self._ledger is None:
                self._ledger = Ledger.tentative(self._view)
            with self._ledger.trial() as attempt:
                fault = self._move_fault(self._ledger, moves)
                fault = fault or self._start_fault(self._ledger, starts)
                if fault is None:
                    attempt.keep()
        if fault is None:
            self._tasks.update(stops, moved, (start.task for start in starts))
        elif self.fault is None:
            self.fault = fault
        return fault is None

    def _stop_fault(self, stops: list[int]) -> str | None:
        states = self._view.tasks.state
        named: set[int] = set()
        for task in stops:
            if not 0 <= task < len(states):
                return f"there is no task {task}"
            if states[task] not in EXECUTING:
                return f"task {task} does not run"
            if task in self._tasks or task in named:
                return f"task {task} is preempted twice"
            named.add(task)
        return None

    def _move_fault(self, ledger: Ledger, moves: list[Move]) -> str | None:
        """Take the targets of moves; return what is wrong with the first infeasible one."""
        view = self._view
        units: dict[range, list[Move]] = {}
        for move in moves:
            units.setdefault(unit_of(view, move.task), []).append(move)
            if not 0 <= move.node < len(view.nodes.alive) or not view.nodes.alive[move.node]:
                return f"task {move.task}: node {move.node} is not up"
        for unit, members in units.items():
            elsewhere = [m for m in members if not stays(view, *m)]
            fault = self._unit_fault(unit, members, elsewhere)
            if fault is not None:
                return fault
            for task, node, gpus in elsewhere:
                try:
                    ledger.take(task, view.tasks.demand[task], node, gpus)
                except InvariantBroken as error:
                    return f"task {task}: {error}"
        return None

    def _unit_fault(self, unit: range, moves: list[Move], elsewhere: list[Move]) -> str | None:
        """Return what is wrong with the moves of a gang, or of one task, as a whole."""
        view, job = self._view, self._view.job(self._view.tasks.job[unit.start])
        if len(moves) < len(unit):
            return f"gang {job.id} is not moved as a whole"
        if not elsewhere:
            return f"task {unit.start} would move to where it is"
        if job.gang and job.distinct_nodes and len({move.node for move in moves}) < len(moves):
            return f"gang {job.id} has two members on one node"
        for task, node, gpus in moves:
            if set(gpus) & set(view.withheld_gpus_of(node)):
                return f"task {task}: other programs use a GPU of {view.node(node).id}"
            if view.jobs.state[view.tasks.job[task]] != JobState.ACTIVE:
                return f"job {job.id} is ending"
        return None

    def _start_fault(self, ledger: Ledger, starts: list[Start]) -> str | None:
        """Take what starts hold; return what is wrong with the first infeasible one."""
        view, tasks = self._view, self._view.tasks
        named: set[int] = set()
        queues: dict[int, dict[int, int]] = {}  # amounts by kind, by row of quotas
        gangs: dict[int, list[int]] = {}  # the nodes of the members, by job
        for start in starts:
            task = start.task
            fault = self._step_fault(start, named)
            if fault is not None:
                return fault
            named.add(task)
            demand = tasks.demand[task]
            fault = self._hold(ledger, start, demand)
            if fault:
                return f"task {task}: {fault}"
            job = tasks.job[task]
            of_queue = queues.setdefault(self._quotas.row_of(job), {})
            for kind, amount in amounts_of(view.names, demand):
                of_queue[kind] = of_queue.get(kind, 0) + amount
            if view.jobs.gang[job] or job in self._widths:
                gangs.setdefault(job, []).append(start.node)
        return self._gang_fault(gangs) or self._queue_fault(queues)

    def _hold(self, ledger: Ledger, start: Start, demand: int) -> str:
        """Take what a start holds, if there are other starts; return why it does not fit."""
        task, node, gpus = start
        if self._alone:
            return ledger.infeasibility(demand, node, gpus)
        try:
            ledger.take(task, demand, node, gpus)
        except InvariantBroken as error:
            return str(error)
        return ""

    def _step_fault(self, start: Start, named: set[int]) -> str | None:
        """Return what is wrong with a start, independent of free resources."""
        view, (task, node, _) = self._view, start
        if not 0 <= task < len(view.tasks.state):
            return f"there is no task {task}"
        if task in named:
            return f"task {task} is named twice"
        if not self._may_start(task) or task in self._tasks:
            return f"task {task} does not wait"
        if not 0 <= node < len(view.nodes.alive) or not view.nodes.alive[node]:
            return f"task {task}: node {node} is not up"
        return None

    def _may_start(self, task: int) -> bool:
        job = self._view.tasks.job[task]
        if job not in self._widths:
            return may_start(self._view, task)
        is_within = self._view.ordinal(task) < self._widths[job]
        return is_within and self._view.tasks.state[task] in (TaskState.HELD, TaskState.WAITING)

    def _gang_fault(self, gangs: dict[int, list[int]]) -> str | None:
        for row, nodes in gangs.items():
            job = self._view.job(row)
            if len(nodes) != self._widths.get(row, unit_size(self._view, row)):
                return f"gang {job.id} is not whole in its group"
            if job.distinct_nodes and len(set(nodes)) < len(nodes):
                return f"gang {job.id} has two members on one node"
        return None

    def _queue_fault(self, queues: dict[int, dict[int, int]]) -> str | None:
        """Add to what queues and users hold, unless it exceeds a limit; return which one."""
        quotas = self._quotas
        for number, (row, amounts) in enumerate(queues.items()):
            found = quotas.at_limit(row, amounts.items())
            if found is not None:
                for earlier, added in [*queues.items()][:number]:
                    quotas.add(earlier, added.items(), -1)
                return self._over(found, amounts)
            quotas.add(row, amounts.items())
        return None

    def _over(self, limit: AtLimit, more: Mapping[int, int]) -> str:
        rows = self._quotas.rows
        name = self._view.queue(rows.queue_of(limit.row)).name
        if limit.kind is None:
            return f"queue {name} is stopped"
        what = "GPUs" if limit.kind == GPUS else self._view.names.resources[limit.kind]
        if limit.keeps:
            return f"queue {name} lends no {what} now"
        held = amount_of(self._quotas.used(limit.row, limit.kind) + more[limit.kind])
        most = amount_of(self._quotas.limit(limit.row, limit.kind))
        user = rows.user_of(limit.row)
        if user is not None:
            return f"{user} would have {held} {what} in queue {name}, more than {most}"
        return f"queue {name} would have {held} {what} allocated, more than {most}"


def _all_together(view: State | Snapshot, steps: Steps) -> Bools | None:
    """Return which groups are feasible, `[groups]`: each separately, and all of these together.

    None where columns do not suffice, and the groups must be tried one after the other.
    """
    if len(steps.moves):
        return None
    snapshot = view if isinstance(view, Snapshot) else view.freeze()
    starts, stops = steps.starts, steps.stops
    if len(np.unique(starts.task)) < len(starts) or len(np.unique(stops.task)) < len(stops):
        return None
    possible = np.ones(steps.groups, bool)
    known = _within(stops.task, len(snapshot.tasks.state))
    states = snapshot.tasks.state.take(stops.task[known])
    possible[stops.group[~known]] = False
    possible[stops.group[known][~np.isin(states, EXECUTING)]] = False
    known = _within(starts.task, len(snapshot.tasks.state))
    known &= _within(starts.node, len(snapshot.nodes.alive))
    possible[starts.group[~known]] = False
    exist = np.flatnonzero(known)
    return _starts_together(snapshot, starts.take(exist, starts.group[exist]), possible)


def _within(rows: Ints, count: int) -> Bools:
    known: Bools = (rows >= 0) & (rows < count)
    return known


def _starts_together(snapshot: Snapshot, starts: Starts, possible: Bools) -> Bools | None:
    """Return which of the `possible` groups have feasible starts as well."""
    task, group, tasks = starts.task, starts.group, snapshot.tasks
    grants = ManyGrants(
        snapshot, tasks.demand.take(task), starts.node, starts.gpu_offset, starts.gpu
    )
    if grants.need_ledger:
        return None
    can = may_all_start(snapshot, task) & grants.fit_alone()
    can &= snapshot.nodes.alive.take(starts.node) > snapshot.nodes.draining.take(starts.node)
    possible[group[~can]] = False
    job = tasks.job.take(task).astype(np.int64)
    possible[_broken_gangs(snapshot, job, group)] = False
    possible[_crowded_gangs(snapshot, job, group, starts.node)] = False
    chosen = possible[group]
    fits = grants.fit_together(chosen)
    demands = tasks.demand.take(task)[chosen]
    return possible if fits and _under_limits(snapshot, job[chosen], demands) else None


def _broken_gangs(snapshot: Snapshot, job: Ints, group: Ints) -> Ints:
    """Return the groups that start some, but not all tasks of a gang."""
    member = np.flatnonzero(snapshot.jobs.gang.take(job))
    if not len(member):
        return member
    pairs = np.stack([group[member], job[member]])
    (groups, gangs), count = np.unique(pairs, axis=1, return_counts=True)
    broken: Ints = groups[count != unit_sizes(snapshot, gangs)]
    return broken


def _crowded_gangs(snapshot: Snapshot, job: Ints, group: Ints, node: Ints) -> Ints:
    """Return the groups that start two members of a gang of distinct nodes on one node."""
    gangs = np.unique(job[snapshot.jobs.gang.take(job) > 0])
    distinct = [row for row in gangs.tolist() if snapshot.job(row).distinct_nodes]
    member = np.flatnonzero(np.isin(job, distinct))
    places = np.stack([group[member], job[member], node[member]])
    taken, count = np.unique(places, axis=1, return_counts=True)
    crowded: Ints = taken[0, count > 1]
    return crowded


def _under_limits(snapshot: Snapshot, job: Ints, demand: Ints) -> bool:
    """Return whether all queues and users may hold these demands more for these jobs (rows)."""
    quotas = Quotas(snapshot)
    kinds = np.stack([quotas.rows.of_jobs(job), demand])
    pairs, counts = np.unique(kinds, axis=1, return_counts=True)
    for (line, row), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
        amounts = [(kind, count * each) for kind, each in amounts_of(snapshot.names, row)]
        if quotas.at_limit(line, amounts) is not None:
            return False
        quotas.add(line, amounts)
    return True


def move_fault(state: State, move: Moved) -> str | None:
    """Return why a requested move is infeasible, None if it is feasible."""
    steps: list[Step] = []
    for run, name, gpus in move.runs:
        task, node = state.run_row(run), state.names.node_rows.get(name)
        if task is None or node is None:
            return f"there is no run {run}" if task is None else f"there is no node {name}"
        steps.append(Move(task, node, gpus))
    return _possible(state, Steps.of((Group(tuple(steps)),)), {})[1]
