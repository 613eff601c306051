"""Reasons of who may have more: queues at their ceilings, jobs at their shares, jobs behind others.

The reasons of what is short on the nodes are those of `planning.place.why`.
"""

from __future__ import annotations

import math

import numpy as np

from headgate.model import WHOLE
from headgate.model.queue import GPUS_KIND
from headgate.planning.times.estimates import Estimates
from headgate.protocol import Hardened, PlacesKept
from headgate.protocol.queue_reasons import (
    NotLent,
    QueueQuota,
    QueueStopped,
    UserLimit,
    UserTooSmall,
)
from headgate.protocol.reasons import (
    BehindHead,
    BelowShare,
    PreemptedFor,
    QueueLimit,
    QueueTooSmall,
    ShareLimit,
)
from headgate.state import Snapshot
from headgate.state.hardened import kept_gpus
from headgate.state.quotas import GPUS, Amounts, AtLimit, Quotas, gpus_alone
from headgate.state.tables import GPU_FREE

ONE_GPU = gpus_alone(WHOLE)


def queue_limit(
    snapshot: Snapshot, quotas: Quotas, row: int, amounts: Amounts = ONE_GPU
) -> QueueLimit | QueueQuota | QueueStopped | NotLent | UserLimit:
    """Return which limit leaves no room for more in a row of quotas: its own or one above it."""
    found = quotas.at_limit(row, amounts) or AtLimit(row, GPUS)
    queue = quotas.rows.queue_of(found.row)
    spec = snapshot.queue(queue)
    if found.kind is None:
        return QueueStopped(queue=spec.name)
    if found.keeps:
        return not_lent(snapshot, queue, found.kind)
    used = quotas.used(found.row, found.kind)
    user = quotas.rows.user_of(found.row)
    if user is not None:
        return UserLimit(
            queue=spec.name,
            user=user,
            resource=GPUS_KIND if found.kind == GPUS else snapshot.names.resources[found.kind],
            used=used,
            limit=quotas.limit(found.row, found.kind),
        )
    if found.kind == GPUS:
        return QueueLimit(
            queue=spec.name, used_gpus=-(-used // WHOLE), max_gpus=spec.most_gpus() or 0
        )
    limit = quotas.limit(found.row, found.kind)
    resource = snapshot.names.resources[found.kind]
    return QueueQuota(queue=spec.name, resource=resource, used=used, limit=limit)


def beyond_capacity(snapshot: Snapshot, quotas: Quotas, found: AtLimit) -> QueueQuota:
    """Return that a queue has allocated what it is guaranteed of a kind."""
    kind = found.kind
    assert kind is not None, "it is guaranteed some of it"
    return QueueQuota(
        queue=snapshot.queue(found.row).name,
        resource=GPUS_KIND if kind == GPUS else snapshot.names.resources[kind],
        used=quotas.used(found.row, kind),
        limit=quotas.guaranteed[kind][found.row],
    )


def not_lent(snapshot: Snapshot, queue: int, kind: int) -> NotLent:
    """Return that a queue (row) keeps what is free of a kind, which it is guaranteed."""
    resource = "GPUs" if kind == GPUS else snapshot.names.resources[kind]
    return NotLent(queue=snapshot.queue(queue).name, resource=resource)


def queue_too_small(queue: str, needed_gpus: int, max_gpus: int) -> QueueTooSmall:
    """Return that a queue never allows the GPUs that a job needs together."""
    return QueueTooSmall(queue=queue, needed_gpus=needed_gpus, max_gpus=max_gpus)


def user_too_small(queue: str, kind: str, needed: int, limit: int) -> UserTooSmall:
    """Return that a queue never allows a user so much of a kind as a job needs together."""
    return UserTooSmall(queue=queue, resource=kind, needed=needed, limit=limit)


def share_reason(
    snapshot: Snapshot, *, held: int, share: int, ahead: int, over: int
) -> ShareLimit | BelowShare:
    """Return why a job waits that holds some GPUs of its share, while others hold the rest.

    `ahead` is the job (row) farthest above its own share, by `over` GPUs.
    """
    name = snapshot.job(ahead).id
    if held >= share:
        return ShareLimit(running_gpus=held, share_gpus=share, ahead=name)
    return BelowShare(running_gpus=held, share_gpus=share, ahead=name, ahead_over_gpus=over)


def behind_head(head: str) -> BehindHead:
    """Return that a job comes after `head` (its id), which cannot start yet."""
    return BehindHead(head=head)


def places_kept(snapshot: Snapshot, hardened: Hardened) -> PlacesKept:
    """Return that places are kept for a unit, and who holds some of them yet."""
    gpus = kept_gpus(snapshot, hardened)
    holder = snapshot.gpus.task.take(gpus).astype(np.int64)
    tasks = np.unique(holder[holder >= 0])
    limit_at = snapshot.tasks.launched_at.take(tasks) + Estimates(snapshot).limit_s(tasks)
    last_at = float(limit_at.max(initial=snapshot.now))  # NaN if one has no time limit
    jobs = dict.fromkeys(snapshot.tasks.job.take(tasks).tolist())
    return PlacesKept(
        gpus=len(gpus),
        free_gpus=int(np.count_nonzero(holder == GPU_FREE)),
        jobs=tuple(snapshot.job(job).id for job in jobs),
        limit_at=None if math.isnan(last_at) else last_at,
        limit_s=None if math.isnan(last_at) else last_at - snapshot.now,
    )


def preempted_for(snapshot: Snapshot, job: int | None) -> PreemptedFor:
    """Return that a run stops for a job (row) below its share; None: for no single one."""
    return PreemptedFor(job="" if job is None else snapshot.job(job).id)
