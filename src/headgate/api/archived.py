"""Archived jobs in the API: the archive is searched for jobs that the state does not contain."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from headgate.api import ran, results, views
from headgate.api.controller import ControllerPort
from headgate.foresight.explain import ExplanationContext
from headgate.journal import ArchivedJob, ArchivedTask, Part, Record
from headgate.model import result_ids
from headgate.state import JobState, Snapshot, TaskState
from headgate.state.lookup import job_row, known_row, known_shard

View = dict[str, Any]


def record_of(snapshot: Snapshot, row: int) -> Record:
    """Return the archive's record of an ended job and its tasks; O(its tasks)."""
    job, jobs = snapshot.job(row), snapshot.jobs
    ended_at = float(jobs.ended_at[row])
    expired_at = float(jobs.expired_at[row])
    view = views.job_view(snapshot, row, ended_at, ExplanationContext(snapshot, ()))
    view = ran.whole_view(snapshot, row, view)
    archived = ArchivedJob(
        number=int(jobs.number[row]),
        job=replace(job, tasks=(), shards=()),
        state=view["state"],
        ended_at=ended_at,
        expired_at=None if math.isnan(expired_at) else expired_at,
        task_count=len(job.tasks),
        view={
            **view,
            "archived": True,
            "results": views.copies_view(snapshot, row),
            "files": views.files_view(snapshot, row),
        },
    )
    return archived, [_task(snapshot, task) for task in snapshot.tasks_of(row)]


def _task(snapshot: Snapshot, row: int) -> ArchivedTask:
    parts: tuple[Part | None, ...] = ()
    if snapshot.tasks.state[row] == TaskState.FINISHED:
        job, task = snapshot.job(snapshot.tasks.job[row]).id, snapshot.task(row)
        shards = result_ids(job, snapshot.ordinal(row), task.parts)
        parts = tuple(_part(snapshot, shard, row) for shard in shards)
    return ArchivedTask(view=views.task_view(snapshot, row), parts=parts)


def _part(snapshot: Snapshot, shard: str, task: int) -> Part | None:
    row = known_shard(snapshot, shard)
    if row is None:
        return None
    shared = bool(snapshot.shards.shared[row])
    # Without a replica on a node that is up, it may be on the node that made it, now lost.
    nodes = snapshot.replicas(row) or (() if shared else (snapshot.tasks.node[task],))
    return Part(
        size_bytes=int(snapshot.shards.size_bytes[row]),
        nodes=tuple(snapshot.node(node).id for node in nodes),
        shared=shared,
    )


def archived_job(controller: ControllerPort, snapshot: Snapshot, job: str) -> ArchivedJob | None:
    """Return a job from the archive, None for one that the state has; SpecError `not_found`.

    The caller takes the snapshot before the call: a job missing in it is in the archive by now.
    """
    if known_row(snapshot, job) is not None:
        return None
    found = controller.archive.find(job)
    if found is None:
        job_row(snapshot, job)  # raises `not_found`
    return found


def list_view(job: ArchivedJob, now: float) -> View:
    """Return the view of a job in lists of jobs."""
    lacking: View = {"nodes": [], "elastic": None, "deadline_at": None}  # in earlier releases
    view = {**lacking, **views.as_of(job.view, now)}
    gpus = {name: view["gpus"][name] for name in ("held", "peak")}
    return {key: view[key] for key in view if key not in ("results", "exit", "files")} | {
        "gpus": gpus
    }


def full_view(job: ArchivedJob, now: float, *, default_keep_s: float | None) -> View:
    """Return a job with the retention of its results; see `views.results_view`."""
    keep_s = default_keep_s if job.job.keep_s is None else job.job.keep_s
    expiry = views.expiry_view(keep_s, job.ended_at, job.expired_at, now)
    lacking: View = {
        "nodes": [], "elastic": None, "deadline_at": None, "exit": None, "files": views.NO_FILES,
    }  # fmt: skip
    view = {**lacking, **views.as_of(job.view, now)}
    view["gpus"] = {"by_node": {}, **view["gpus"]}  # earlier releases kept none of these
    view["command"] = ran.command_of(job.job.program)
    return {**view, "results": {**job.view["results"], **expiry}}


def task_view(task: ArchivedTask) -> View:
    """Return the view of a task; earlier releases did not keep how its last run ended.

    Nor did they have elastic jobs, or know what runs use.
    """
    ended = 0 if task.view["state"] == "finished" else None
    return {"exit": ended, "surplus": False, "needed": True, "over": None, **task.view}


def explanation_view(job: ArchivedJob, task: ArchivedTask | None) -> View:
    """Return the explanation of a job, or of one of its tasks, in the fields of `/explanation`."""
    counts = {name: count for name, count in job.view["tasks"].items() if name != "total"}
    named = None if task is None else _named(task)
    return {
        "job": job.job.id,
        "state": job.state,
        "counts": counts,
        "preempted_tasks": 0,
        "elastic": job.view.get("elastic"),
        "waits_s": 0.0,
        "reason": None,
        "message": job.view["message"],
        "archived": True,
        "task": named,
        "holders": [],
        **dict.fromkeys(("run", "share", "cheapest_now", "cheapest", "if_freed")),
        **dict.fromkeys(("room_by_moves", "sizing", "start")),
    }


def _named(task: ArchivedTask) -> View:
    stops = task.view.get("stops", [])  # archives of earlier releases have none
    return {
        "ordinal": task.view["ordinal"],
        "state": task.view["state"],
        **{key: task_view(task)[key] for key in ("surplus", "needed")},
        "unfinished": [],
        "preempted": None,
        "stopped": stops[-1] if stops else None,
    }


def need_kept(job: ArchivedJob) -> None:
    """Raise SpecError `expired` when the results and logs of a job have expired."""
    if job.expired_at is not None:
        raise results.expired(job.job.id, job.ended_at, job.expired_at)


def need_result(controller: ControllerPort, job: ArchivedJob, ordinal: int | None) -> None:
    """Raise SpecError when a job (or its task) has no result; see `results.need_result`."""
    need_kept(job)
    state, done = JobState[job.state.upper()], job.state == "finished"
    if ordinal is not None:
        task = task_view(controller.archive.task(job, ordinal))
        done = task["state"] == "finished"
        if not task["needed"]:
            raise results.not_needed(job.job.id, ordinal)
    if not done:
        raise results.no_result(job.job.id, ordinal, state, job.view["message"])
