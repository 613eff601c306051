"""Routes for explanations and what-ifs: why a job waits, and what would change."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query

from headgate.api import archived
from headgate.api.deps import ControllerDep, Ordinal, Pools, User, new_router
from headgate.api.responses import EscapedJSON
from headgate.api.views import explanation_view, reason_view, stop_view, without_message
from headgate.base.errors import Problem, SpecError
from headgate.foresight.forecast import Forecast
from headgate.foresight.outlook import JobOutlook, Outlook, StartedRun, more_nodes, outlook
from headgate.foresight.why import CandidateNode, RunFacts, Why, why
from headgate.model import Locality
from headgate.state.lookup import job_row, task_row

router = new_router()
Body = dict[str, Any]


@router.get("/jobs/{job}/explanation")
async def explanation(
    job: str, controller: ControllerDep, pools: Pools, user: User, task: Ordinal | None = None
) -> EscapedJSON:
    """Return the state of a job, or of one of its tasks, and what its start depends on."""

    def compute() -> EscapedJSON:
        snapshot, now = controller.snapshot(), controller.now()
        past = archived.archived_job(controller, snapshot, job)
        if past is not None:
            named = None if task is None else controller.archive.task(past, task)
            spec, view = past.job, archived.explanation_view(past, named)
        else:
            row = job_row(snapshot, job)
            named_row = None if task is None else task_row(snapshot, row, task)
            found = why(snapshot, controller.policy(None), row, named_row, now)
            spec, view = snapshot.job(row), {**_why_view(found), "archived": False}
        known = controller.info()
        view |= {"policy": known["policy"], "stand_in": known["stand_in"]}
        view |= {"version": snapshot.version, "now": now}
        return EscapedJSON(view if controller.may_read(spec, user) else without_message(view))

    return await pools.run_in_time(pools.explanations, compute)


@router.get("/plan")
async def plan(
    controller: ControllerDep,
    pools: Pools,
    policy: Annotated[
        str | None, Query(description="NAME or NAME,PARAMETER=VALUE,...; else the one in force")
    ] = None,
    nodes: Annotated[int | None, Query(description="number of nodes to add")] = None,
    like: Annotated[
        str | None, Query(description="a node whose hardware the added nodes have")
    ] = None,
) -> EscapedJSON:
    """Return what would change now under another policy or with more nodes; nothing is changed."""
    if like is not None and nodes is None:
        hint = "give their number with nodes"
        raise SpecError([Problem(path="like", problem="no nodes are added", hint=hint)])
    # the state at the request, also if the computation has to wait
    snapshot, now = controller.snapshot(), controller.now()

    def compute() -> EscapedJSON:
        today, other = controller.policy(None), controller.policy(policy)
        more = () if nodes is None else more_nodes(snapshot, nodes, like)
        return EscapedJSON(
            {
                "version": snapshot.version,
                "now": now,
                "policy": policy,
                "new_nodes": [node.id for node in more],
                "today": _outlook_view(outlook(snapshot, today, now)),
                "what_if": _outlook_view(outlook(snapshot, other, now, more)),
            }
        )

    return await pools.run_in_time(pools.explanations, compute)


def _by_locality(read_bytes: tuple[int, int, int]) -> Body:
    return {where.label: read_bytes[where] for where in Locality}


def _why_view(found: Why) -> Body:
    task: Body | None = None
    if found.task is not None:
        unfinished = list(found.unfinished)
        task = {
            "ordinal": found.task,
            "state": found.task_state,
            "surplus": found.surplus,
            "needed": found.needed,
            "unfinished": unfinished,
            "preempted": found.preempted,
            "stopped": None if found.stopped is None else stop_view(found.stopped),
        }
    return {
        **explanation_view(found.explanation),
        "task": task,
        "run": None if found.run is None else _read_view(found.run),
        "share": None if found.share is None else asdict(found.share),
        "holders": [asdict(holder) for holder in found.holders],
        "cheapest_now": None if found.cheapest_now is None else _read_view(found.cheapest_now),
        "cheapest": None if found.cheapest is None else _read_view(found.cheapest),
        "if_freed": None if found.if_freed is None else asdict(found.if_freed),
        "room_by_moves": None if found.room_by_moves is None else asdict(found.room_by_moves),
        "sizing": None if found.sizing is None else asdict(found.sizing),
        "start": None if found.start is None else _forecast_view(found.start),
    }


def _forecast_view(found: Forecast) -> Body:
    return {**asdict(found), "still": None if found.still is None else reason_view(found.still)}


def _read_view(found: RunFacts | CandidateNode | StartedRun | JobOutlook) -> Body:
    return {**asdict(found), "read_bytes": _by_locality(found.read_bytes)}


def _outlook_view(found: Outlook) -> Body:
    return {
        **asdict(found),
        "jobs": [
            {**_read_view(job), "reason": None if job.reason is None else reason_view(job.reason)}
            for job in found.jobs
        ],
        "starts": [_read_view(start) for start in found.starts],
        "reservations": [
            {
                **asdict(each),
                "gpus": sum(len(gpus) for _, gpus in each.places),
                "places": [{"node": node, "gpus": list(gpus)} for node, gpus in each.places],
            }
            for each in found.reservations
        ],
    }
