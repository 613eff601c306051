"""Admission: what of a plan can be done, as the state is now. Nothing is changed here.

A plan may be stale, so each part of it is checked against the state of now; parts that were
overtaken by what has happened since are dropped singly, gangs whole. A plan that was wrong for the
very snapshot that it was made on, in any part, is rejected whole: its policy is broken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headgate.base.errors import InvariantBroken
from headgate.model import WHOLE, RunId, amount_of
from headgate.protocol import Admitted, Placement, Plan, PlanAdmitted, PlanReady, PlanRejected
from headgate.state import Snapshot, State, TaskState
from headgate.state.ledger import Ledger
from headgate.state.view import View

Group = tuple[Placement, ...]

_RUNS = (TaskState.STARTING, TaskState.RUNNING)


def admit(state: State, seen: Snapshot, event: PlanReady) -> PlanAdmitted | PlanRejected:
    """Return what of a plan is admitted, or why it is rejected; `seen` is what it was made on.

    O(placements + jobs remembered). Never raises, whatever a policy returns.
    """
    try:
        return _admit(state, seen, event)
    except Exception as error:  # noqa: BLE001  # a plan is made by anyone's policy
        text = f"the plan cannot be read: {type(error).__name__}: {error}"
        return PlanRejected(at=event.at, message=text)


def _admit(state: State, seen: Snapshot, event: PlanReady) -> PlanAdmitted | PlanRejected:
    plan = event.plan
    trial = _Trial(state)
    groups = trial.groups(plan)
    stops = trial.stops(plan)
    fault = _memo_fault(seen, plan)
    if fault is None and seen.version == state.version:
        fault = trial.first_fault
    elif fault is None:
        then = _Trial(seen)
        then.groups(plan)
        then.stops(plan)
        fault = then.first_fault
    if fault is not None:
        return PlanRejected(at=event.at, message=f"the policy planned the impossible: {fault}")
    return PlanAdmitted(
        at=event.at,
        starts=tuple(_admitted(state, p) for group in groups for p in group),
        stops=tuple(state.run_id(task) for task in stops),
        memo={
            name: {state.job(job).id: float(value) for job, value in values.items()}
            for name, values in plan.memo.items()
            if values
        },
        again_at=plan.again_at,
        dropped=trial.dropped,
    )


def _admitted(state: State, placement: Placement) -> Admitted:
    task, node, gpus = placement
    job, ordinal, _ = state.run_id(task)
    return Admitted(
        run=RunId(job, int(ordinal), state.tasks.next_attempt[task]),
        node=state.node(node).id,
        gpus=tuple(map(int, gpus)),
    )


def _memo_fault(view: View, plan: Plan) -> str | None:
    """Return what is wrong with what a plan wants to remember, or with its time."""
    if plan.again_at is not None and not math.isfinite(plan.again_at):
        return f"it wants to be asked again at {plan.again_at}"
    jobs = len(view.jobs.state)
    for name, values in plan.memo.items():
        for job, value in values.items():
            if not 0 <= job < jobs:
                return f"{name}: there is no job {job}"
            if not math.isfinite(value):
                return f"{name} of job {view.job(job).id} is {value}"
    return None


class _Trial:
    """A plan tried on paper, part after part; what is dropped takes nothing."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._tasks: set[int] = set()  # placed; never iterated
        self._queues: dict[int, int] = {}  # thousandths of GPUs taken, by queue
        self.first_fault: str | None = None
        self.dropped = 0

    def _drop(self, fault: str, parts: int) -> None:
        self.dropped += parts
        if self.first_fault is None:
            self.first_fault = fault

    def groups(self, plan: Plan) -> list[Group]:
        """Return the groups of placements that stand."""
        standing: list[Group] = []
        if len(plan.placements) == 0:
            return standing
        ledger = Ledger.on_paper(self._view)
        for group in _groups(self._view, plan):
            with ledger.trial() as attempt:
                fault = self._take(ledger, group)
                if fault is None:
                    attempt.keep()
                    standing.append(group)
                else:
                    self._drop(fault, len(group))
        return standing

    def stops(self, plan: Plan) -> list[int]:
        """Return the runs that can be stopped."""
        standing = []
        states, seen = self._view.tasks.state, set()
        for task in plan.preemptions:
            if not 0 <= task < len(states):
                self._drop(f"there is no task {task}", 1)
            elif states[task] not in _RUNS:
                self._drop(f"task {task} does not run", 1)
            elif task in seen:
                self._drop(f"task {task} is preempted twice", 1)
            else:
                seen.add(task)
                standing.append(task)
        return standing

    def _take(self, ledger: Ledger, group: Group) -> str | None:
        """Let a group stand, or return why it cannot; O(placements)."""
        view, milli = self._view, 0
        tasks: set[int] = set()
        for p in group:
            fault = self._fault(p, tasks)
            if fault is not None:
                return fault
            tasks.add(p.task)
            demand = view.tasks.demand[p.task]
            try:
                ledger.take(p.task, demand, p.node, p.gpus)
            except InvariantBroken as error:
                return f"task {p.task}: {error}"
            milli += view.names.demands[demand].gpus_milli
        job = view.tasks.job[group[0].task]
        if view.job(job).gang and len(group) != view.jobs.task_count[job]:
            return f"gang {view.job(job).id} is not whole"
        queue = view.jobs.queue[job]
        limit = view.queue(queue).max_gpus
        held = view.queues.held_gpus_milli[queue] + self._queues.get(queue, 0) + milli
        if limit is not None and milli and held > WHOLE * limit:
            name, gpus = view.queue(queue).name, amount_of(held)
            return f"queue {name} would hold {gpus} GPUs, more than {limit}"
        self._tasks |= tasks
        self._queues[queue] = self._queues.get(queue, 0) + milli
        return None

    def _fault(self, p: Placement, tasks: set[int]) -> str | None:
        """Return what is wrong with a placement, whatever is free."""
        view = self._view
        if not 0 <= p.task < len(view.tasks.state):
            return f"there is no task {p.task}"
        if p.task in tasks:
            return f"task {p.task} is named twice"
        if view.tasks.state[p.task] != TaskState.WAITING or p.task in self._tasks:
            return f"task {p.task} does not wait"
        if not 0 <= p.node < len(view.nodes.alive) or not view.nodes.alive[p.node]:
            return f"task {p.task}: node {p.node} is not up"
        return None


def _groups(view: View, plan: Plan) -> Sequence[Group]:
    """Return the parts of a plan that stand or fall together: gangs whole, others one by one.

    In the plan's order; a gang stands where its first member stood.
    """
    count = len(view.tasks.state)
    found: dict[tuple[str, int], list[Placement]] = {}
    for number, placement in enumerate(plan.placements):
        known = 0 <= placement.task < count
        job = view.tasks.job[placement.task] if known else -1
        gang = known and view.job(job).gang
        found.setdefault(("gang", job) if gang else ("one", number), []).append(placement)
    return [tuple(group) for group in found.values()]
