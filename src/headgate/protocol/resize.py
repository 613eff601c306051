"""The step `Resize` of a plan, and why leases are resized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headgate.protocol.reasons import PreemptedFor, Reason


class Resize(NamedTuple):
    """Keep at most `slots` runs of a lease: the runs of a job with items on one node (rows).

    Admission expands it to stops: of the tasks `first`, then of those started last. A run that has
    ended since the snapshot counts as stopped. To give a lease more slots, a plan starts them.
    """

    job: int
    node: int
    slots: int
    reason: Reason
    first: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimed(PreemptedFor):
    """A slot of a lease is stopped, or does not start, for `job` of a user below the fair share.

    `queue` and `user` are those of `job`.
    """

    queue: str
    user: str

    def cause(self) -> str:
        return f"reclaimed for {self.job} of {self.user} (queue {self.queue}), below its fair share"

    def way_out(self) -> str:
        return "starts again when resources are free, or its own share is larger"
