"""Admission: a plan may be stale, so each part of it is checked again against today's state."""

from __future__ import annotations

from headgate.protocol import Placement, Plan
from headgate.state import State, TaskState

Group = tuple[Placement, ...]


def groups(state: State, plan: Plan) -> list[Group]:
    """Return the parts of a plan that stand or fall together: gangs whole, others one by one.

    In the plan's order; a gang stands where its first member stood.
    """
    found: dict[tuple[str, int], list[Placement]] = {}
    for number, placement in enumerate(plan.placements):
        known = 0 <= placement.task < len(state.tasks.state)
        job = state.tasks.job[placement.task] if known else -1
        gang = known and state.job(job).gang
        found.setdefault(("gang", job) if gang else ("one", number), []).append(placement)
    return [tuple(group) for group in found.values()]


def fault(state: State, group: Group) -> str | None:
    """Return why a group cannot be admitted as the state is now, or None; O(placements)."""
    taken: set[tuple[int, int]] = set()
    seen: set[int] = set()
    cpus: dict[int, int] = {}
    for p in group:
        reason = _placement_fault(state, p)
        if reason is not None:
            return reason
        wanted = {(p.node, gpu) for gpu in p.gpus}
        if len(wanted) < len(p.gpus) or taken & wanted or p.task in seen:
            return f"task {p.task}: a GPU or a task is named twice"
        taken |= wanted
        seen.add(p.task)
        cpus[p.node] = cpus.get(p.node, 0) + state.tasks.cpus[p.task]
        if cpus[p.node] > state.nodes.free_cpus[p.node]:
            return f"task {p.task}: too few free CPU slots on {state.node(p.node).id}"
    job = state.tasks.job[group[0].task]
    if state.job(job).gang and len(group) != state.jobs.task_count[job]:
        return f"gang {state.job(job).id} is not whole"
    queue = state.jobs.queue[job]
    limit = state.queue(queue).max_gpus
    held = state.queues.held_gpus[queue] + len(taken)
    if limit is not None and taken and held > limit:
        return f"queue {state.queue(queue).name} would hold {held} GPUs, more than {limit}"
    return None


def preemption_fault(state: State, task: int) -> str | None:
    """Return why a run cannot be cut short as the state is now, or None."""
    if not 0 <= task < len(state.tasks.state):
        return f"there is no task {task}"
    if state.tasks.state[task] not in (TaskState.STARTING, TaskState.RUNNING):
        return f"task {task} does not run"
    return None


def _placement_fault(state: State, p: Placement) -> str | None:
    if not 0 <= p.task < len(state.tasks.state):
        return f"there is no task {p.task}"
    if state.tasks.state[p.task] != TaskState.WAITING:
        return f"task {p.task} does not wait"
    if not 0 <= p.node < len(state.nodes.spec) or not state.nodes.alive[p.node]:
        return f"task {p.task}: node {p.node} is not up"
    if len(p.gpus) != state.tasks.gpus[p.task]:
        return f"task {p.task} needs {state.tasks.gpus[p.task]} GPUs, not {len(p.gpus)}"
    first, count = state.nodes.first_gpu[p.node], state.nodes.gpu_count[p.node]
    for gpu in p.gpus:
        if not 0 <= gpu < count or state.gpus.task[first + gpu] != -1:
            return f"task {p.task}: GPU {gpu} of {state.node(p.node).id} is not free"
        if state.gpus.memory_bytes[first + gpu] < state.tasks.memory_bytes[p.task]:
            return f"task {p.task}: GPU {gpu} of {state.node(p.node).id} is too small"
    return None
