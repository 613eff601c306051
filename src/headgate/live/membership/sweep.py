"""Leftovers on a node: data that its report lists and the state does not need.

Every report is compared with the state, without memory of earlier ones, so data that could not be
removed (the node was lost, its agent did not respond, the controller ended) is found again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from headgate.live.actors.agent import AgentReport, Leftovers
from headgate.state import Snapshot
from headgate.state.life import ENDED
from headgate.state.lookup import known_row


def unknown_jobs(view: Snapshot, report: AgentReport) -> tuple[str, ...]:
    """Return the jobs in a node's report that the state does not contain."""
    return tuple(job for job in report.jobs if known_row(view, job) is None)


def leftovers(
    view: Snapshot,
    report: AgentReport,
    uploading: Collection[str],
    archived: Mapping[str, bool],
) -> Leftovers:
    """Return the leftovers in a node's report; O(jobs and shards in it).

    These are data of jobs whose results have expired, scratch of jobs that have ended, and shards
    of datasets that were removed, or whose upload was abandoned. `archived` maps the archived ones
    of `unknown_jobs` to whether their results have expired; data of all others is kept.
    """
    rows = {job: row for job in report.jobs if (row := known_row(view, job)) is not None}
    expired = [job for job, row in rows.items() if not math.isnan(view.jobs.expired_at[row])]
    expired += [job for job in report.jobs if job not in rows and archived.get(job)]
    ended = [
        job
        for job in report.scratch
        if (view.jobs.state[rows[job]] in ENDED if job in rows else job in archived)
    ]
    return Leftovers(
        jobs=tuple(expired),
        scratch=tuple(ended),
        shards=tuple(
            shard.id
            for shard in report.shards
            if is_dataset_shard(shard.id)
            and shard.id.partition(":")[0] not in uploading
            and not _in_dataset(view, shard.id)
        ),
    )


def is_dataset_shard(shard: str) -> bool:
    """Return whether a shard id is of a dataset (`name:00000`), not of a result or a file."""
    name, colon, number = shard.partition(":")
    return bool(colon) and "/" not in name and number.isdigit()


def _in_dataset(view: Snapshot, shard: str) -> bool:
    name, _, number = shard.partition(":")
    dataset = view.datasets.get(name)
    return dataset is not None and any(s.id == shard for s in dataset.shards[int(number) :][:1])
