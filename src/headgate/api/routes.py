"""Routes for jobs, nodes and queues, and for the controller itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse

from headgate.api import views
from headgate.api.answers import ShownJSON
from headgate.api.bodies import text_of
from headgate.api.deps import VERSION, Held, Ordinal, User, Waits, in_lane, need_readable
from headgate.base.errors import Problem, SpecError, nearest
from headgate.state import JobState, Snapshot
from headgate.state.lookup import job_row, task_row

router = APIRouter()

_MOST_DIGITS = 12
_MOST_BYTES = 1 << 60
Body = dict[str, Any]
Limit = Annotated[int, Query(ge=1, le=1000, description="most entries of a page")]
Cursor = Annotated[str | None, Query(description="`next` of the page before")]


def _shown(request: Request) -> Any:
    return request.app.state.job_views


Shown = Annotated[views.JobViews, Depends(_shown)]
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
    shown: Shown,
    caller: User,
    state: str | None = None,
    user: str | None = None,
    queue: str | None = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> ShownJSON:
    """List jobs, newest first."""
    snapshot, now = controller.snapshot(), controller.now()
    rows = views.matching_jobs(
        snapshot,
        state=_job_state(state),
        user=user,
        queue=queue,
        before=_row(cursor, len(snapshot.jobs.state)),
        limit=limit + 1,
    )
    page = rows[:limit]
    return ShownJSON(
        {
            "jobs": _job_views(controller, shown, snapshot, page, now, caller),
            "next": str(page[-1]) if len(rows) > limit else None,
        }
    )


@router.post("/jobs", status_code=201)
async def submit(
    request: Request,
    controller: Held,
    waits: Waits,
    user: User,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    dry_run: DryRun = False,
    public: Annotated[bool, Query(description="all users may read its logs and results")] = False,
) -> ShownJSON:
    """Submit a job file, which is the body; the same key gives the same job again."""
    text = await text_of(request)
    if dry_run:
        job = await in_lane(waits.journal, controller.check, text, user=user)
        return ShownJSON({"id": job, "dry_run": True})
    add, key = controller.submit, idempotency_key
    job = await in_lane(waits.journal, add, text, user=user, key=key, public=public)
    return ShownJSON({"id": job, "dry_run": False}, 201)


@router.get("/jobs/{job}")
def one_job(job: str, controller: Held, shown: Shown, user: User) -> ShownJSON:
    """Return one job."""
    snapshot = controller.snapshot()
    row, now = job_row(snapshot, job), controller.now()
    keep_s = controller.info().get("keep_results_s")
    kept = views.results_view(snapshot, row, now, default_keep_s=keep_s)
    (view,) = _job_views(controller, shown, snapshot, [row], now, user)
    return ShownJSON({**view, "results": kept})


def _job_views(
    controller: Held, shown: Shown, snapshot: Snapshot, rows: Sequence[int], now: float, user: str
) -> list[Body]:
    """Return jobs as a user may see them."""
    return [
        view if controller.may_read(snapshot.job(row), user) else views.without_message(view)
        for row, view in zip(rows, shown.of(snapshot, rows, now), strict=True)
    ]


@router.get("/jobs/{job}/tasks")
def tasks(job: str, controller: Held, cursor: Cursor = None, limit: Limit = 1000) -> ShownJSON:
    """List the tasks of a job by their ordinals."""
    snapshot = controller.snapshot()
    rows = snapshot.tasks_of(job_row(snapshot, job))
    start = _row(cursor, len(rows)) or 0
    page = rows[start : start + limit]
    return ShownJSON(
        {
            "tasks": [views.task_view(snapshot, row) for row in page],
            "next": str(start + limit) if start + limit < len(rows) else None,
        }
    )


@router.delete("/jobs/{job}")
async def cancel(
    job: str, controller: Held, waits: Waits, user: User, dry_run: DryRun = False
) -> Body:
    """Cancel a job."""
    snapshot = controller.snapshot()
    row = job_row(snapshot, job)
    await in_lane(waits.journal, controller.cancel, job, user=user, dry_run=dry_run)
    return {"id": job, "was": JobState(snapshot.jobs.state[row]).name.lower(), "dry_run": dry_run}


@router.get("/jobs/{job}/logs", response_class=JSONResponse)  # a log is data: as it is
async def logs(
    job: str,
    controller: Held,
    waits: Waits,
    user: User,
    task: Ordinal = 0,
    attempt: Annotated[
        int | None, Query(ge=1, le=1_000_000, description="the last one by default")
    ] = None,
    offset: Annotated[int, Query(ge=0, le=_MOST_BYTES, description="in bytes")] = 0,
) -> Body:
    """Return what a run has written from an offset on."""
    snapshot = controller.snapshot()
    row = job_row(snapshot, job)
    need_readable(controller, snapshot.job(row), user)
    task_row(snapshot, row, task)
    views.need_kept(snapshot, row)
    read = controller.log
    piece = await in_lane(waits.nodes, read, job, task, attempt=attempt, offset=offset)
    return {"text": piece.text, "next_offset": piece.next_offset, "ended": piece.ended}


@router.get("/jobs/{job}/result")
async def result(
    job: str, controller: Held, waits: Waits, user: User, task: Ordinal | None = None
) -> StreamingResponse:
    """Return the bytes of the result of a finished task, the job's last one by default."""

    def begun() -> Iterator[bytes]:
        snapshot = controller.snapshot()
        row = job_row(snapshot, job)
        need_readable(controller, snapshot.job(row), user)
        views.need_result(snapshot, row, task)
        pieces = controller.result(job, task)
        return _chain(next(pieces, b""), pieces)  # what can go wrong now, does before the answer

    pieces = await in_lane(waits.nodes, begun)
    return StreamingResponse(pieces, media_type="application/octet-stream")


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


# --- the cluster ---------------------------------------------------------------------------------


@router.get("/nodes")
def nodes(controller: Held) -> ShownJSON:
    """List all nodes that have ever joined, by name, with the reports of those that are up."""
    snapshot, reports = controller.snapshot(), controller.reports()
    names = {snapshot.node(row).id: row for row in range(len(snapshot.nodes.spec))}
    views_found = [
        views.node_view(snapshot, names[name], reports.get(name))
        for name in sorted(names, key=lambda name: (len(name), name))  # n2 before n10
    ]
    return ShownJSON({"nodes": views_found})


@router.get("/queues")
def queues(controller: Held) -> Body:
    """List the queues."""
    snapshot = controller.snapshot()
    return {"queues": [views.queue_view(snapshot, row) for row in range(len(snapshot.queues.spec))]}


# --- what requests say ---------------------------------------------------------------------------


def _job_state(name: str | None) -> JobState | None:
    if name is None:
        return None
    known = {state.name.lower(): state for state in JobState}
    if name not in known:
        text = f"there is no job state '{name}'"
        raise SpecError([Problem(path="state", problem=text, hint=nearest(name, known))])
    return known[name]


def _row(cursor: str | None, count: int) -> int | None:
    """Return the row, of so many that there are, that a cursor names."""
    if cursor is None:
        return None
    digits = cursor.isascii() and cursor.isdigit() and len(cursor) <= _MOST_DIGITS
    if not digits or int(cursor) >= count:
        hint = "take it from `next` of the page before"
        problem = Problem(path="cursor", problem=f"'{cursor}' is not a cursor", hint=hint)
        raise SpecError([problem])
    return int(cursor)
