"""Dependencies of the routes: the controller, the calling user, and what users share."""

from __future__ import annotations

import asyncio
import math
import pwd
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack
from copy import copy
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from inspect import iscoroutinefunction
from typing import Annotated, Any, ParamSpec, TypeVar, cast

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.routing import APIRoute
from starlette.types import Message, Receive, Scope, Send

from headgate.api.controller import ControllerPort
from headgate.base.errors import Problem, SpecError, WorldError
from headgate.live.base.user_slots import UserSlots
from headgate.model import Job

VERSION = version("headgate")
MOST_CONNECTIONS = 512
"""Connections of one user at the same time; a further one gets an error and is closed."""
PEER = "headgate.peer"  # the key in the ASGI scope
_MOST_DIGITS = 12
_MOST_TASKS = 1_000_000

MOST_S = 60.0
"""Seconds that an explanation may take."""

P = ParamSpec("P")
T = TypeVar("T")


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


def need_readable(controller: ControllerPort, job: Job, user: str) -> None:
    """Raise SpecError `forbidden` unless a user may read a job's logs and results."""
    if not controller.may_read(job, user):
        hint = "its owner can make it public when submitting: headgate submit --public"
        text = f"permission denied: job {job.id} belongs to {job.user}"
        raise SpecError([Problem(path=job.id, problem=text, hint=hint)], code="forbidden")


class ThreadPools:
    """Slots that the callers share, by what their requests wait for, and threads for those.

    So a slow client delays none but uploads, those of its own user first, and requests served from
    memory, which use the threads of plain `def` routes, wait for no blocking request.
    """

    uid = -1  # of the caller

    def __init__(self) -> None:
        self.memory = UserSlots("requests", 32, each=4, waiting=MOST_CONNECTIONS)
        self.texts = UserSlots("job files", 128, each=32)  # of 4 MiB, until they are handled
        self.journal = UserSlots("requests for the journal", 128, each=32)
        self.nodes = UserSlots("requests to nodes", 32, each=8)
        self.uploads = UserSlots("uploads", 128, each=8)
        self.downloads = UserSlots("results being read", 128, each=16)
        self.events = UserSlots("event streams", 128, each=32, waiting=0)
        self.explanations = UserSlots("explanations and plans", 1, each=1)
        self.threads = CapacityLimiter(math.inf)  # as many as slots

    def of(self, uid: int) -> ThreadPools:
        """Return these, for a request of this user."""
        pools = copy(self)
        pools.uid = uid
        return pools

    async def run(
        self, slots: UserSlots, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function that may block, in a thread, while the caller holds one of `slots`."""
        async with slots.slot(self.uid):
            call = partial(function, *args, **kwargs)
            return await to_thread.run_sync(call, limiter=self.threads)

    async def run_in_time(self, slots: UserSlots, function: Callable[[], T]) -> T:
        """Call a function that may never return, such as a policy's, in a thread of its own.

        Raises WorldError `timeout` after MOST_S. The thread is then abandoned: it holds no slot any
        more, and does not keep the process from ending.
        """
        outcome: Future[T] = Future()

        def call() -> None:
            outcome.set_running_or_notify_cancel()  # it cannot be cancelled any more
            try:
                outcome.set_result(function())
            except BaseException as error:  # noqa: BLE001  # a policy may fail in any way
                outcome.set_exception(error)

        async with slots.slot(self.uid):
            threading.Thread(target=call, name="explanation", daemon=True).start()
            waiting = asyncio.wrap_future(outcome)
            if not (await asyncio.wait([waiting], timeout=MOST_S))[0]:
                waiting.cancel()
                text = f"the policy did not answer within {MOST_S:g} s"
                raise WorldError(text, code="timeout")
            return await waiting


def new_router(choose: Callable[[ThreadPools], UserSlots] | None = None) -> APIRouter:
    """Return a router whose requests hold one of these slots until their responses have been sent.

    By default, requests that are served from memory (plain `def` routes) hold one while they are.
    """

    class SharedRoute(APIRoute):
        async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
            pools, uid = scope["app"].state.pools, cast("Peer", scope[PEER]).uid
            if choose is not None:
                async with choose(pools).slot(uid):
                    await super().handle(scope, receive, send)
            elif iscoroutinefunction(self.endpoint):  # it takes slots itself
                await super().handle(scope, receive, send)
            else:
                async with AsyncExitStack() as held:
                    await held.enter_async_context(pools.memory.slot(uid))

                    async def sent(message: Message) -> None:
                        await held.aclose()  # the client may read slowly
                        await send(message)

                    await super().handle(scope, receive, sent)

    return APIRouter(route_class=SharedRoute)


def _controller(request: Request) -> Any:
    return request.app.state.controller


def _user(request: Request) -> str:
    return cast("Peer", request.scope[PEER]).user


def _pools(request: Request) -> Any:
    return request.app.state.pools.of(cast("Peer", request.scope[PEER]).uid)


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
ControllerDep = Annotated[ControllerPort, Depends(_controller)]
User = Annotated[str, Depends(_user)]
Limit = Annotated[int, Query(ge=1, le=1000, description="maximum entries of a page")]
Cursor = Annotated[str | None, Query(description="`next` of the previous page")]
DryRun = Annotated[bool, Query(description="do all checks, change nothing")]
