"""What a policy may offer beyond the protocol `Policy`; each part is optional."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # slow, as in `ports.policy`
    from headgate.model import Job
    from headgate.ports.policy import Policy
    from headgate.state import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateStats:
    """The number of warm rounds that were checked, and of those that were not optimal.

    `last_gap` is the cost of the last one above the lower bound that its prices certify, in
    microseconds.
    """

    rounds: int = 0
    violations: int = 0
    last_gap: int = 0


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


class RoundPrices(Protocol):
    """The prices of the rounds of a policy, in seconds."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The optional attributes of a policy, under their names, or their defaults."""

    migrates: bool
    """Whether runs move to make room for others."""
    preempts_by_order: bool
    """Whether it stops runs by an order that is not that of shares."""
    rounded_up: Callable[[Job], int]
    """Returns how many GPUs a job needs together that are rounded up, 0 for none."""
    warm_copy: Callable[[], Policy] | None
    """Returns a copy for hypothetical rounds, which are those that the policy would decide.

    Of a policy that continues from its last round: this may decide between equal choices. No other
    thread may use the policy meanwhile.
    """
    certified: CertificateStats | None
    """What the checks of its certificates have found."""
    prices: RoundPrices | None
    """The prices of its rounds."""
    patience_s: float
    """For how long later jobs overtake a unit, at most, before it hardens; inf without limit."""
    by_share: bool
    """Whether only units of owners below their share harden; else each that waits."""
    has_guarantees: bool
    """Whether its shares give queues first what they are guaranteed."""
    equal_surplus: bool
    """Whether elastic jobs of a queue divide equally what it leaves over; else by fair shares."""
    reserves_for_impatient: bool
    """Whether it reserves next for multi-GPU units without patience (`Announced`)."""
    placer: Any
    """What chooses nodes for its units."""


def capabilities(policy: Policy) -> Capabilities:
    """Return what a policy offers now; it need not inherit from anything."""
    return Capabilities(
        migrates=getattr(policy, "migrates", False),
        preempts_by_order=getattr(policy, "preempts_by_order", False),
        rounded_up=getattr(policy, "rounded_up", _not_rounded),
        warm_copy=getattr(policy, "warm_copy", None),
        certified=getattr(policy, "certified", None),
        prices=getattr(policy, "prices", None),
        patience_s=getattr(policy, "patience_s", math.inf),
        by_share=getattr(policy, "by_share", True),
        has_guarantees=getattr(policy, "has_guarantees", False),
        equal_surplus=getattr(policy, "equal_surplus", False),
        reserves_for_impatient=getattr(policy, "reserves_for_impatient", False),
        placer=getattr(policy, "placer", None),
    )


def _not_rounded(job: Job) -> int:
    del job
    return 0
