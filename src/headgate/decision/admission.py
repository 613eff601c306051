"""Admission: what of a plan can be done, as the state is now. Nothing is changed here.

A plan may be stale, so each part of it is checked against the state of now; parts that were
overtaken by what has happened since are dropped singly, gangs whole. A plan that was wrong for the
very snapshot that it was made on, in any part, is rejected whole: its policy is broken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headgate.model import RunId
from headgate.protocol import Admitted, Placement, Plan, PlanAdmitted, PlanReady, PlanRejected
from headgate.state import Snapshot, State, TaskState
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
    """A plan tried on a view of the state, part after part; what is dropped takes nothing."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._gpus: set[tuple[int, int]] = set()  # taken by groups that stand; never iterated
        self._tasks: set[int] = set()  # the same, of tasks
        self._cpus: dict[int, int] = {}  # by node
        self._queues: dict[int, int] = {}  # GPUs taken, by queue
        self.first_fault: str | None = None
        self.dropped = 0

    def _drop(self, fault: str, parts: int) -> None:
        self.dropped += parts
        if self.first_fault is None:
            self.first_fault = fault

    def groups(self, plan: Plan) -> list[Group]:
        """Return the groups of placements that stand."""
        standing = []
        for group in _groups(self._view, plan):
            fault = self._take(group)
            if fault is None:
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

    def _take(self, group: Group) -> str | None:
        """Let a group stand, or return why it cannot; O(placements)."""
        view = self._view
        gpus: set[tuple[int, int]] = set()
        tasks: set[int] = set()
        cpus: dict[int, int] = {}
        for p in group:
            fault = _placement_fault(view, p)
            if fault is not None:
                return fault
            wanted = {(p.node, gpu) for gpu in p.gpus}
            if len(wanted) < len(p.gpus) or gpus & wanted or p.task in tasks:
                return f"task {p.task}: a GPU or a task is named twice"
            if p.task in self._tasks:
                return f"task {p.task} does not wait"
            if self._gpus & wanted:
                (_, gpu) = min(self._gpus & wanted)
                return f"task {p.task}: GPU {gpu} of {view.node(p.node).id} is not free"
            gpus |= wanted
            tasks.add(p.task)
            cpus[p.node] = cpus.get(p.node, 0) + view.tasks.cpus[p.task]
            if cpus[p.node] + self._cpus.get(p.node, 0) > view.nodes.free_cpus[p.node]:
                return f"task {p.task}: too few free CPU slots on {view.node(p.node).id}"
        job = view.tasks.job[group[0].task]
        if view.job(job).gang and len(group) != view.jobs.task_count[job]:
            return f"gang {view.job(job).id} is not whole"
        queue = view.jobs.queue[job]
        limit = view.queue(queue).max_gpus
        held = view.queues.held_gpus[queue] + self._queues.get(queue, 0) + len(gpus)
        if limit is not None and gpus and held > limit:
            return f"queue {view.queue(queue).name} would hold {held} GPUs, more than {limit}"
        self._gpus |= gpus
        self._tasks |= tasks
        self._queues[queue] = self._queues.get(queue, 0) + len(gpus)
        for node, count in cpus.items():
            self._cpus[node] = self._cpus.get(node, 0) + count
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


def _placement_fault(view: View, p: Placement) -> str | None:
    if not 0 <= p.task < len(view.tasks.state):
        return f"there is no task {p.task}"
    if view.tasks.state[p.task] != TaskState.WAITING:
        return f"task {p.task} does not wait"
    if not 0 <= p.node < len(view.nodes.alive) or not view.nodes.alive[p.node]:
        return f"task {p.task}: node {p.node} is not up"
    if len(p.gpus) != view.tasks.gpus[p.task]:
        return f"task {p.task} needs {view.tasks.gpus[p.task]} GPUs, not {len(p.gpus)}"
    first, count = view.nodes.first_gpu[p.node], view.nodes.gpu_count[p.node]
    for gpu in p.gpus:
        if not 0 <= gpu < count or view.gpus.task[first + gpu] != -1:
            return f"task {p.task}: GPU {gpu} of {view.node(p.node).id} is not free"
        if view.gpus.memory_bytes[first + gpu] < view.tasks.memory_bytes[p.task]:
            return f"task {p.task}: GPU {gpu} of {view.node(p.node).id} is too small"
    return None
