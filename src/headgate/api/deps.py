"""Dependencies of the routes: the controller, the calling user, and thread pools."""

from __future__ import annotations

import pwd
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Annotated, Any, ParamSpec, TypeVar, cast

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Query, Request

from headgate.api.controller import Controller
from headgate.base.errors import Problem, SpecError
from headgate.model import Job

VERSION = version("headgate")
PEER = "headgate.peer"  # the key in the ASGI scope


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
        text = f"job {job.id} belongs to {job.user}"
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


P = ParamSpec("P")
T = TypeVar("T")


async def in_pool(
    pool: CapacityLimiter, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a function that may block, in a thread of a pool."""
    return await to_thread.run_sync(lambda: function(*args, **kwargs), limiter=pool)


def _controller(request: Request) -> Any:
    return request.app.state.controller


def _user(request: Request) -> str:
    return cast("Peer", request.scope[PEER]).user


def _pools(request: Request) -> Any:
    return request.app.state.pools


Pools = Annotated[ThreadPools, Depends(_pools)]
Ordinal = Annotated[int, Query(ge=0, le=1_000_000)]
ControllerDep = Annotated[Controller, Depends(_controller)]
User = Annotated[str, Depends(_user)]
