"""Routes for jobs, nodes and queues, and for the controller itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Any

from anyio import to_thread
from fastapi import Depends, Header, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse

from headgate.api import archived, ran, results, views
from headgate.api.bodies import text_of
from headgate.api.controller import ControllerPort
from headgate.api.deps import (
    VERSION,
    ControllerDep,
    Cursor,
    DryRun,
    Limit,
    Ordinal,
    PathOrdinal,
    Pools,
    ThreadPools,
    User,
    need_readable,
    new_router,
    page_start,
)
from headgate.api.responses import EscapedJSON
from headgate.api.status import archived_status, known_status
from headgate.journal import ArchivedJob
from headgate.model import Job, LogPiece, RunId, result_id
from headgate.state import JobState, Snapshot, TaskState
from headgate.state.lookup import job_row, known_row, task_row

router = new_router()
downloads = new_router(lambda pools: pools.downloads)

_MOST_BYTES = 1 << 60
Body = dict[str, Any]


def _job_views_of(request: Request) -> Any:
    return request.app.state.job_views


JobViewsDep = Annotated[views.JobViews, Depends(_job_views_of)]


@router.get("/health")
def health(controller: ControllerDep) -> Body:
    """Return the version of the state; succeeds whenever the controller responds."""
    return {"status": "ok", "version": controller.snapshot().version}


@router.get("/info")
def info(controller: ControllerDep, user: User) -> Body:
    """Return facts about the controller, and the user that it sees as the caller."""
    return {**controller.info(), "headgate": VERSION, "you": user}


# --- jobs ----------------------------------------------------------------------------------------


@router.get("/jobs")
def jobs(
    controller: ControllerDep,
    job_views: JobViewsDep,
    caller: User,
    state: str | None = None,
    user: str | None = None,
    queue: str | None = None,
    all_jobs: Annotated[bool, Query(alias="all", description="archived jobs also")] = False,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> EscapedJSON:
    """List jobs, newest first."""
    snapshot, now = controller.snapshot(), controller.now()
    wanted = None if state is None else known_status(state)
    before = page_start(cursor, snapshot.next_job)
    most = limit + 1
    rows = views.matching_jobs(
        snapshot, status=wanted, user=user, queue=queue, before=before, limit=most
    )
    numbers = snapshot.jobs.number.array()[rows].tolist()
    found: dict[int, int | ArchivedJob] = dict(zip(numbers, rows, strict=True))
    if all_jobs:
        name = None if wanted is None else archived_status(wanted)
        for job in controller.archive.page(
            state=name, user=user, queue=queue, before=before, limit=most
        ):
            found.setdefault(job.number, job)  # of a job in both, the state's view is shown
    page = sorted(found, reverse=True)[:limit]
    return EscapedJSON(
        {
            "jobs": _job_views(
                controller, job_views, snapshot, [found[n] for n in page], now, caller
            ),
            "next": str(page[-1]) if len(found) > limit else None,
        }
    )


@router.post("/jobs", status_code=201)
async def submit(
    request: Request,
    controller: ControllerDep,
    pools: Pools,
    user: User,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    dry_run: DryRun = False,
    public: Annotated[bool, Query(description="all users may read its logs and results")] = False,
    after: Annotated[
        list[str], Query(description="id of a job that must have finished first; may be repeated")
    ] = [],  # noqa: B006  # FastAPI copies it
) -> EscapedJSON:
    """Submit a job file, which is the body; the same key returns the same job."""
    add, key = controller.submit, idempotency_key
    async with pools.texts.slot(pools.uid):
        text = await text_of(request)
        if dry_run:
            job = await pools.run(pools.journal, controller.check, text, user=user, after=after)
            return EscapedJSON(_submitted(controller, job, dry_run=True))
        name = await pools.run(
            pools.journal, add, text, user=user, key=key, public=public, after=after
        )
    snapshot = controller.snapshot()
    row = known_row(snapshot, name)
    if row is None:  # it has ended, and left the state
        return EscapedJSON({"id": name, "dry_run": False, "warnings": []}, 201)
    return EscapedJSON(_submitted(controller, snapshot.job(row), dry_run=False), 201)


def _submitted(controller: ControllerPort, job: Job, *, dry_run: bool) -> Body:
    """Return the id of a job, and the warnings of the policy in force."""
    warnings = [
        {"path": each.path, "problem": each.problem, "hint": each.hint}
        for each in controller.warnings(job)
    ]
    return {"id": job.id, "dry_run": dry_run, "warnings": warnings}


@router.get("/jobs/{job}")
def one_job(job: str, controller: ControllerDep, job_views: JobViewsDep, user: User) -> EscapedJSON:
    """Return one job."""
    snapshot, now = controller.snapshot(), controller.now()
    past = archived.archived_job(controller, snapshot, job)
    keep_s = controller.info().get("keep_results_s")
    if past is not None:
        view = archived.full_view(past, now, default_keep_s=keep_s)
        return EscapedJSON(_readable(controller, past.job, view, user))
    row = job_row(snapshot, job)
    kept = views.results_view(snapshot, row, now, default_keep_s=keep_s)
    named, (view,) = snapshot.job(row), job_views.of(snapshot, [row], now)
    files = {"results": kept, "files": views.files_view(snapshot, row)}
    view = {**ran.whole_view(snapshot, row, view), "command": ran.command_of(named.program)}
    return EscapedJSON({**_readable(controller, named, view, user), **files})


def _job_views(
    controller: ControllerDep,
    job_views: JobViewsDep,
    snapshot: Snapshot,
    jobs: Sequence[int | ArchivedJob],
    now: float,
    user: str,
) -> list[Body]:
    """Return views of jobs (rows of the state, or archived ones) as `user` may read them."""
    hot = iter(job_views.of(snapshot, [job for job in jobs if isinstance(job, int)], now))
    return [
        _readable(controller, snapshot.job(job), next(hot), user)
        if isinstance(job, int)
        else _readable(controller, job.job, archived.list_view(job, now), user)
        for job in jobs
    ]


def _readable(controller: ControllerDep, job: Job, view: Body, user: str) -> Body:
    return view if controller.may_read(job, user) else views.without_message(view)


@router.get("/jobs/{job}/tasks")
def tasks(
    job: str, controller: ControllerDep, cursor: Cursor = None, limit: Limit = 1000
) -> EscapedJSON:
    """List the tasks of a job by their ordinals."""
    snapshot = controller.snapshot()
    past = archived.archived_job(controller, snapshot, job)
    rows = range(0) if past is not None else snapshot.tasks_of(job_row(snapshot, job))
    count = len(rows) if past is None else past.task_count
    start = page_start(cursor, count) or 0
    if past is not None:
        kept = past.expired_at is None
        page = [archived.task_view(t) for t in controller.archive.tasks(past, start, limit)]
    else:
        kept = results.are_kept(snapshot, job_row(snapshot, job))
        page = [views.task_view(snapshot, row) for row in rows[start : start + limit]]
    after = str(start + limit) if start + limit < count else None
    return EscapedJSON({"tasks": _with_logs(controller, job, page, kept=kept), "next": after})


def _with_logs(
    controller: ControllerPort, job: str, tasks: list[Body], *, kept: bool
) -> list[Body]:
    """Return views of tasks with the log files of their last runs, null without one."""
    found = []
    for task in tasks:
        run = RunId(job, task["ordinal"], task["attempts"])
        has_log = kept and run.attempt and task["node"] is not None
        path = controller.log_path(run, task["node"]) if has_log else None
        found.append({**task, "log": path})
    return found


@router.get("/jobs/{job}/tasks/{ordinal}")
def one_task(job: str, ordinal: PathOrdinal, controller: ControllerDep) -> EscapedJSON:
    """Return one task of a job."""
    snapshot = controller.snapshot()
    past = archived.archived_job(controller, snapshot, job)
    if past is not None:
        view = archived.task_view(controller.archive.task(past, ordinal))
        kept = past.expired_at is None
    else:
        row = job_row(snapshot, job)
        view = views.task_view(snapshot, task_row(snapshot, row, ordinal))
        kept = results.are_kept(snapshot, row)
    return EscapedJSON(_with_logs(controller, job, [view], kept=kept)[0])


@router.delete("/jobs/{job}/slots")
async def withdraw_slots(job: str, controller: ControllerDep, pools: Pools, user: User) -> Body:
    """Finish the slots of an executor's job that have no run: its owner needs no more of them."""
    await pools.run(pools.journal, controller.withdraw_slots, job, user=user)
    snapshot = controller.snapshot()
    state = JobState(snapshot.jobs.state[job_row(snapshot, job)])
    return {"id": job, "state": state.name.lower()}


