"""What fits: tasks that no idle node holds, gangs that the whole cluster does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from headgate.base.units import format_size
from headgate.model import Node, Task


def need_of(task: Task) -> Task:
    """Return a task that needs the same of a node, and nothing else; equal for equal needs."""
    if task.gpus:
        return Task(gpus=task.gpus, gpu_memory_bytes=task.gpu_memory_bytes)
    return Task(gpus=0, cpus=task.cpus)


def described(task: Task) -> str:
    """Return what a task needs, in words."""
    if not task.gpus:
        return f"{task.cpus} CPU slots" if task.cpus != 1 else "a CPU slot"
    gpus = f"{task.gpus} GPUs" if task.gpus != 1 else "a GPU"
    return gpus + (f" with {format_size(task.gpu_memory_bytes)}" if task.gpu_memory_bytes else "")


def room(node: Node, need: Task) -> int:
    """Return how many tasks of a need an idle node holds."""
    if need.gpus:
        return sum(g.memory_bytes >= need.gpu_memory_bytes for g in node.gpus) // need.gpus
    return node.cpus // need.cpus


def misfit(task: Task, nodes: Iterable[Node]) -> str:
    """Return why no idle node can hold a task, or nothing if one can."""
    if any(room(node, task) for node in nodes):
        return ""
    return f"needs {described(task)} on one node, and no node has that"


def gang_misfit(tasks: Sequence[Task], nodes: Sequence[Node]) -> str:
    """Return why the idle cluster cannot hold all tasks at once, or nothing if it may.

    Exact for tasks that are alike. For others every need is set against all tasks that need at
    least as much, which finds most gangs that cannot fit and never accuses one that can.
    """
    needs = Counter(need_of(task) for task in tasks)
    for need in needs:
        as_big = sum(times for other, times in needs.items() if _at_least(other, need))
        places = sum(room(node, need) for node in nodes)
        if as_big > places:
            return (
                f"the gang can never start: {as_big} of its tasks need {described(need)} each, "
                f"and the whole cluster holds {places} such tasks at once"
            )
    gpus = sum(task.gpus for task in tasks)
    total = sum(len(node.gpus) for node in nodes)
    if gpus > total:
        return f"the gang can never start: it needs {gpus} GPUs at once, the cluster has {total}"
    return ""


def gang_fits(tasks: Sequence[Task], nodes: Sequence[Node]) -> bool:
    """Say whether first fit, as `fifo` does it, places all tasks on idle nodes at once."""
    free = [sorted(g.memory_bytes for g in node.gpus) for node in nodes]
    slots = [node.cpus for node in nodes]
    return all(_take_first(task, free, slots) for task in tasks)


def _take_first(task: Task, free: list[list[int]], slots: list[int]) -> bool:
    """Take what a task needs from the first node that has it; say whether one has."""
    for n, memories in enumerate(free):
        if task.gpus:
            fitting = [m for m in memories if m >= task.gpu_memory_bytes][: task.gpus]
            if len(fitting) == task.gpus:
                for memory_bytes in fitting:
                    memories.remove(memory_bytes)
                return True
        elif slots[n] >= task.cpus:
            slots[n] -= task.cpus
            return True
    return False


def _at_least(task: Task, need: Task) -> bool:
    if need.gpus:
        return task.gpus >= need.gpus and task.gpu_memory_bytes >= need.gpu_memory_bytes
    return not task.gpus and task.cpus >= need.cpus
