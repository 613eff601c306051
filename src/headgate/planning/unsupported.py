"""Jobs that policies of single whole GPUs refuse: gangs, tasks on several GPUs or part of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headgate.model import Job
from headgate.protocol import Refusal
from headgate.protocol.reasons import PolicyRefuses
from headgate.state import Snapshot


def unsupported_feature(job: Job) -> str | None:
    """Return what a policy of single whole GPUs does not support about a job, or None."""
    if job.gang and len(job.tasks) > 1:
        return "gangs"
    if any(t.gpus > 1 for t in job.tasks):
        return "tasks of several GPUs"
    return "tasks with part of a GPU" if any(t.demand.in_part for t in job.tasks) else None


def refuse_unsupported(policy: str, job: Job) -> PolicyRefuses | None:
    """Return why a policy of single whole GPUs refuses a job at submission, or None."""
    what = unsupported_feature(job)
    return None if what is None else PolicyRefuses(policy=policy, what=what)


def unsupported_refusals(policy: str, snapshot: Snapshot, jobs: Iterable[int]) -> Iterator[Refusal]:
    """Yield the refusals of unsupported jobs (rows) that wait, submitted under another policy.

    Tasks without a GPU do not wait for this reason, except those of a gang.
    """
    table = snapshot.jobs
    for row in jobs:
        if table.waiting[row] or (table.gang[row] and table.waiting_cpu[row]):
            reason = refuse_unsupported(policy, snapshot.job(row))
            if reason is not None:
                yield Refusal(reason=reason, jobs=(row,))