@router.delete("/jobs/{job}")
async def cancel(
    job: str,
    controller: ControllerDep,
    pools: Pools,
    user: User,
    now: Annotated[bool, Query(description="kill its runs without notice")] = False,
    dry_run: DryRun = False,
) -> Body:
    """Cancel a job: its runs get notice, and `grace_s` seconds to end. `state` is the job's."""
    before = controller.snapshot()
    await pools.run(pools.journal, controller.cancel, job, user=user, now=now, dry_run=dry_run)
    row = job_row(before, job)  # found, since the cancellation succeeded
    after = controller.snapshot()
    return {
        "id": job,
        "was": JobState(before.jobs.state[row]).name.lower(),
        "state": JobState(after.jobs.state[job_row(after, job)]).name.lower(),
        "grace_s": 0.0 if now else before.job(row).grace_s,
        "dry_run": dry_run,
    }


@router.delete("/jobs/{job}/tasks/{ordinal}")
async def cancel_task(
    job: str,
    ordinal: PathOrdinal,
    controller: ControllerDep,
    pools: Pools,
    user: User,
    now: Annotated[bool, Query(description="kill its run without notice")] = False,
    dry_run: DryRun = False,
) -> Body:
    """Cancel one task: its run gets notice, and `grace_s` seconds to end. `state` is the task's."""
    before = controller.snapshot()
    how: Body = {"user": user, "now": now, "dry_run": dry_run}
    await pools.run(pools.journal, controller.cancel, job, ordinal, **how)
    states = [
        TaskState(view.tasks.state[task_row(view, job_row(view, job), ordinal)]).name.lower()
        for view in (before, controller.snapshot())
    ]
    return {
        "id": result_id(job, ordinal),
        "was": states[0],
        "state": states[1],
        "grace_s": 0.0 if now else before.job(job_row(before, job)).grace_s,
        "dry_run": dry_run,
    }


