"""The setting `place` of policies: which placer they use, and its parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from headgate.base.errors import Problem
from headgate.model import WHOLE, Job
from headgate.planning.balancers import BALANCERS
from headgate.planning.placers.balanced import Balanced
from headgate.planning.placers.rules import (
    BestFitSubtree,
    Block,
    ByLinks,
    ClosedMinimum,
    Cyclic,
    Placer,
    Sequential,
)
from headgate.ports import Parameter, Policy
from headgate.protocol import Reason
from headgate.protocol.reasons import PolicyRefuses

FIRST_FIT = "first-fit"
"""The policy's own choice, without regard to a topology."""

BY_LINKS = "headgate"
"""Where jobs that communicate end soonest, others as tightly as possible."""

PLACES = (
    FIRST_FIT,
    BY_LINKS,
    "best-fit-subtree",
    "closed-minimum",
    "sequential",
    "block",
    "cyclic",
    "block-cyclic",
    *BALANCERS,
)

PLACE = (
    Parameter(
        name="place",
        default=FIRST_FIT,
        unit="1",
        meaning="where gangs and tasks of several GPUs are placed; first-fit is without regard to "
        "the topology, headgate where they end soonest, else as tightly as possible; balancers "
        "(random to least-cost) place single tasks, too",
        choices=PLACES,
    ),
    Parameter(
        name="reserve",
        default="whole",
        unit="1",
        meaning="with closed-minimum: whether the whole closed set of a job is kept from other "
        "placed jobs, or what its tasks need",
        choices=("whole", "needed"),
    ),
    Parameter(
        name="otherwise",
        default="spread",
        unit="1",
        meaning="with closed-minimum, for a job without an idle closed set of least diameter: "
        "spread over what is free, enlarge the closed set, or wait for one",
        choices=("spread", "enlarge", "wait"),
    ),
    Parameter(
        name="sizes",
        default="round-up",
        unit="1",
        meaning="with best-fit-subtree, for a number of GPUs that is no power of two: look for "
        "the next one, or refuse the job",
        choices=("round-up", "refuse"),
    ),
    Parameter(
        name="block_size",
        default=2.0,
        unit="tasks",
        meaning="with block-cyclic: tasks that each part of the machine gets in turn",
        least=1.0,
    ),
)
"""The parameters of every policy that places gangs."""


PLACE_BY_LINKS = (replace(PLACE[0], default=BY_LINKS), *PLACE[1:])
"""Those of a policy that places by links by default."""


def placer_of(
    *,
    place: str = FIRST_FIT,
    reserve: str = "whole",
    otherwise: str = "spread",
    sizes: str = "round-up",
    block_size: float = 2.0,
) -> Placer | None:
    """Return the placer of the parameters `PLACE`, None for first fit."""
    placers: dict[str, Placer] = {
        BY_LINKS: ByLinks(),
        "best-fit-subtree": BestFitSubtree(refuses_others=sizes == "refuse"),
        "closed-minimum": ClosedMinimum(reserve=reserve, otherwise=otherwise),
        "sequential": Sequential(),
        "block": Block(),
        "cyclic": Cyclic(),
        "block-cyclic": Cyclic(block=int(block_size), name="block-cyclic"),
        **{name: Balanced(balancer, name) for name, balancer in BALANCERS.items()},
    }
    return placers.get(place)


class PlacingPolicy(Policy):
    """A policy whose wide units may be placed by a placer; None for its own choice."""

    placer: Placer | None = None
    migrates: bool = False
    """Whether runs move to make room for others."""

    def refuses(self, job: Job) -> Reason | None:
        """Return why the placer never places a job, or None."""
        gpus = self.rounded_up(job)
        if not gpus or not isinstance(self.placer, BestFitSubtree):
            return None
        if not self.placer.refuses_others:
            return None
        what = f"{gpus} GPUs with sizes=refuse, as that is no power of two"
        instead = f"{1 << gpus.bit_length()} GPUs, or {1 << gpus.bit_length() - 1}"
        return PolicyRefuses(policy=self.name, what=what, instead=instead)

    def rounded_up(self, job: Job) -> int:
        """Return how many GPUs a job needs together that the placer rounds up, 0 for none."""
        if not isinstance(self.placer, BestFitSubtree):
            return 0
        needs = [task.demand.gpus_milli for task in job.tasks if not task.demand.in_part]
        together = {sum(needs)} if job.gang else set(needs)
        return max((n for n in (milli // WHOLE for milli in together) if n & (n - 1)), default=0)


def size_warnings(policy: Policy, job: Job) -> tuple[Problem, ...]:
    """Return a warning if the placer of a policy rounds up a job's number of GPUs, else none."""
    gpus = policy.rounded_up(job) if isinstance(policy, PlacingPolicy) else 0
    if not gpus:
        return ()
    rounded = 1 << gpus.bit_length()
    problem = f"{gpus} GPUs are no power of two: they are placed where {rounded} are free, if any"
    hint = "the others stay free for all jobs; sizes that are powers of two fit together"
    return (Problem(path="resources", problem=problem, hint=hint),)


def with_place(
    make: Callable[..., PlacingPolicy], *, place: str = FIRST_FIT
) -> Callable[..., Policy]:
    """Return a function that also takes the parameters `PLACE`; `place` is the default.

    Other processes can receive it.
    """
    return partial(_made, make, place)


def _made(make: Callable[..., PlacingPolicy], place: str, /, **parameters: float | str) -> Policy:
    names = [parameter.name for parameter in PLACE]
    settings = {name: parameters.pop(name) for name in names if name in parameters}
    settings.setdefault("place", place)
    policy = make(**parameters)
    policy.placer = placer_of(**settings)  # type: ignore[arg-type]  # checked by `make_policy`
    return policy
