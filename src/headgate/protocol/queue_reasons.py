"""Reasons why a queue lets no more of what waits in it start, beside its limit of GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.base.units import format_size
from headgate.model import amount_of
from headgate.protocol.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueQuota(Reason):
    """The queue's `limit` of a resource is reached: bytes of memory, else thousandths.

    Or, where it may not borrow, what it is guaranteed.
    """

    queue: str
    resource: str
    used: int
    limit: int

    def cause(self) -> str:
        used, limit = (_amount(self.resource, amount) for amount in (self.used, self.limit))
        return f"queue {self.queue}: {used} of {limit} {_name(self.resource)} allocated"

    def way_out(self) -> str:
        if not self.used:
            return "starts when its limit is raised"
        return "starts when tasks of the queue end"


def _name(resource: str) -> str:
    return {"cpus": "CPUs", "gpus": "GPUs"}.get(resource, resource)


def _amount(resource: str, amount: int) -> str:
    return format_size(amount) if resource == "memory" else f"{amount_of(amount)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserLimit(Reason):
    """What the queue allows each user is reached (`per_user`): amounts as of `QueueQuota`."""

    queue: str
    user: str
    resource: str
    used: int
    limit: int

    def cause(self) -> str:
        used, limit = (_amount(self.resource, amount) for amount in (self.used, self.limit))
        has = f"{self.user} has {used} of {limit} {_name(self.resource)} per user"
        return f"queue {self.queue}: {has}"

    def way_out(self) -> str:
        if not self.used:
            return "starts when its per_user is raised"
        return f"starts when tasks of {self.user} in the queue end"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTooSmall(Reason):
    """What a job needs together is more than the queue allows each user (`per_user`)."""

    queue: str
    resource: str
    needed: int
    limit: int

    def cause(self) -> str:
        needed, limit = (_amount(self.resource, amount) for amount in (self.needed, self.limit))
        what = f"{needed} {_name(self.resource)}"
        return f"rejected: needs {what}, {limit} per user in queue {self.queue}"

    def way_out(self) -> str:
        limit = _amount(self.resource, self.limit)
        return f"request at most {limit}, use another queue, or raise its per_user"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStopped(Reason):
    """An administrator has stopped the queue: nothing in it starts."""

    queue: str

    def cause(self) -> str:
        return f"queue {self.queue} is stopped"

    def way_out(self) -> str:
        return "starts when an administrator opens it"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack(Reason):
    """A run is stopped since `queue` takes back what it is guaranteed and has lent, for `job`."""

    job: str
    queue: str

    def cause(self) -> str:
        return f"reclaimed for {self.job}: queue {self.queue} takes back what it lent"

    def way_out(self) -> str:
        return "starts again when resources are free"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComesBack(Reason):
    """`queue` takes back what it needs for this: the runs that hold it are being stopped."""

    queue: str

    def cause(self) -> str:
        return f"queue {self.queue} takes back what it lent"

    def way_out(self) -> str:
        return "starts when the runs have ended that are stopped for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotLent(Reason):
    """What is free of a resource is guaranteed to `queue`, which lends nothing."""

    queue: str
    resource: str

    def cause(self) -> str:
        return f"the free {_name(self.resource)} are kept for queue {self.queue}"

    def way_out(self) -> str:
        return "starts when others are free, or when that queue lends"
