"""The door: what is refused before it becomes a job, in every world alike."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.model import WHOLE, Job, Node, Queue, amount_of
from headgate.planning.fit import described, gang_fits, misfit
from headgate.ports import Policy
from headgate.protocol import Reason
from headgate.protocol.reasons import NothingFits, QueueTooSmall


def check_submission(
    job: Job, queue: Queue, nodes: Sequence[Node], policy: Policy
) -> Reason | None:
    """Return why a job can never run in its queue, on these nodes, under this policy, or None.

    With no node up yet nothing is known of what fits.
    """
    return (
        policy.refuses(job)
        or exceeds_queue(job, queue)
        or (fits_no_node(job, nodes) if nodes else None)
    )


def exceeds_queue(job: Job, queue: Queue) -> QueueTooSmall | None:
    """Return what of a job must run at once and is more than its queue may hold, or None."""
    needs = [task.demand.gpus_milli for task in job.tasks]
    at_once = -(-(sum(needs) if job.gang else max(needs, default=0)) // WHOLE)
    if queue.max_gpus is None or at_once <= queue.max_gpus:
        return None
    return QueueTooSmall(queue=queue.name, needed_gpus=at_once, max_gpus=queue.max_gpus)


def fits_no_node(job: Job, nodes: Sequence[Node]) -> NothingFits | None:
    """Return what of a job no node could hold, even idle, or None; O(kinds of task x GPUs)."""
    for demand in dict.fromkeys(task.demand for task in job.tasks):
        if misfit(demand, nodes):
            return NothingFits(need=f"{described(demand)} on one node")
    if job.gang and len(job.tasks) > 1 and not gang_fits(job.tasks, nodes):
        total = amount_of(sum(t.demand.gpus_milli for t in job.tasks))
        return NothingFits(need=f"{len(job.tasks)} tasks with {total} GPUs at once (a gang)")
    return None
