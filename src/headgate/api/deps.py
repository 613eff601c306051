"""Dependencies of the routes: the controller, the calling user, and thread pools."""

from __future__ import annotations

import asyncio
import pwd
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Annotated, Any, ParamSpec, TypeVar, cast

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Path, Query, Request

from headgate.api.controller import Controller
from headgate.base.errors import Problem, SpecError, WorldError
from headgate.model import Job

VERSION = version("headgate")
PEER = "headgate.peer"  # the key in the ASGI scope
_MOST_DIGITS = 12
_MOST_TASKS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The process at the other end of a connection, as the kernel reports it."""

    uid: int
    pid: int

    @property
    def user(self) -> str:
        """The user's name, `uid:N` for one without a name."""
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return f"uid:{self.uid}"


def need_readable(controller: Controller, job: Job, user: str) -> None:
    """Raise SpecError `forbidden` unless a user may read a job's logs and results."""
    if not controller.may_read(job, user):
        hint = "its owner can make it public when submitting: headgate submit --public"
        text = f"permission denied: job {job.id} belongs to {job.user}"
        raise SpecError([Problem(path=job.id, problem=text, hint=hint)], code="forbidden")


@dataclass(frozen=True, slots=True)
class ThreadPools:
    """Thread pools by what their calls wait for: the journal, nodes, changes, or a computation.

    Requests served from memory use the threads of plain `def` routes, so that no blocking request
    delays them. Requests beyond a pool's size wait for a free thread.
    """

    journal: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(64))
    nodes: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(32))
    changes: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(100))
    explanations: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))


MOST_S = 60.0
"""Seconds that an explanation may take."""

P = ParamSpec("P")
T = TypeVar("T")


async def in_pool(
    pool: CapacityLimiter, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a function that may block, in a thread of a pool."""
    return await to_thread.run_sync(lambda: function(*args, **kwargs), limiter=pool)


async def in_time(pool: CapacityLimiter, function: Callable[[], T]) -> T:
    """Call a function that may never return, such as a policy's, in a thread of its own.

    Raises WorldError `timeout` after MOST_S. The thread is then abandoned: it has no place in the
    pool any more, and does not keep the process from ending.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        outcome.set_running_or_notify_cancel()  # it cannot be cancelled any more
        try:
            outcome.set_result(function())
        except BaseException as error:  # noqa: BLE001  # a policy may fail in any way
            outcome.set_exception(error)

    async with pool:
        threading.Thread(target=run, name="explanation", daemon=True).start()
        waiting = asyncio.wrap_future(outcome)
        if not (await asyncio.wait([waiting], timeout=MOST_S))[0]:
            waiting.cancel()
            text = f"the policy did not answer within {MOST_S:g} s"
            raise WorldError(text, code="timeout")
        return await waiting


def _controller(request: Request) -> Any:
    return request.app.state.controller


def _user(request: Request) -> str:
    return cast("Peer", request.scope[PEER]).user


def _pools(request: Request) -> Any:
    return request.app.state.pools


def page_start(cursor: str | None, count: int) -> int | None:
    """Return a cursor as a number below `count`; None without one; SpecError if it is invalid."""
    if cursor is None:
        return None
    digits = cursor.isascii() and cursor.isdigit() and len(cursor) <= _MOST_DIGITS
    if not digits or int(cursor) >= count:
        hint = "take it from `next` of the previous page"
        problem = Problem(path="cursor", problem=f"'{cursor}' is not a cursor", hint=hint)
        raise SpecError([problem])
    return int(cursor)


Pools = Annotated[ThreadPools, Depends(_pools)]
Ordinal = Annotated[int, Query(ge=0, le=_MOST_TASKS)]
PathOrdinal = Annotated[int, Path(ge=0, le=_MOST_TASKS)]
ControllerDep = Annotated[Controller, Depends(_controller)]
User = Annotated[str, Depends(_user)]
Limit = Annotated[int, Query(ge=1, le=1000, description="maximum entries of a page")]
Cursor = Annotated[str | None, Query(description="`next` of the previous page")]
DryRun = Annotated[bool, Query(description="do all checks, change nothing")]
