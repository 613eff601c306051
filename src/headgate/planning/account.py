"""What a policy that shares by price can say of itself, beyond its plans: shares and prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from headgate.state import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """How a job stands in the round that a snapshot would have.

    `share_gpus` is its share of all GPUs, None where the policy has no shares; `may_win_gpus` is
    how many of the free GPUs it may win, alone or, without shares, with all jobs of its queue.
    `wait_s` is the price above which one of its tasks waits rather than runs; None where none waits
    by price, and where no GPU is free that it might run on.
    """

    share_gpus: int | None
    may_win_gpus: int
    wait_s: float | None


@runtime_checkable
class Accountable(Protocol):
    """A policy whose rounds are priced in seconds."""

    def accounts(self, snapshot: Snapshot) -> Mapping[int, Account]:
        """Return how each job stands that the policy deals GPUs to, by its row."""
        ...

    def cost_s(self, snapshot: Snapshot, task: int, node: int) -> float:
        """Return the price of running a task on a node."""
        ...

    def slot_price_s(self, snapshot: Snapshot, node: int, memory_bytes: int) -> float | None:
        """Return what a free GPU of this size on a node is worth in the round of a snapshot.

        That is by how much all that is placed, and waits, would cost more with one such GPU less;
        None when a task fewer would run. Such a GPU must be free.
        """
        ...
