"""What every route is given: the controller, and who asks."""

from __future__ import annotations

import pwd
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any, cast

from fastapi import Depends, Request

from headgate.api.controller import Controller
from headgate.base.errors import Problem, SpecError
from headgate.model import Job

VERSION = version("headgate")
PEER = "headgate.peer"  # the key in the ASGI scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Who is at the other end of a connection, as the kernel says."""

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
    """Raise SpecError `forbidden` unless a user may read what a job wrote."""
    if not controller.may_read(job, user):
        hint = "its owner can open it when submitting: headgate submit --public"
        text = f"job {job.id} belongs to {job.user}"
        raise SpecError([Problem(path=job.id, problem=text, hint=hint)], code="forbidden")


def _controller(request: Request) -> Any:
    return request.app.state.controller


def _user(request: Request) -> str:
    return cast("Peer", request.scope[PEER]).user


Held = Annotated[Controller, Depends(_controller)]
User = Annotated[str, Depends(_user)]
