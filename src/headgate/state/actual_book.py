"""The actual book: the measured use of nodes and GPUs, beside what grants hold."""

from __future__ import annotations

import numpy as np

from headgate.model import WHOLE
from headgate.protocol import NodeReported, Outside, OverUse
from headgate.state.life import RUNS
from headgate.state.state import State
from headgate.state.view import View


def record_report(state: State, row: int, event: NodeReported) -> bool:
    """Update the actual book of a node that is up; return whether other runs may fit it now.

    Its measured use, of that what processes outside Headgate use, and which of its runs use more
    than they hold. The latter changes nothing of what fits. O(grants).
    """
    state.nodes.actual[row] = (event.cpus_milli, event.memory_bytes)  # in the order of BASE_KINDS
    state.nodes.reported_at[row] = state.now
    first, count = state.nodes.first_gpu[row], state.nodes.gpu_count[row]
    for index in range(count):
        used_bytes, milli = event.gpus[index] if index < len(event.gpus) else (None, None)
        state.gpus.actual_bytes[first + index] = -1 if used_bytes is None else used_bytes
        state.gpus.utilisation_milli[first + index] = -1 if milli is None else milli
    over = {state.run_row(each.run): each for each in event.over}
    for task in runs_on(state, row):
        each = over.get(task)
        state.tasks.over_bytes[task] = 0 if each is None else each.memory_bytes
        state.tasks.over_gpu_bytes[task] = 0 if each is None else each.gpu_bytes
    return state.ledger.set_outside(row, event.outside)


def runs_on(view: View, row: int) -> list[int]:
    """Return the tasks (rows) whose runs are on a node, ascending; O(grants)."""
    grants, tasks = view.grants, view.tasks
    holder = grants.task.array()
    here = np.unique(holder[(grants.node.array() == row) & (holder >= 0)])
    return [t for t in here.tolist() if tasks.node[t] == row and tasks.state[t] in RUNS]


def memory_held(view: View, task: int) -> tuple[int, int]:
    """Return the bytes of memory, and of one of its GPUs, beyond which a run uses too much.

    0 without such a limit: it requests no memory, or holds whole GPUs.
    """
    demand, first = view.demand(task), view.nodes.first_gpu[view.tasks.node[task]]
    sizes = [view.gpus.memory_bytes[first + index] for index in view.held_gpus(task)]
    part_bytes = demand.part_bytes(max(sizes, default=0)) if demand.in_part else 0
    return demand.memory_bytes, int(part_bytes)


def report_fault(view: View, row: int, event: NodeReported) -> str:
    """Return why a report of a node cannot be true, "" if it can."""
    runs = [each.run for each in event.over]
    faults = [_over_fault(view, row, each) for each in event.over]
    twice = "a run twice" if len({*runs}) < len(runs) else ""
    return outside_fault(view, row, event.outside) or twice or next(filter(None, faults), "")


def _over_fault(view: View, row: int, over: OverUse) -> str:
    task, spec, used = view.run_row(over.run), view.node(row), (over.memory_bytes, over.gpu_bytes)
    if task is None or view.tasks.state[task] not in RUNS:
        return f"run {over.run}, which is not under way"
    if view.tasks.node[task] != row:
        return f"run {over.run}, which is on another node"
    largest = max((spec.gpus[gpu].memory_bytes for gpu in view.held_gpus(task)), default=0)
    total, held = (spec.memory_bytes or 0, largest), memory_held(view, task)
    for has, most, some in zip(total, held, used, strict=True):
        if some and not 0 < most < some <= has:
            return f"{some} bytes for run {over.run}, which holds {most} of {has}"
    return "" if any(used) else f"run {over.run}, which uses no more than it holds"


def outside_fault(view: View, row: int, outside: Outside) -> str:
    """Return why what is reported as used outside Headgate of a node cannot be, "" if it can."""
    spec = view.node(row)
    if not 0 <= outside.cpus_milli <= WHOLE * spec.cpus:
        return f"{outside.cpus_milli / WHOLE:g} of its {spec.cpus} CPUs"
    if not 0 <= outside.memory_bytes <= (spec.memory_bytes or 0):
        return f"{outside.memory_bytes} of its {spec.memory_bytes or 0} bytes of memory"
    for gpu, used_bytes, _ in outside.gpus:
        if not 0 <= gpu < len(spec.gpus):
            return f"memory of GPU {gpu}, which it does not have"
        if not 0 <= used_bytes <= spec.gpus[gpu].memory_bytes:
            return f"{used_bytes} of the {spec.gpus[gpu].memory_bytes} bytes of GPU {gpu}"
    return ""
