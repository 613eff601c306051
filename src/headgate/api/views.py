"""JSON views of a snapshot, as plain values.

Times are seconds since the epoch, null before they are known; sizes are bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from headgate.api import ran, uses
from headgate.api.status import with_status
from headgate.foresight.explain import (
    Explanation,
    ExplanationContext,
    explain,
    held_by_limit,
)
from headgate.model import (
    CPUS,
    UNLIMITED,
    WHOLE,
    Dataset,
    Job,
    RunEnvironment,
    Shard,
    amount_of,
    result_ids,
    task_of_result,
)
from headgate.model.queue import queue_fields
from headgate.protocol import KeptRun, Moved, Reason, RunStop
from headgate.state import JobState, Snapshot, TaskState
from headgate.state.ledger import capacity
from headgate.state.lending import Loan, loans
from headgate.state.lookup import job_row, known_shard, task_row
from headgate.state.queues import in_tree
from headgate.state.quotas import Quotas
from headgate.state.stops import preemption
from headgate.state.tables import GPU_GONE, GPU_IN_PART, OTHERS

View = dict[str, Any]
_TOTALS = {"count": "files", "size_bytes": "size_bytes", "left": "left", "left_bytes": "left_bytes",
           "skipped": "skipped"}  # fmt: skip
_MOST_LEFT_IN = 3
NO_FILES: View = {"tasks": 0, **dict.fromkeys(_TOTALS, 0), "left_in": []}
"""The `files` of a job that has left none."""

_LISTED_S = 3600.0  # that a node which is down stays in the list

_HELD_IN_FLIGHT = (TaskState.HELD, JobState.ACTIVE)


def matching_jobs(
    snapshot: Snapshot,
    *,
    status: str | None,
    user: str | None,
    queue: str | None,
    before: int | None,
    limit: int,
) -> list[int]:
    """Return the rows of jobs that match, newest first, of numbers below `before`; O(jobs).

    `status` is one that `headgate.api.status` knows.
    """
    match = snapshot.jobs.archived.array() == 0
    if status is not None:
        match &= with_status(snapshot, status)
    for name, column, rows in (
        (user, snapshot.jobs.user, {u: i for i, u in enumerate(snapshot.names.users)}),
        (queue, snapshot.jobs.queue, snapshot.names.queue_rows),
    ):
        if name is not None:
            match &= column.array() == rows.get(name, -1)
    if before is not None:  # numbers ascend with rows
        match = match[: np.searchsorted(snapshot.jobs.number.array(), before)]
    found: list[int] = np.flatnonzero(match)[::-1][:limit].tolist()
    return found


class JobViews:
    """Views of jobs, computed once per version of the state; calls from any thread.

    One whose reason names a time is computed again once that has passed.
    """

    def __init__(self) -> None:
        self._kept: tuple[int, dict[int, tuple[View, float]]] = (-1, {})  # and until when it holds

    def of(self, snapshot: Snapshot, rows: Sequence[int], now: float) -> list[View]:
        """Return views of the jobs in `rows`: user, queue, progress, and the reason of a wait.

        `wait_s` is the time from submission to the first run, `run_s` from there to the end or
        `now`; `read_bytes` counts what the runs have read, by locality.
        """
        kept = self._kept
        if kept[0] != snapshot.version:
            kept = self._kept = (snapshot.version, {})
        views = kept[1]
        new = [row for row in rows if row not in views or views[row][1] <= now]
        context = ExplanationContext(snapshot, new)
        for row in new:
            explanation = explain(snapshot, row, now, context=context)
            reason = explanation.reason
            until = math.inf if reason is None else reason.holds_until()
            views[row] = _job_view(snapshot, row, explanation), until
        return [as_of(views[row][0], now) for row in rows]


def as_of(view: View, now: float) -> View:
    """Return a job's view with its durations (`wait_s`, `run_s`) up to `now`."""
    started_at, ended_at = view["started_at"], view["ended_at"]
    return {
        **view,
        "wait_s": _between(view["submitted_at"], [started_at, ended_at, now]),
        "run_s": None if started_at is None else _between(started_at, [ended_at, now]),
    }


