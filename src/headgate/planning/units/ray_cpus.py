"""The CPUs that a Ray program holds of its nodes where it names none: its GPUs' part of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headgate.model import WHOLE, Job, Node, Task
from headgate.planning.units.fit import gpus_that_fit


def with_cpus_of_gpus(job: Job, nodes: Sequence[Node]) -> Job:
    """Return a job whose tasks hold their GPUs' part of a node's CPUs, if it is to hold that.

    A demand is the same on every node, so it is the least part on those nodes that have GPUs for
    the task; where a node has more CPUs per GPU, the program's Ray cluster has more of them. None
    are held while no node is up. O(tasks x nodes).
    """
    ray = job.program.ray
    if ray is None or not ray.cpus_by_gpus:
        return job
    return replace(job, tasks=tuple(_with_cpus(task, nodes) for task in job.tasks))


def _with_cpus(task: Task, nodes: Sequence[Node]) -> Task:
    parts = [
        WHOLE * node.cpus * task.demand.gpus // len(node.gpus)
        for node in nodes
        if gpus_that_fit(node, task.demand) >= task.demand.gpus
    ]
    return replace(task, demand=replace(task.demand, cpus_milli=min(parts))) if parts else task
