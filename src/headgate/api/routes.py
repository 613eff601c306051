"""Routes for jobs, nodes and queues, and for the controller itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from headgate.api import views
from headgate.api.deps import VERSION, Held, User, need_readable
from headgate.base.errors import Problem, SpecError, nearest
from headgate.decision.lookup import job_row, task_row
from headgate.state import JobState, Snapshot

router = APIRouter()

_JOB_FILE_BYTES_MAX = 4 << 20
Body = dict[str, Any]
Limit = Annotated[int, Query(ge=1, le=1000, description="most entries of a page")]
Cursor = Annotated[str | None, Query(description="`next` of the page before")]
DryRun = Annotated[bool, Query(description="do all checks, change nothing")]


@router.get("/health")
def health(controller: Held) -> Body:
    """Say that the controller answers."""
    return {"status": "ok", "version": controller.snapshot().version}


@router.get("/info")
def info(controller: Held, user: User) -> Body:
    """Tell about the controller, and who the caller is to it."""
    return {**controller.info(), "headgate": VERSION, "you": user}


# --- jobs ----------------------------------------------------------------------------------------


@router.get("/jobs")
def jobs(
    controller: Held,
    caller: User,
    state: str | None = None,
    user: str | None = None,
    queue: str | None = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Body:
    """List jobs, newest first."""
    snapshot, now = controller.snapshot(), controller.now()
    rows = views.matching_jobs(
        snapshot,
        state=_job_state(state),
        user=user,
        queue=queue,
        before=_row(cursor),
        limit=limit + 1,
    )
    page = rows[:limit]
    return {
        "jobs": [_job_view(controller, snapshot, row, now, caller) for row in page],
        "next": str(page[-1]) if len(rows) > limit else None,
    }


@router.post("/jobs", status_code=201)
async def submit(
    request: Request,
    controller: Held,
    user: User,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    dry_run: DryRun = False,
    public: Annotated[bool, Query(description="all users may read its logs and results")] = False,
) -> Response:
    """Submit a job file, which is the body; the same key gives the same job again."""
    text = await _text(request)
    if dry_run:
        job = await run_in_threadpool(controller.check, text, user=user)
        return JSONResponse({"id": job, "dry_run": True})
    job = await run_in_threadpool(
        controller.submit, text, user=user, key=idempotency_key, public=public
    )
    return JSONResponse({"id": job, "dry_run": False}, 201)


@router.get("/jobs/{job}")
def one_job(job: str, controller: Held, user: User) -> Body:
    """Return one job."""
    snapshot = controller.snapshot()
    row, now = job_row(snapshot, job), controller.now()
    keep_s = controller.info().get("keep_results_s")
    kept = views.results_view(snapshot, row, now, default_keep_s=keep_s)
    return {**_job_view(controller, snapshot, row, now, user), "results": kept}


def _job_view(controller: Held, snapshot: Snapshot, row: int, now: float, user: str) -> Body:
    view = views.job_view(snapshot, row, now)
    return view if controller.may_read(snapshot.job(row), user) else views.without_message(view)


@router.get("/jobs/{job}/tasks")
def tasks(job: str, controller: Held, cursor: Cursor = None, limit: Limit = 1000) -> Body:
    """List the tasks of a job by their ordinals."""
    snapshot = controller.snapshot()
    rows = snapshot.tasks_of(job_row(snapshot, job))
    start = _row(cursor) or 0
    page = rows[start : start + limit]
    return {
        "tasks": [views.task_view(snapshot, row) for row in page],
        "next": str(start + limit) if start + limit < len(rows) else None,
    }


@router.delete("/jobs/{job}")
def cancel(job: str, controller: Held, user: User, dry_run: DryRun = False) -> Body:
    """Cancel a job."""
    snapshot = controller.snapshot()
    row = job_row(snapshot, job)
    controller.cancel(job, user=user, dry_run=dry_run)
    return {"id": job, "was": JobState(snapshot.jobs.state[row]).name.lower(), "dry_run": dry_run}


@router.get("/jobs/{job}/logs", response_class=JSONResponse)  # a log is data: as it is
def logs(
    job: str,
    controller: Held,
    user: User,
    task: Annotated[int, Query(ge=0)] = 0,
    attempt: Annotated[int | None, Query(ge=1, description="the last one by default")] = None,
    offset: Annotated[int, Query(ge=0, description="in bytes")] = 0,
) -> Body:
    """Return what a run has written from an offset on."""
    snapshot = controller.snapshot()
    row = job_row(snapshot, job)
    need_readable(controller, snapshot.job(row), user)
    task_row(snapshot, row, task)
    views.need_kept(snapshot, row)
    piece = controller.log(job, task, attempt=attempt, offset=offset)
    return {"text": piece.text, "next_offset": piece.next_offset, "ended": piece.ended}


@router.get("/jobs/{job}/result")
def result(
    job: str, controller: Held, user: User, task: Annotated[int | None, Query(ge=0)] = None
) -> StreamingResponse:
    """Return the bytes of the result of a finished task, the job's last one by default."""
    snapshot = controller.snapshot()
    row = job_row(snapshot, job)
    need_readable(controller, snapshot.job(row), user)
    views.need_result(snapshot, row, task)
    pieces = controller.result(job, task)
    first = next(pieces, b"")  # what can go wrong at once goes wrong before the answer begins
    return StreamingResponse(_chain(first, pieces), media_type="application/octet-stream")


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


# --- the cluster ---------------------------------------------------------------------------------


@router.get("/nodes")
def nodes(controller: Held) -> Body:
    """List all nodes that have ever joined, by name, with the reports of those that are up."""
    snapshot, reports = controller.snapshot(), controller.reports()
    names = {snapshot.node(row).id: row for row in range(len(snapshot.nodes.spec))}
    return {
        "nodes": [
            views.node_view(snapshot, names[name], reports.get(name))
            for name in sorted(names, key=lambda name: (len(name), name))  # n2 before n10
        ]
    }


@router.get("/queues")
def queues(controller: Held) -> Body:
    """List the queues."""
    snapshot = controller.snapshot()
    return {"queues": [views.queue_view(snapshot, row) for row in range(len(snapshot.queues.spec))]}


# --- what requests say ---------------------------------------------------------------------------


async def _text(request: Request) -> str:
    body = bytearray()
    async for piece in request.stream():
        if len(body) <= _JOB_FILE_BYTES_MAX:  # the rest is read all the same, then refused
            body += piece
    if len(body) > _JOB_FILE_BYTES_MAX:
        raise SpecError("a job file has at most 4 MiB", code="too_large")
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise SpecError("the job file is not text in UTF-8") from None


def _job_state(name: str | None) -> JobState | None:
    if name is None:
        return None
    known = {state.name.lower(): state for state in JobState}
    if name not in known:
        text = f"there is no job state '{name}'"
        raise SpecError([Problem(path="state", problem=text, hint=nearest(name, known))])
    return known[name]


def _row(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit()):
        hint = "take it from `next` of the page before"
        problem = Problem(path="cursor", problem=f"'{cursor}' is not a cursor", hint=hint)
        raise SpecError([problem])
    return int(cursor)