@router.post("/jobs/{job}/migrate")
async def migrate(
    job: str,
    controller: ControllerDep,
    pools: Pools,
    user: User,
    leave: Annotated[str | None, Query(alias="from", description="only runs on it")] = None,
    to: Annotated[str | None, Query(description="only to this node")] = None,
    dry_run: DryRun = False,
) -> Body:
    """Move runs of a job to other nodes; `moves` has the place of each next run.

    `unsaved` is what is lost of runs without checkpoints; null without such runs.
    """
    before = controller.snapshot()
    move = await pools.run(
        pools.journal, controller.migrate, job, user=user, leave=leave, to=to, dry_run=dry_run
    )
    return {
        "id": job,
        "moves": views.move_views(before, move),
        "unsaved": views.unsaved_work(before, move, controller.now()),
        "dry_run": dry_run,
    }


@router.get("/jobs/{job}/logs", response_class=JSONResponse)  # a log is data: not escaped
async def logs(
    job: str,
    controller: ControllerDep,
    pools: Pools,
    user: User,
    task: Ordinal = 0,
    attempt: Annotated[
        int | None, Query(ge=1, le=1_000_000, description="the last one by default")
    ] = None,
    offset: Annotated[int, Query(ge=0, le=_MOST_BYTES, description="in bytes")] = 0,
) -> Body:
    """Return a piece of a run's log from an offset on."""

    def read() -> LogPiece:
        snapshot = controller.snapshot()
        past = archived.archived_job(controller, snapshot, job)
        if past is not None:
            need_readable(controller, past.job, user)
            archived.need_kept(past)
        else:
            row = job_row(snapshot, job)
            need_readable(controller, snapshot.job(row), user)
            task_row(snapshot, row, task)
            results.need_kept(snapshot, row)
        return controller.log(job, task, attempt=attempt, offset=offset)

    piece = await pools.run(pools.nodes, read)
    return {"text": piece.text, "next_offset": piece.next_offset, "ended": piece.ended}