def job_view(snapshot: Snapshot, row: int, now: float, context: ExplanationContext) -> View:
    """Return the view of a job; `as_of` fills in its durations, which change with the time."""
    return _job_view(snapshot, row, explain(snapshot, row, now, context=context))


def _job_view(snapshot: Snapshot, row: int, explanation: Explanation) -> View:
    job, jobs = snapshot.job(row), snapshot.jobs
    return {
        "id": job.id,
        "name": job.name,
        "user": job.user,
        "queue": job.queue,
        "state": explanation.state,
        "priority": job.priority,
        "gang": job.gang,
        "num_nodes": len(job.tasks) if job.distinct_nodes else None,
        "array": _is_array(job),
        "tasks": {"total": len(job.tasks), **explanation.counts},
        "preempted_tasks": explanation.preempted_tasks,
        "migrations": jobs.migrations[row],
        "gpus": {
            "held": amount_of(jobs.held_gpus_milli[row]),
            "peak": amount_of(jobs.peak_gpus_milli[row]),
        },
        "nodes": ran.nodes_of(snapshot, row),
        "read_bytes": {
            "node": jobs.read_node_bytes[row],
            "rack": jobs.read_rack_bytes[row],
            "cluster": jobs.read_cluster_bytes[row],
        },
        "estimated_s": job.estimated_s,
        "time_limit_s": job.time_limit_s,
        "deadline_at": None if job.deadline_s is None else jobs.submitted_at[row] + job.deadline_s,
        "max_running": job.max_running,
        "elastic": explanation.elastic and asdict(explanation.elastic),
        "after": list(job.after),
        "working_dir": _working_dir(job.program.environment),
        "grace_s": job.grace_s,
        "submitted_at": jobs.submitted_at[row],
        "started_at": _time(jobs.started_at[row]),
        "ended_at": _time(jobs.ended_at[row]),
        "wait_s": None,
        "run_s": None,
        "reason": None if explanation.reason is None else str(explanation.reason),
        "brief_reason": None if explanation.reason is None else explanation.reason.brief(),
        "message": explanation.message,
        "public": job.public,
        "archived": False,
    }


def _is_array(job: Job) -> bool:
    """Return whether each of several tasks has a result of its own, which no other task reads."""
    if job.gang or len(job.tasks) < 2:
        return False
    last = job.tasks[-1]
    return not last.after and all(task_of_result(read) is None for read in last.reads)


def _working_dir(environment: RunEnvironment) -> View | None:
    """Return where the runs of a job start, as in a job file; None: in an empty directory."""
    if environment.directory:
        return {"shared": environment.directory}
    return {"package": environment.package} if environment.package else None


def without_message(view: View) -> View:
    """Return the view of a job for users who may not read its logs, which its message quotes.

    Nor do they learn its command, and the names of its user's directories.
    """
    hidden = "permission denied: only the owner can read the message"
    message = {"message": hidden} if view["message"] else {}
    command = {"command": None} if "command" in view else {}
    return {**view, "working_dir": None, **command, **message}


def results_view(snapshot: Snapshot, row: int, now: float, *, default_keep_s: float | None) -> View:
    """Return copies and retention of a job's results; O(its tasks) if it wants several copies.

    `copies` is the number of nodes with the rarest result, null before the first result; `keep_s`
    is null for no limit, `default_keep_s` applies to jobs without `keep`.
    """
    job, jobs = snapshot.job(row), snapshot.jobs
    ended_at, expired_at = _time(jobs.ended_at[row]), _time(jobs.expired_at[row])
    keep_s = default_keep_s if job.keep_s is None else job.keep_s
    return {**copies_view(snapshot, row), **expiry_view(keep_s, ended_at, expired_at, now)}


