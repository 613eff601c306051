"""Why jobs wait under a policy that serves them in an order; computed on demand."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.model import WHOLE
from headgate.planning.shares import Ints
from headgate.protocol import Reason, Refusal
from headgate.protocol.reasons import BehindHead, GangShort, NoFreeGpu, QueueLimit
from headgate.state import Scratch


def refusals(scratch: Scratch, jobs: Ints) -> Iterator[Refusal]:
    """Yield why the jobs (rows, in order) wait of which a task has not started."""
    snapshot = scratch.snapshot
    started = {start.task for start in scratch.starts}
    waiting = [j for j in jobs.tolist() if not started.issuperset(snapshot.waiting_of(j).tolist())]
    heads: dict[int, str] = {}  # of queues at their ceilings
    head = ""
    for job in waiting:
        queue, name = snapshot.jobs.queue[job], snapshot.job(job).id
        if queue in heads:
            yield Refusal(reason=BehindHead(head=heads[queue]), jobs=(job,))
        elif not scratch.has_room(queue, snapshot.jobs.unit_gpus_milli[job]):
            heads[queue] = name
            yield Refusal(reason=_queue_limit(scratch, queue), jobs=(job,))
        elif not head:
            head = name
            yield Refusal(reason=_short(scratch, job), jobs=(job,))
        else:
            yield Refusal(reason=BehindHead(head=head), jobs=(job,))


def _queue_limit(scratch: Scratch, row: int) -> QueueLimit:
    queue = scratch.snapshot.queue(row)
    used_gpus = -(-scratch.used_milli(row) // WHOLE)
    return QueueLimit(queue=queue.name, used_gpus=used_gpus, max_gpus=queue.max_gpus or 0)


def _short(scratch: Scratch, job: int) -> Reason:
    snapshot = scratch.snapshot
    free = int(scratch.ledger.nodes.free_gpus.array().sum())
    needed = -(-snapshot.jobs.unit_gpus_milli[job] // WHOLE)
    if snapshot.jobs.gang[job]:
        tasks = snapshot.jobs.task_count[job]
        return GangShort(placeable_tasks=0, tasks=tasks, free_gpus=free, needed_gpus=needed)
    total = int(snapshot.nodes.gpu_count.array()[snapshot.live_nodes()].sum())
    return NoFreeGpu(free_gpus=free, needed_gpus=needed, total_gpus=total)
