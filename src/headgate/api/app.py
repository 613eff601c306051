"""The REST app: routes under `/api/v1`, and every error as one JSON object."""

from __future__ import annotations

import logging
import threading

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from headgate.api import (
    datasets,
    events,
    explanations,
    labels,
    link_views,
    metrics,
    nodes,
    packages,
    queues,
    routes,
    topology,
    views,
)
from headgate.api.controller import ControllerPort
from headgate.api.deps import VERSION, ThreadPools
from headgate.api.errors import error_body, status_of
from headgate.api.responses import EscapedJSON
from headgate.base.errors import HeadgateError, InvariantBroken, Problem, SpecError

ROOT = "/api/v1"
_ROUTES = f"GET {ROOT}/openapi.json describes all routes"
_log = logging.getLogger(__name__)


def make_app(controller: ControllerPort) -> FastAPI:
    """Return the app of a controller; it must be served by `headgate.api.server`."""
    app = FastAPI(
        title="Headgate",
        version=VERSION,
        description="A scheduler for shared clusters of mixed GPUs.",
        openapi_url=f"{ROOT}/openapi.json",
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        default_response_class=EscapedJSON,
    )
    app.state.controller = controller
    app.state.ending = threading.Event()
    app.state.pools = ThreadPools()
    app.state.counts = events.LatestCounts()
    app.state.job_views = views.JobViews()
    for router in (
        routes.router,
        routes.downloads,
        explanations.router,
        link_views.router,
        datasets.router,
        packages.router,
        topology.router,
        nodes.router,
        labels.router,
        queues.router,
        events.router,
        metrics.router,
    ):
        app.include_router(router, prefix=ROOT)
    app.add_exception_handler(HeadgateError, _known_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(ClientDisconnect, _client_disconnected)
    app.add_exception_handler(Exception, _unexpected)
    return app


def _error_response(error: HeadgateError) -> Response:
    return EscapedJSON(error_body(error), status_of(error))


async def _known_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HeadgateError)
    if isinstance(error, InvariantBroken):
        _log.error("%s %s", request.method, request.url.path, exc_info=error)
        first_line = str(error).splitlines()[0]
        hint = "the controller's log contains the history"
        return _error_response(InvariantBroken([Problem(path="", problem=first_line, hint=hint)]))
    return _error_response(error)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [
        Problem(path=".".join(map(str, found["loc"][1:])), problem=found["msg"], hint=_ROUTES)
        for found in error.errors()
    ]
    return _error_response(SpecError(problems))


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = {404: "not_found", 405: "not_allowed"}
    text = f"{request.method} {request.url.path}: {error.detail}"
    problem = Problem(path=request.url.path, problem=text, hint=_ROUTES)
    return _error_response(SpecError([problem], code=known.get(error.status_code, "bad_spec")))


async def _client_disconnected(request: Request, _: Exception) -> Response:
    _log.info("%s %s: the client disconnected", request.method, request.url.path)
    return _error_response(SpecError("the client disconnected before the end of the request"))


async def _unexpected(*_: object) -> Response:
    """Return an error without details; the server logs them."""
    hint = "the controller's log contains the details"
    problem = Problem(path="", problem="internal error", hint=hint)
    return _error_response(HeadgateError([problem], code="internal"))