def expiry_view(
    keep_s: float | None, ended_at: float | None, expired_at: float | None, now: float
) -> View:
    """Return the retention of a job's results: `keep_s` after its end, None for no limit."""
    keep_s = None if keep_s is None or math.isinf(keep_s) else keep_s
    expires_at = None if keep_s is None or ended_at is None else ended_at + keep_s
    ahead = expires_at is not None and expired_at is None
    return {
        "keep_s": keep_s,
        "expires_at": expires_at,
        "expires_in_s": _between(now, [expires_at]) if ahead else None,
        "expired_at": expired_at,
    }


def copies_view(snapshot: Snapshot, row: int) -> View:
    """Return the wanted and existing copies of a job's results; costs as of `results_view`."""
    job = snapshot.job(row)
    view: View = {"replicas": job.result_replicas, "path": job.results_path or None}
    if job.result_replicas > 1 or job.results_path:
        shards = list(_result_rows(snapshot, row))
        view["copies"] = min((len(snapshot.replicas(s)) for s in shards), default=None)
        view["shared"] = bool(shards) and all(snapshot.shards.shared[s] for s in shards)
    return view


def _result_rows(snapshot: Snapshot, job: int) -> Iterator[int]:
    """Yield the rows of the results of a job's finished tasks."""
    name = snapshot.job(job).id
    for row in snapshot.tasks_of(job):
        if snapshot.tasks.state[row] != TaskState.FINISHED:
            continue
        for shard in result_ids(name, snapshot.ordinal(row), snapshot.task(row).parts):
            shard_row = known_shard(snapshot, shard)
            if shard_row is not None:
                yield shard_row


def task_view(snapshot: Snapshot, row: int) -> View:
    """Return the view of a task and its last run."""
    tasks, job = snapshot.tasks, snapshot.tasks.job[row]
    node = tasks.node[row]
    held_in_flight = (tasks.state[row], snapshot.jobs.state[job]) == _HELD_IN_FLIGHT
    return {
        "ordinal": snapshot.ordinal(row),
        "state": TaskState(tasks.state[row]).name.lower(),
        "needs": {
            "gpus": tasks.gpus[row],
            "gpu_memory_bytes": tasks.memory_bytes[row],
            "cpus": amount_of(snapshot.demand(row).cpus_milli),
        },
        "node": None if node < 0 else snapshot.node(node).id,
        "gpus": list(tasks.run_gpus[row]),
        **ran.unit_view(snapshot, row),
        "over": uses.over_view(snapshot, row),
        "attempts": tasks.attempts[row],
        "failures": tasks.failures[row],
        "exit": ran.task_exit(snapshot, row),
        "reason": str(held_by_limit(snapshot, job)) if held_in_flight else None,
        "preempted": preemption(snapshot, row),
        "stops": [stop_view(stop) for stop in snapshot.stops.get(row, ())],
        "started_at": _time(tasks.started_at[row]),
        "ended_at": _time(tasks.ended_at[row]),
        "files": None if tasks.kept[row] is None else _kept_view(tasks.kept[row]),
    }


def _kept_view(run: KeptRun) -> View:
    """Return the files that the last run of a task which left any has left on its node."""
    kept = run.kept
    return {
        "attempt": run.attempt,
        "node": run.node,
        "count": kept.files,
        "size_bytes": kept.size_bytes,
        "left": kept.left,
        "left_bytes": kept.left_bytes,
        "skipped": kept.skipped,
        "directory": kept.directory or None,
    }


