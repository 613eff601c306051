"""Shares and prices that a flow policy reports beyond its plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from headgate.state import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPrices:
    """A job's share and prices in the round of a snapshot.

    `share_gpus` is its fair share of all GPUs, None if the policy has no shares; `may_win_gpus` is
    the most of the free GPUs that it may get, alone or, without shares, with all jobs of its queue.
    `wait_s` is the price, in seconds, above which one of its tasks waits; None if no task waits by
    price, and if no free GPU fits its tasks.
    """

    share_gpus: int | None
    may_win_gpus: int
    wait_s: float | None


@runtime_checkable
class Priced(Protocol):
    """A policy that prices its rounds in seconds."""

    def job_prices(self, snapshot: Snapshot) -> Mapping[int, JobPrices]:
        """Return the share and prices of each job that the policy allocates GPUs to, by its row."""
        ...

    def cost_s(self, snapshot: Snapshot, task: int, node: int) -> float:
        """Return the price of running a task on a node, in seconds."""
        ...

    def slot_price_s(self, snapshot: Snapshot, node: int, gpu: int) -> float | None:
        """Return the shadow price of a free GPU (index on its node), in seconds.

        It is how much more the round of a snapshot would cost with one GPU of its class on the node
        less; None if one task less would start. Such a GPU must be free.
        """
        ...
