"""The submission check: rejects jobs that can never run, in every world equally."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from headgate.model import WHOLE, Job, Node, Queue, amount_of
from headgate.model.queue import GPUS_KIND, takes_of
from headgate.model.scaling import Scaling
from headgate.planning.place.limits import queue_too_small, user_too_small
from headgate.planning.place.why import never_fits_a_node, never_fits_together
from headgate.planning.scaling.decision import nearest_shape
from headgate.planning.units.fit import (
    demand_text,
    infeasible_demand,
    members_that_fit,
)
from headgate.ports import Policy
from headgate.protocol import Reason
from headgate.protocol.queue_reasons import UserTooSmall
from headgate.protocol.reasons import NothingFits, QueueTooSmall


def check_submission(
    job: Job,
    queues: Sequence[Queue],
    nodes: Sequence[Node],
    policy: Policy,
    scaling: Scaling | None = None,
) -> Reason | None:
    """Return why a job can never run in its queue, on these nodes, under this policy, or None.

    `queues` are its own and those above it. With no node up yet, every demand passes.
    """
    return policy.refuses(job) or never_fits(job, queues, nodes, scaling)


def never_fits(
    job: Job, queues: Sequence[Queue], nodes: Sequence[Node], scaling: Scaling | None = None
) -> Reason | None:
    """Return why a job can never run in its queue, on these nodes, under any policy, or None.

    Depends on the demands of its tasks only. With no node up yet, every demand passes. With
    `scaling`, nodes that could be ordered count as well; a job that waits for a node always fits.
    """
    too_small = exceeds_queues(job, queues)
    if too_small is not None or not nodes or job.wait_for_node:
        return too_small
    lacking = fits_no_node(job, nodes)
    if lacking is None or scaling is None:
        return lacking
    lacking = fits_no_node(job, [*nodes, *ordered_nodes(scaling, nodes, job.unit_tasks)])
    if lacking is None or lacking.task is None:
        return lacking
    near = nearest_shape(scaling, job.tasks[lacking.task].demand)
    nearest = (
        "" if near is None else f"; of the shapes that can be ordered the nearest is {near.name}"
    )
    return replace(lacking, most=lacking.most + nearest)


def ordered_nodes(scaling: Scaling, nodes: Sequence[Node], most: int) -> list[Node]:
    """Return nodes that could be ordered beside these, at most so many of each shape.

    The limits count for each shape alone.
    """
    room = math.inf if scaling.max_nodes is None else max(0, scaling.max_nodes - len(nodes))
    return [
        shape.node(f"{shape.name}-{number}", "")
        for shape in scaling.shapes
        for number in range(int(min(most, room, math.inf if shape.most is None else shape.most)))
    ]


def exceeds_queues(job: Job, queues: Sequence[Queue]) -> QueueTooSmall | UserTooSmall | None:
    """Return a reason if tasks that must run together need more than a queue allows.

    More GPUs than it may hold, or more of any kind than each user may hold in it; of several that
    allow too little, the one that allows least.
    """
    needed_gpus = -(-_together(job, GPUS_KIND) // WHOLE)
    limits = [(queue.most_gpus(), queue) for queue in queues]
    some = [(most, queue.name) for most, queue in limits if most is not None]
    most, name = min(some, key=lambda each: each[0], default=(needed_gpus, ""))
    if needed_gpus > most:
        return queue_too_small(name, needed_gpus, most)
    of_users = [(amount, kind, q.name) for q in queues for kind, amount in q.per_user]
    for amount, kind, name in sorted(of_users, key=lambda each: each[0]):
        if _together(job, kind) > amount:
            return user_too_small(name, kind, _together(job, kind), amount)
    return None


def _together(job: Job, kind: str) -> int:
    """Return the most of a kind that tasks of a job need which start together."""
    needs = [dict(takes_of(task.demand)).get(kind, 0) for task in job.tasks]
    return max(sum(needs[: job.unit_tasks]), max(needs, default=0))


def fits_no_node(job: Job, nodes: Sequence[Node]) -> NothingFits | None:
    """Return the demand of a job that no idle node could hold, or None.

    O(tasks + distinct demands x GPUs).
    """
    first = {task.demand: number for number, task in reversed([*enumerate(job.tasks)])}
    for demand, task in sorted(first.items(), key=lambda each: each[1]):
        if infeasible_demand(demand, nodes):
            return never_fits_a_node(demand, task, nodes)
    count = job.unit_tasks
    if count == 1:
        return None
    members = job.tasks[:count]
    largest = members_that_fit(members, nodes, distinct_nodes=job.distinct_nodes)
    if largest == count:
        return None
    total = amount_of(sum(task.demand.gpus_milli for task in members))
    need = f"{count} tasks with {total} GPUs together (a gang)"
    if job.distinct_nodes:
        need = f"{count} processes with {demand_text(job.tasks[0].demand)} each on as many nodes"
    return never_fits_together(need, largest)
