"""Simulations of histories under several policies, and the figures of each.

Every policy runs on the size of the goals, or on those that are named; on the other busy sizes only
the policies that a goal compares there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.base.units import format_compact
from headgate.experiments.frame.experiment import need_policies
from headgate.experiments.histories.histories import History, Source
from headgate.experiments.histories.sizes import HistorySizes
from headgate.metrics.fluid_sharing import fluid_ends
from headgate.metrics.records import JobRecords
from headgate.metrics.summary import SIZES
from headgate.ports import PolicyInfo, make_policy
from headgate.sim.estimated import Estimated
from headgate.sim.run import from_trace, run
from headgate.sim.trace_jobs import TraceJobs, TraceModel, TraceWork
from headgate.state import JobState

Policies = Mapping[str, PolicyInfo]
Row = Mapping[str, Any]
"""The figures of one run, and what was run.

`trace, gpus, policy, estimates, resume_s, patience_s`.
"""


UNBOUNDED_S = 1e9
"""A bound of patience that is longer than all histories: what keeping places costs decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVariant:
    """A policy, the run times that it knows, what a preempted job pays, and its patience.

    `estimated` is None for a policy that uses none. See `headgate.sim.trace_jobs.TraceModel`.
    `patience_s` is None for the policy's default.
    """

    policy: str
    estimated: Estimated | None = None
    resume_s: float | None = None
    patience_s: float | None = None

    @property
    def name(self) -> str:
        """The name in tables and charts."""
        known = "" if self.estimated is None else f", {self.estimated}"
        resumed = "" if self.resume_s is None else f", resumed in {self.resume_s:g} s"
        patience = "" if self.patience_s is None else f", patience {self.patience}"
        return f"{self.policy}{known}{resumed}{patience}"

    @property
    def patience(self) -> str:
        """How long its patience is, "default" for that of the policy."""
        if self.patience_s is None:
            return "default"
        return "unbounded" if self.patience_s >= UNBOUNDED_S else format_compact(self.patience_s)


ORACLE = "srtf"
"""The policy that needs exact run times, and so runs in the simulator only."""

FIFO = PolicyVariant(policy="fifo")
EASY = PolicyVariant(policy="easy-backfill", estimated=Estimated.EXACT)
HEADGATE = PolicyVariant(policy="headgate", estimated=Estimated.LEARNT)

ORDERS = (
    FIFO,
    EASY,
    PolicyVariant(policy="easy-backfill", estimated=Estimated.LEARNT),
    PolicyVariant(policy="conservative-backfill", estimated=Estimated.EXACT),
    PolicyVariant(policy="conservative-backfill", estimated=Estimated.LEARNT),
    PolicyVariant(policy="least-attained-service"),
    PolicyVariant(policy=ORACLE, estimated=Estimated.EXACT),
)
"""Those whose finish-time fairness `headgate` is to improve on; preempted jobs lose their work."""

RESUMED = (
    PolicyVariant(policy="least-attained-service", resume_s=0.0),
    PolicyVariant(policy=ORACLE, estimated=Estimated.EXACT, resume_s=0.0),
)
"""Those that preempt, if preempted jobs lost nothing."""

VARIANTS = (
    *ORDERS,
    *RESUMED,
    HEADGATE,
    PolicyVariant(policy="headgate", estimated=Estimated.EXACT),
)
"""All that are compared, in order."""