def files_view(snapshot: Snapshot, job: int) -> View:
    """Return the files that the runs of a job have left, in total; O(its tasks).

    `left_in` has the first directories in which more files lie than can be fetched.
    """
    first = snapshot.jobs.first_task[job]
    runs = snapshot.tasks.kept.span(first, first + snapshot.jobs.task_count[job]).tolist()
    kept = [(ordinal, run) for ordinal, run in enumerate(runs) if run is not None]
    totals = {
        name: sum(getattr(run.kept, field) for _, run in kept) for name, field in _TOTALS.items()
    }
    left = [
        {"task": ordinal, "node": run.node, "directory": run.kept.directory}
        for ordinal, run in kept
        if run.kept.left
    ]
    return {"tasks": len(kept), **totals, "left_in": left[:_MOST_LEFT_IN]}


def stop_view(stop: RunStop) -> View:
    """Return why a run was stopped: for which job, or by which user; and how it ended then."""
    return {
        "attempt": stop.attempt,
        "at": stop.at,
        "kind": stop.cause.kind.value,
        "reason": stop.cause.text,
        "for_job": stop.cause.job or None,
        "lender": stop.cause.lender or None,
        "lost_gpu_s": stop.lost_gpu_s,
        "by_user": stop.cause.by or None,
        "end": stop.end or None,
    }


def move_views(snapshot: Snapshot, move: Moved) -> list[View]:
    """Return where each run of a requested move was, on a snapshot, and where its task goes."""
    found = []
    for run, node, gpus in move.runs:
        row = task_row(snapshot, job_row(snapshot, run.job), run.ordinal)
        source = snapshot.node(snapshot.tasks.node[row]).id
        found.append({"task": run.ordinal, "from": source, "to": node, "gpus": list(gpus)})
    return found


def unsaved_work(snapshot: Snapshot, move: Moved, now: float) -> View | None:
    """Return what runs lose that are moved and save no checkpoint; None without such runs.

    `run_s` is the longest time that one of them has run, `gpu_s` the GPU time of all.
    """
    times = []
    for run, _, _ in move.runs:
        row = task_row(snapshot, job_row(snapshot, run.job), run.ordinal)
        task = snapshot.task(row)
        if not task.checkpoint_s:
            ran = snapshot.tasks.state[row] == TaskState.RUNNING
            run_s = max(0.0, now - snapshot.tasks.started_at[row]) if ran else 0.0
            times.append((run_s, run_s * task.demand.gpus_milli / WHOLE))
    if not times:
        return None
    return {
        "runs": len(times),
        "run_s": max(run_s for run_s, _ in times),
        "gpu_s": sum(gpu_s for _, gpu_s in times),
    }


def explanation_view(explanation: Explanation) -> View:
    """Return the view of an explanation, with code, text and numbers of its reason."""
    return {
        **asdict(explanation),
        "reason": None if explanation.reason is None else reason_view(explanation.reason),
    }


def reason_view(reason: Reason) -> View:
    """Return a reason with its code, texts and numbers."""
    return {
        "code": reason.code,
        "text": reason.detail(),
        "brief": reason.brief(),
        "way_out": reason.way_out(),
        "numbers": asdict(reason),
    }


def runs_of_nodes(snapshot: Snapshot) -> dict[int, list[str]]:
    """Return the tasks whose runs hold a grant, by the row of their node; O(grants)."""
    tasks, nodes = snapshot.grants.task.array(), snapshot.grants.node.array()
    found: dict[int, list[str]] = {}
    held = np.flatnonzero(tasks >= 0)
    for grant in held[np.argsort(tasks[held])].tolist():
        found.setdefault(int(nodes[grant]), []).append(snapshot.task_id(int(tasks[grant])))
    return found


def is_listed(snapshot: Snapshot, row: int, now: float) -> bool:
    """Return whether a node is listed: it is up, a user drains it, or it was within an hour."""
    nodes = snapshot.nodes
    recent = now - nodes.down_since[row] < _LISTED_S  # false for NaN
    return bool(nodes.alive[row]) or recent or snapshot.node(row).id in snapshot.fleet.drains