@downloads.get("/jobs/{job}/result")
async def result(
    job: str, controller: ControllerDep, pools: Pools, user: User, task: Ordinal | None = None
) -> StreamingResponse:
    """Return the bytes of the result of a finished task, the job's last one by default."""

    def start() -> Iterator[bytes]:
        snapshot = controller.snapshot()
        past = archived.archived_job(controller, snapshot, job)
        if past is not None:
            need_readable(controller, past.job, user)
            archived.need_result(controller, past, task)
        else:
            row = job_row(snapshot, job)
            need_readable(controller, snapshot.job(row), user)
            results.need_result(snapshot, row, task)
        pieces = controller.result(job, task)
        first = next(pieces, b"")  # an error up to here becomes an error response
        return _chain(first, pieces)

    pieces = await pools.run(pools.nodes, start)
    return StreamingResponse(_sent(pieces, pools), media_type="application/octet-stream")


@router.get("/jobs/{job}/files", response_class=JSONResponse)  # names are data: not escaped
async def files(
    job: str, controller: ControllerDep, pools: Pools, user: User, task: Ordinal = 0
) -> Body:
    """List the files that the runs of a task have left on a node, and that can be fetched."""

    def listed() -> Body:
        _need_files(controller, job, user, task)
        return dict(controller.kept_files(job, task))

    return await pools.run(pools.nodes, listed)


@downloads.get("/jobs/{job}/files/content")
async def files_content(
    job: str,
    controller: ControllerDep,
    pools: Pools,
    user: User,
    task: Ordinal = 0,
    attempt: Annotated[int, Query(ge=1, le=1_000_000, description="as listed")] = 1,
) -> StreamingResponse:
    """Return the bytes of all files of a task, one after the other, in the order of the list.

    A file that has changed since has as many bytes as listed, with another checksum.
    """

    def start() -> Iterator[bytes]:
        _need_files(controller, job, user, task)
        pieces = controller.kept_content(job, task, attempt)
        return _chain(next(pieces, b""), pieces)

    pieces = await pools.run(pools.nodes, start)
    return StreamingResponse(_sent(pieces, pools), media_type="application/octet-stream")


def _need_files(controller: ControllerPort, job: str, user: str, task: int) -> None:
    """Raise SpecError when a user may not read the files of a task, or they have expired."""
    snapshot = controller.snapshot()
    past = archived.archived_job(controller, snapshot, job)
    if past is not None:
        need_readable(controller, past.job, user)
        archived.need_kept(past)
        return
    row = job_row(snapshot, job)
    need_readable(controller, snapshot.job(row), user)
    task_row(snapshot, row, task)
    results.need_kept(snapshot, row)


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


async def _sent(pieces: Iterator[bytes], pools: ThreadPools) -> AsyncIterator[bytes]:
    """Yield pieces, each read in a thread; none is held while the client reads slowly."""
    while piece := await to_thread.run_sync(next, pieces, b"", limiter=pools.threads):
        yield piece


# --- the cluster ---------------------------------------------------------------------------------


@router.get("/nodes")
def nodes(
    controller: ControllerDep,
    all_nodes: Annotated[bool, Query(alias="all", description="that are long down also")] = False,
) -> EscapedJSON:
    """List the nodes by name, with the reports of those that are up."""
    snapshot, reports, now = controller.snapshot(), controller.reports(), controller.now()
    names = {
        snapshot.node(row).id: row
        for row in range(len(snapshot.nodes.spec))
        if all_nodes or views.is_listed(snapshot, row, now)
    }
    runs = views.runs_of_nodes(snapshot)
    views_found = [
        views.node_view(snapshot, names[name], reports.get(name), runs.get(names[name], ()))
        for name in sorted(names, key=lambda name: (len(name), name))  # n2 before n10
    ]
    return EscapedJSON({"nodes": views_found})


@router.get("/queues")
def queues(controller: ControllerDep) -> Body:
    """List the queues, each before those below it."""
    return {"queues": views.queue_views(controller.snapshot())}