ON_BUSY_SIZES = (FIFO, EASY, HEADGATE)
"""Those that run on the other sizes, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRun:
    """One simulation."""

    source: Source
    gpus: int
    variant: PolicyVariant


def choose(
    known: Policies, names: Sequence[str] | None, patience_s: Sequence[float] = ()
) -> tuple[PolicyVariant, ...]:
    """Return the variants with these policies, by default all; a policy that has none gets one.

    And for those with learnt run times and patience, one with each of `patience_s` more. Raises
    SpecError `unknown_policy`.
    """
    if names is None:
        chosen = [variant for variant in VARIANTS if variant.policy in known]
    else:
        need_policies(names, known)
        chosen = [
            variant
            for name in dict.fromkeys(names)
            for variant in [c for c in VARIANTS if c.policy == name]
            or [PolicyVariant(policy=name, estimated=Estimated.LEARNT)]
        ]
    impatient = [
        replace(variant, patience_s=seconds)
        for variant in chosen
        if variant.estimated is Estimated.LEARNT
        and any(parameter.name == "patience" for parameter in known[variant.policy].parameters)
        for seconds in dict.fromkeys(patience_s)
    ]
    return (*chosen, *impatient)


class Which(StrEnum):
    """The sizes on which a history runs: that of its goals, half of it and up, all busy ones."""

    GOAL = "goal"
    NEAR = "near"
    ALL = "all"


def plan(
    histories: Sequence[History],
    sizes: Mapping[History, HistorySizes],
    variants: Sequence[PolicyVariant],
    on: Which | Sequence[int],
) -> tuple[HistoryRun, ...]:
    """Return the runs by history and size, the size of its goals first; `on` may be sizes."""

    def of(history: History) -> Iterator[HistoryRun]:
        fully, partly = _sizes_of(sizes[history], on)
        for gpus in (*fully, *reversed(partly)):
            for variant in variants:
                if gpus in fully or variant in ON_BUSY_SIZES:
                    yield HistoryRun(source=history.source, gpus=gpus, variant=variant)

    return tuple(run for history in histories for run in of(history))


def _sizes_of(
    found: HistorySizes, on: Which | Sequence[int]
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the sizes on which all variants run, and those of the goal of busy sizes alone."""
    if not isinstance(on, Which):
        return on, ()
    busy = {Which.GOAL: (), Which.NEAR: found.near, Which.ALL: found.busy}[on]
    of_goal = () if found.goal is None else (found.goal,)
    return of_goal, [gpus for gpus in busy if gpus != found.goal]


def measure(what: HistoryRun, known: Policies) -> Row:
    """Execute a run and return its row."""
    variant, history = what.variant, what.source.open()
    model = TraceModel(estimated=variant.estimated or Estimated.LEARNT, resume_s=variant.resume_s)
    parameters = {} if variant.patience_s is None else {"patience": variant.patience_s}
    policy = make_policy(known, variant.policy, parameters)
    simulation = from_trace(history, policy, gpus=what.gpus, seed=0, model=model)
    outcome = run(simulation, policy)
    assert isinstance(simulation.submissions, TraceJobs), "from_trace returns jobs of a trace"
    jobs = simulation.submissions.history()
    return {
        "trace": what.source.name,
        "gpus": what.gpus,
        "policy": variant.policy,
        "estimates": None if variant.estimated is None else str(variant.estimated),
        "resume_s": variant.resume_s,
        "patience_s": variant.patience_s,
        **{name: value for name, value in outcome.figures.items() if name not in _LEFT_OUT},
        **times(outcome.jobs),
        "by_size": [
            {"gpus_at_least": size, **times(outcome.jobs, jobs.gpus >= size)} for size in SIZES
        ],
        "least_p95_fairness": least_p95_fairness(outcome.jobs.submitted_at, jobs, what.gpus),
    }


_LEFT_OUT = ("policy", "seed", "fairness", "bytes")  # the same in every row


def times(jobs: JobRecords, chosen: NDArray[np.bool_] | None = None) -> dict[str, Any]:
    """Return mean, median and p99 of completion and waiting times, of all jobs or those chosen.

    Definitions as in `headgate.metrics.summary`; `jobs` counts those that started. None where there
    are none.
    """
    jct_s = np.where(jobs.state == JobState.FINISHED, jobs.ended_at - jobs.submitted_at, np.nan)
    wait_s = jobs.started_at - jobs.submitted_at
    found: dict[str, Any] = {}
    for name, values in (("jct", jct_s), ("wait", wait_s)):
        some = values if chosen is None else values[chosen]
        known = some[~np.isnan(some)]
        found["jobs"] = len(known)
        found[f"mean_{name}_s"] = float(known.mean()) if len(known) else None
        found[f"median_{name}_s"] = float(np.median(known)) if len(known) else None
        found[f"p99_{name}_s"] = float(np.quantile(known, 0.99)) if len(known) else None
    return found


def least_p95_fairness(
    submitted_at: NDArray[np.float64], jobs: TraceWork, gpus: int
) -> float | None:
    """Return a lower bound of the p95 of finish-time fairness under every policy.

    No job ends sooner than after its run time. O(jobs x log jobs).
    """
    ends_at = fluid_ends(submitted_at, jobs.compute_s, jobs.gpus, jobs.group, gpus=gpus)
    fluid_s = ends_at - submitted_at
    counts = fluid_s > 0
    least = jobs.compute_s[counts] / fluid_s[counts]
    return float(np.quantile(least, 0.95)) if len(least) else None