def node_view(
    snapshot: Snapshot, row: int, report: Mapping[str, Any] | None, runs: Sequence[str]
) -> View:
    """Return a node: its total, the amounts granted and actually used, runs, and last report.

    `actual` is the state's actual book, null before the first report and for a lost node, and so is
    `outside`, the part of it that no run may use. What is free of a draining node is 0.
    """
    node, nodes = snapshot.node(row), snapshot.nodes
    draining = drain_view(snapshot, node.id)
    alive = bool(nodes.alive[row])
    total, granted = _booked(snapshot, row)
    return {
        "id": node.id,
        "rack": node.rack,
        "state": "up" if alive else "lost",
        "draining": draining,
        "labels": list(node.labels),
        "total": _vector(snapshot, total),
        "granted": _vector(snapshot, granted),
        "actual": uses.actual_view(snapshot, row),
        "outside": uses.outside_view(snapshot, row),
        "gpus": [_gpu_view(snapshot, row, index) for index in range(len(node.gpus))],
        "runs": list(runs),
        "over": [*uses.overs_of_node(snapshot, row)],
        "free_gpus": nodes.free_gpus[row],
        "cpus": node.cpus,
        "free_cpus": amount_of(max(nodes.free.at(row, CPUS), 0)),
        "report": None if report is None else dict(report),
    }


