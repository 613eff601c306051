"""The placer that a policy uses, from the parameters that all policies have for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from headgate.base.errors import Problem
from headgate.model import WHOLE, Job
from headgate.planning.balancers import BALANCERS
from headgate.planning.place.choose.balanced import Balanced
from headgate.planning.place.choose.rules import (
    BestFitSubtree,
    Block,
    ByLinks,
    ClosedMinimum,
    Cyclic,
    Placer,
    Sequential,
)
from headgate.ports import PLACE, Policy, capabilities
from headgate.protocol import Reason
from headgate.protocol.reasons import PolicyRefuses


def placer_of(
    *,
    place: str = "first-fit",
    reserve: str = "whole",
    otherwise: str = "spread",
    sizes: str = "round-up",
    block_size: float = 2.0,
) -> Placer | None:
    """Return the placer of the parameters `PLACE`, None for first fit."""
    placers: dict[str, Placer | None] = {
        "first-fit": None,
        "links": ByLinks(),
        "best-fit-subtree": BestFitSubtree(refuses_others=sizes == "refuse"),
        "closed-minimum": ClosedMinimum(reserve=reserve, otherwise=otherwise),
        "sequential": Sequential(),
        "block": Block(),
        "cyclic": Cyclic(),
        "block-cyclic": Cyclic(block=int(block_size), name="block-cyclic"),
        **{name: Balanced(balancer, name) for name, balancer in BALANCERS.items()},
    }
    return placers[place]


class PlacingPolicy(Policy):
    """A policy whose multi-GPU units may be placed by a placer; None for its own choice."""

    placer: Placer | None = None
    migrates: bool = False
    """Whether runs move to make room for others."""
    patience_s: float = math.inf
    by_share: bool = True
    has_guarantees: bool = False
    """Which units harden, and when; see `ports.Capabilities`."""

    def refuses(self, job: Job) -> Reason | None:
        """Return why the placer never places a job, or None."""
        gpus = self.rounded_up(job)
        if not gpus or self.placer is None or not self.placer.refuses_others:
            return None
        what = f"{gpus} GPUs with sizes=refuse, as that is no power of two"
        instead = f"{1 << gpus.bit_length()} GPUs, or {1 << gpus.bit_length() - 1}"
        return PolicyRefuses(policy=self.name, what=what, instead=instead)

    def rounded_up(self, job: Job) -> int:
        """Return how many GPUs a job needs together that the placer rounds up, 0 for none."""
        if self.placer is None or not self.placer.rounds_up:
            return 0
        first = job.tasks[: job.unit_tasks] if job.unit_tasks > 1 else job.tasks
        needs = [task.demand.gpus_milli for task in first if not task.demand.in_part]
        together = {sum(needs)} if job.unit_tasks > 1 else set(needs)
        return max((n for n in (milli // WHOLE for milli in together) if n & (n - 1)), default=0)


def size_warnings(policy: Policy, job: Job) -> tuple[Problem, ...]:
    """Return a warning if the placer of a policy rounds up a job's number of GPUs, else none."""
    gpus = capabilities(policy).rounded_up(job)
    if not gpus:
        return ()
    rounded = 1 << gpus.bit_length()
    problem = f"{gpus} GPUs are no power of two: they are placed where {rounded} are free, if any"
    hint = "the others stay free for all jobs; sizes that are powers of two fit together"
    return (Problem(path="resources", problem=problem, hint=hint),)


def with_place(
    make: Callable[..., PlacingPolicy], *, place: str = "first-fit"
) -> Callable[..., PlacingPolicy]:
    """Return a function that also takes the parameters `PLACE`; `place` is the default.

    Other processes can receive it.
    """
    return partial(_made, make, place)


def _made(
    make: Callable[..., PlacingPolicy], place: str, /, **parameters: float | str
) -> PlacingPolicy:
    names = [parameter.name for parameter in PLACE]
    settings = {name: parameters.pop(name) for name in names if name in parameters}
    settings.setdefault("place", place)
    policy = make(**parameters)
    policy.placer = placer_of(**settings)  # type: ignore[arg-type]  # checked by `make_policy`
    return policy
