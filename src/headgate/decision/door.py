"""The door: what is refused before it becomes a job, in every world alike."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.base.units import format_size
from headgate.decision.policy import Policy
from headgate.model import Job, Node, Task
from headgate.protocol import Reason
from headgate.protocol.reasons import NothingFits


def refuse(job: Job, nodes: Sequence[Node], policy: Policy) -> Reason | None:
    """Return why a job can never run on these nodes under this policy, or None.

    With no node up yet nothing is known, and only the policy is asked.
    """
    return policy.refuses(job) or (unfit(job, nodes) if nodes else None)


def unfit(job: Job, nodes: Sequence[Node]) -> NothingFits | None:
    """Return what of a job no node could hold, even idle, or None; O(kinds of task x GPUs)."""
    kinds = dict.fromkeys((t.gpus, t.gpu_memory_bytes, 0 if t.gpus else t.cpus) for t in job.tasks)
    for gpus, memory_bytes, cpus in kinds:
        if not any(_holds(node, gpus, memory_bytes, cpus) for node in nodes):
            return NothingFits(need=_need(gpus, memory_bytes, cpus))
    if job.gang and len(job.tasks) > 1 and not _gang_fits(job.tasks, nodes):
        total = sum(t.gpus for t in job.tasks)
        return NothingFits(need=f"{len(job.tasks)} tasks with {total} GPUs at once (a gang)")
    return None


def _holds(node: Node, gpus: int, memory_bytes: int, cpus: int) -> bool:
    if gpus == 0:
        return node.cpus >= cpus
    return sum(g.memory_bytes >= memory_bytes for g in node.gpus) >= gpus


def _need(gpus: int, memory_bytes: int, cpus: int) -> str:
    if gpus == 0:
        return f"{cpus} CPU slots on one node"
    memory = f" of {format_size(memory_bytes)}" if memory_bytes else ""
    return f"{gpus} GPU{'s' if gpus > 1 else ''}{memory} on one node"


def _gang_fits(tasks: Sequence[Task], nodes: Sequence[Node]) -> bool:
    """Say whether first fit places all tasks on idle nodes, as `fifo` will try to."""
    free = [sorted(g.memory_bytes for g in node.gpus) for node in nodes]
    slots = [node.cpus for node in nodes]
    for task in tasks:
        for n in range(len(nodes)):
            if task.gpus == 0 and slots[n] >= task.cpus:
                slots[n] -= task.cpus
                break
            fitting = [m for m in free[n] if m >= task.gpu_memory_bytes]
            if task.gpus and len(fitting) >= task.gpus:
                for memory in fitting[: task.gpus]:
                    free[n].remove(memory)
                break
        else:
            return False
    return True