def _booked(snapshot: Snapshot, row: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return the amounts of a node and what of them is granted, by kind; O(grants) if it drains."""
    nodes = snapshot.nodes
    if not nodes.draining[row]:
        total, free = nodes.total[row], nodes.free[row]
        outside = (nodes.outside.at(row, kind) for kind in range(len(total)))
        return total, [
            has - left - used for has, left, used in zip(total, free, outside, strict=True)
        ]
    amounts = capacity(snapshot.names, snapshot.node(row))
    granted, grants = [0] * len(amounts), snapshot.grants
    here = (grants.node.array() == row) & (grants.task.array() >= 0)
    for grant in np.flatnonzero(here).tolist():
        for kind, amount in snapshot.names.needs[grants.demand[grant]]:
            granted[kind] += amount
    return amounts, granted


def drain_view(snapshot: Snapshot, node: str) -> View | None:
    """Return since when, by whom and why a node starts nothing; None if it does.

    `by` is null where scaling removes it.
    """
    drain = snapshot.fleet.drains.get(node)
    if drain is None:
        return None
    return {"by": drain.by or None, "since": drain.at, "reason": drain.reason}


def _vector(snapshot: Snapshot, amounts: Sequence[int]) -> View:
    """Return amounts by the names of their kinds; memory that is not booked is null."""
    view: View = {}
    for name, amount in zip(snapshot.names.resources, amounts, strict=False):
        if name == "memory":
            view["memory_bytes"] = None if amount >= UNLIMITED else amount
        else:
            view[name] = amount / WHOLE
    return view


def _gpu_view(snapshot: Snapshot, row: int, index: int) -> View:
    """Return a GPU: shares and utilisation from 0 to 1, actual use null before a report."""
    gpus, gpu = snapshot.gpus, snapshot.nodes.first_gpu[row] + index
    spec, holder = snapshot.node(row).gpus[index], gpus.task[gpu]
    share, held_bytes = 0.0, 0
    if holder >= 0:
        share, held_bytes = 1.0, gpus.memory_bytes[gpu]
    elif holder == GPU_IN_PART:
        share = (WHOLE - gpus.free_milli[gpu]) / WHOLE
        held_bytes = gpus.memory_bytes[gpu] - gpus.free_bytes[gpu] - gpus.outside_bytes[gpu]
    used_bytes, utilisation_milli = gpus.actual_bytes[gpu], gpus.utilisation_milli[gpu]
    return {
        "index": index,
        "memory_bytes": spec.memory_bytes,
        "model": spec.model,
        "task": _holder(snapshot, gpu),
        "withheld": holder == GPU_GONE and bool(gpus.withheld[gpu] & OTHERS),
        "granted_share": share,
        "granted_memory_bytes": held_bytes,
        "actual_memory_bytes": None if used_bytes < 0 else used_bytes,
        "outside_memory_bytes": gpus.outside_bytes[gpu],
        "outside_pid": gpus.outside_pid[gpu] or None,
        "utilisation": None if utilisation_milli < 0 else utilisation_milli / WHOLE,
    }


def _holder(snapshot: Snapshot, gpu: int) -> str | None:
    task = snapshot.gpus.task[gpu]
    if task < 0:
        return None
    return snapshot.task_id(task)


def queue_views(snapshot: Snapshot) -> list[View]:
    """Return the queues, each before those below it."""
    quotas, lent = Quotas(snapshot), loans(snapshot)
    return [_queue_view(snapshot, row, quotas, lent) for row in in_tree(snapshot)]


def _queue_view(snapshot: Snapshot, row: int, quotas: Quotas, lent: Sequence[Loan]) -> View:
    """Return a queue with the GPUs that it and those below hold, and the numbers of its jobs.

    And the GPUs that it has borrowed of others and lent to others, by their names.
    """
    queues = snapshot.queues
    return {
        **queue_fields(snapshot.queue(row)),
        "held_gpus": amount_of(quotas.used(row)),
        "borrowed_gpus": {
            snapshot.queue(each.lender).name: amount_of(each.gpus_milli)
            for each in lent
            if each.borrower == row
        },
        "lent_gpus": {
            snapshot.queue(each.borrower).name: amount_of(each.gpus_milli)
            for each in lent
            if each.lender == row
        },
        "reclaimed": {
            "count": queues.taken_back_runs[row],
            "lost_gpu_s": queues.taken_back_gpu_s[row],
        },
        "in_flight": queues.in_flight[row],
        "queued": queues.queued[row],
    }


def dataset_view(snapshot: Snapshot, dataset: Dataset) -> View:
    """Return a summary of a dataset; `replicas` is the number of copies of its rarest shard."""
    copies = [len(_holders(snapshot, shard.id)) for shard in dataset.shards]
    return {
        "name": dataset.name,
        "user": dataset.user,
        "shards": len(dataset.shards),
        "size_bytes": sum(shard.size_bytes for shard in dataset.shards),
        "replicas": min(copies, default=0),
        "public": dataset.public,
    }


def shard_view(snapshot: Snapshot, shard: Shard) -> View:
    """Return a shard with the nodes that hold it."""
    return {
        "id": shard.id,
        "size_bytes": shard.size_bytes,
        "nodes": [snapshot.node(n).id for n in _holders(snapshot, shard.id)],
    }


def _holders(snapshot: Snapshot, shard: str) -> tuple[int, ...]:
    row = known_shard(snapshot, shard)
    return () if row is None else snapshot.replicas(row)


def counts_view(snapshot: Snapshot) -> View:
    """Return an event's content: the version, and counts of jobs (not archived), GPUs, nodes."""
    here = snapshot.jobs.archived.array() == 0
    states = np.bincount(snapshot.jobs.state.array()[here], minlength=len(JobState))
    jobs = {s.name.lower(): int(states[s]) for s in JobState if states[s]}
    alive = snapshot.live_nodes()
    free = sum(snapshot.nodes.free_gpus[n] for n in alive)
    return {
        "version": snapshot.version,
        "now": snapshot.now,
        "jobs": jobs,
        "waiting_tasks": snapshot.waiting_tasks,
        "gpus": {"total": snapshot.gpu_count(), "free": free},
        "nodes": len(alive),
    }


def _time(seconds: float) -> float | None:
    return None if math.isnan(seconds) else seconds


def _between(start: float, ends: Sequence[float | None]) -> float:
    """Return the seconds from `start` to the first of `ends` that is known, at least 0."""
    return max(0.0, next(end for end in ends if end is not None) - start)
