"""The policies by name: what each is, where it is from, and its parameters.

Only this is read to list policies or to check their parameters: a policy's own module is imported
when it is made. `where` of a policy is that module and what makes it there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from headgate.base.errors import Problem
from headgate.ports import PLACE, Parameter, Policy, PolicyInfo

_FLOW_PAPER = (
    "Tang, Zhu, Mao, Fu, Li: Algorithm of scheduling for data-intensive computing operations onto "
    "GPU cluster, Journal of Software 33(12), 2022"
)
_MU_ALEM = (
    "Mu'alem and Feitelson, Utilization, predictability, workloads, and user runtime estimates "
    "in scheduling the IBM SP2 with backfilling, TPDS 2001"
)
_FAIR_SOJOURN = (
    "Friedman and Henderson, Fairness and efficiency in web server protocols, SIGMETRICS 2003"
)


def _distance(near: float, far: float) -> tuple[Parameter, ...]:
    """Return the prices of distance, which every policy of the flow paper has."""
    return (
        Parameter(
            name="alpha1",
            default=near,
            unit="1",
            meaning="price of a second spent reading within the rack",
            above=1.0,
        ),
        Parameter(
            name="alpha2",
            default=far,
            unit="1",
            meaning="price of a second spent reading across racks",
            above=1.0,
        ),
    )


_DISTANCE = _distance(1.5, 2.0)
_SLACK = Parameter(
    name="slack",
    default=0.25,
    unit="1",
    meaning="how far above its share a job may be before its runs are preempted, as a part of "
    "the share; 0 for none",
    least=0.0,
)
_MIGRATE = Parameter(
    name="migrate",
    default="never",
    unit="1",
    meaning="whether runs move to make room for the first task or gang that does not fit: never, "
    "or when that costs fewer GPU seconds than its expected wait",
    choices=("never", "when-cheaper"),
)
_RESERVATIONS = Parameter(
    name="reservations",
    default=100,
    unit="units",
    meaning="most tasks and gangs that have a reservation at a time, the first in order",
    least=1,
)
ANY, BELOW_SHARE = "any", "below share"
"""Which units harden once they have lost patience (`planning.rounds.patience`)."""
PATIENCE = Parameter(
    name="patience",
    default=259200.0,
    unit="s",
    meaning="for how long later jobs may overtake a task or gang, at most, before places are kept "
    "for it; less where runs are expected to leave them soon",
    least=0.0,
)


def _policy(
    where: str,
    name: str,
    idea: str,
    source: str,
    *parameters: Parameter,
    place: str = "first-fit",
    fixed: Mapping[str, str] | None = None,
    hardens: str = "",
    shares: bool = False,
    **more: Any,
) -> PolicyInfo:
    """Return a description; `fixed` are arguments of what makes it that are no parameters.

    Units harden that wait `below share`, or in `any` case; with "", none does. With `shares`, those
    give queues first what they are guaranteed.
    """
    patience = (PATIENCE,) if hardens else ()
    return PolicyInfo(
        name=name,
        idea=idea,
        source=source,
        parameters=(*parameters, *patience, replace(PLACE[0], default=place), *PLACE[1:]),
        make=partial(_made, where, place, fixed or {}, hardens, shares),
        **more,
    )


def _made(
    where: str,
    place: str,
    fixed: Mapping[str, str],
    hardens: str,
    shares: bool,
    /,
    **parameters: Any,
) -> Policy:
    """Return a policy with its placer and patience; other processes can receive this function."""
    from headgate.planning.place.choose.setting import (
        with_place,  # slow, as is the policy's own module
    )

    module, _, make = where.partition(":")
    makes = getattr(import_module(f"{__package__}.{module}"), make)
    patience_s = float(parameters.pop("patience", PATIENCE.default)) if hardens else math.inf
    policy = with_place(partial(makes, **fixed), place=place)(**parameters)
    policy.patience_s, policy.by_share = patience_s, hardens == BELOW_SHARE
    policy.has_guarantees = shares
    return policy


def _ordered(
    name: str,
    order: str,
    idea: str,
    source: str,
    *parameters: Parameter,
    backfill: str | None = None,
    **more: Any,
) -> PolicyInfo:
    """Return the description of an order; without a kind of backfill, it preempts."""
    return _policy(
        "ordered.policy:preempting" if backfill is None else "ordered.policy:backfilling",
        name,
        idea,
        source,
        *parameters,
        *(() if backfill != "conservative" else (_RESERVATIONS,)),
        *(() if backfill is None else (_MIGRATE,)),
        fixed={"order": order} | ({} if backfill is None else {"name": name, "backfill": backfill}),
        parts={"order": order, "place": "first-fit", "backfill": backfill or "none"},
        **more,
    )


def _thresholds_in_order(values: Mapping[str, float]) -> list[Problem]:
    low, high = values["threshold1"], values["threshold2"]
    if low < high:
        return []
    text = f"threshold1 ({low:g}) is not below threshold2 ({high:g})"
    hint = "GPUs at the second-best cost are accepted earlier than all others"
    return [Problem(path="policy.threshold1", problem=text, hint=hint)]


_ALL = (
    _policy(
        "flow:TimelyFlow",
        "headgate",
        "fair shares over time, near the data, planned ahead; each task where its reading would "
        "end first, on a GPU free now or soon; jobs in the order in which fair sharing would "
        "finish them",
        f"Headgate; built on {_FLOW_PAPER}",
        Parameter(
            name="memory_s",
            default=600.0,
            unit="s",
            meaning="time in which the debt to a job, the GPU seconds that it missed, decays to "
            "37 %",
            above=0.0,
        ),
        _SLACK,
        Parameter(
            name="reservations",
            default=16.0,
            unit="units",
            meaning="gangs and other multi-GPU units with reservations while they wait, at most",
            least=0.0,
        ),
        _MIGRATE,
        place="links",
        hardens=BELOW_SHARE,
        shares=True,
    ),
    _policy(
        "ordered.fifo:FirstInFirstOut",
        "fifo",
        "strict order of arrival; the first job that does not fit blocks all later ones",
        "the simplest baseline of every batch system",
        _MIGRATE,
        parts={"order": "arrival", "place": "first-fit", "backfill": "none"},
    ),
    _policy(
        "ordered.new_capacity:NewCapacity",
        "new-capacity",
        "each queue in order of arrival within its guarantee; by what jobs need at least; CPU "
        "jobs borrow, and elastic jobs divide what is left equally",
        "Hu, Zhang, Peng, Chen, Qi: Construction and optimisation of heterogeneous distributed "
        "deep learning platforms, 2023",
        hardens=ANY,
    ),
    _ordered(
        "easy-backfill",
        "arrival",
        "order of arrival, backfill behind one reservation; that of the first job that does "
        "not fit; later ones start where they do not delay it",
        "Lifka, The ANL/IBM SP scheduling system, JSSPP 1995",
        backfill="easy",
        hardens=ANY,
    ),
    _ordered(
        "conservative-backfill",
        "arrival",
        "order of arrival, backfill behind all reservations; all jobs that do not fit have "
        "one, later ones start where they delay none",
        _MU_ALEM,
        backfill="conservative",
        hardens=ANY,
    ),
    _ordered(
        "least-attained-service",
        "least-attained-service",
        "two queues, by the GPU time that a job has had; the first precedes and preempts the "
        "second; order of arrival in each",
        "Gu et al., Tiresias: A GPU cluster manager for distributed deep learning, NSDI 2019",
        Parameter(
            name="threshold_gpu_s",
            default=3250.0,
            unit="GPU s",
            meaning="attained service from which on a job is in the second queue",
            above=0.0,
        ),
        hardens=ANY,
    ),
    _ordered(
        "srtf",
        "srtf",
        "shortest remaining time first; the job with the least GPU time left by exact "
        "durations first; preempts; an oracle, for simulations alone",
        "Schrage, A proof of the optimality of the shortest remaining processing time "
        "discipline, Operations Research 1968",
        simulated_only=True,
    ),
    _ordered(
        "fair-order",
        "fair",
        "order in which fair sharing would end jobs; the first that does not fit blocks all "
        "later ones",
        _FAIR_SOJOURN,
        backfill="none",
        hardens=BELOW_SHARE,
    ),
    _ordered(
        "fair-easy-backfill",
        "fair",
        "as fair-order, backfill behind one reservation; that of the first job that does not fit",
        _FAIR_SOJOURN,
        backfill="easy",
        hardens=BELOW_SHARE,
    ),
    _ordered(
        "fair-conservative-backfill",
        "fair",
        "as fair-order, backfill behind all reservations; all jobs that do not fit have one",
        _FAIR_SOJOURN,
        backfill="conservative",
        hardens=BELOW_SHARE,
    ),
    _policy(
        "flow:FlowSharing",
        "fs",
        "fair shares with the least total reading time; no preemption",
        _FLOW_PAPER,
        *_distance(3.0, 4.0),
        Parameter(
            name="alpha3",
            default=1.1,
            unit="1",
            meaning="half the price of waiting, per second that the job's average task would spend "
            "reading across racks; small values hold tasks back until a nearer GPU is free",
            above=1.0,
        ),
        hardens=BELOW_SHARE,
        shares=True,
    ),
    _policy(
        "flow:PreemptiveFlowSharing",
        "fsp",
        "fair shares immediately, near the data; runs of jobs far above their share are preempted",
        _FLOW_PAPER,
        *_DISTANCE,
        _SLACK,
        hardens=BELOW_SHARE,
        shares=True,
    ),
    _policy(
        "flow:UnfairFlow",
        "fsu",
        "most tasks, nearest to the data, of any job; within ceilings of queues",
        _FLOW_PAPER,
        *_DISTANCE,
    ),
    _policy(
        "offers.greedy:GreedySharing",
        "gs",
        "each free GPU to the job that has the fewest; for its cheapest task",
        _FLOW_PAPER,
        *_DISTANCE,
        shares=True,
    ),
    _policy(
        "offers.greedy:GreedyPreemption",
        "gsp",
        "gs with preemption; runs of jobs far above their share, for jobs below theirs",
        _FLOW_PAPER,
        *_DISTANCE,
        _SLACK,
        shares=True,
    ),
    _policy(
        "offers.greedy:GreedyDelay",
        "gsd",
        "gs with delay; a job below its share declines GPUs far from its data for some rounds",
        _FLOW_PAPER,
        *_DISTANCE,
        Parameter(
            name="threshold1",
            default=5.0,
            unit="skips",
            meaning="skip counter beyond which a job accepts the second-best cost",
            least=0.0,
        ),
        Parameter(
            name="threshold2",
            default=10.0,
            unit="skips",
            meaning="skip counter beyond which a job accepts any GPU",
            least=0.0,
        ),
        check=_thresholds_in_order,
        shares=True,
    ),
    _policy(
        "offers.yarn:Capacity",
        "capacity",
        "equal shares for users, order of arrival in each; near the data where free",
        "Apache Hadoop YARN: Capacity Scheduler",
        shares=True,
    ),
    _policy(
        "offers.yarn:Fair",
        "fair",
        "equal shares for users, then for their jobs; near the data where free",
        "Apache Hadoop YARN: Fair Scheduler",
        shares=True,
    ),
)
OWN: Mapping[str, PolicyInfo] = {info.name: info for info in _ALL}
"""Headgate's own policies by name, in the order of listing."""
