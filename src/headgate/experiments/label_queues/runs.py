"""What is compared, the runs to make, and what a run measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.experiments.label_queues.groups import (
    Assumed,
    JobGroup,
    nodes,
    queues,
    submissions,
)
from headgate.ports import PolicyInfo, make_policy
from headgate.sim.run import Simulation, run
from headgate.spec.cluster import Links
from headgate.state import JobState

Policies = Mapping[str, PolicyInfo]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueVariant:
    """What is compared: a policy, how the parts of queues hold, and whether jobs are elastic."""

    name: str
    policy: str
    hard: bool
    elastic: bool


CAPACITY, ELASTIC_CAPACITY = "capacity", "elastic-capacity"
NEW_CAPACITY, HEADGATE = "new-capacity", "headgate"

VARIANTS: Final = {
    variant.name: variant
    for variant in (
        QueueVariant(name=CAPACITY, policy="capacity", hard=True, elastic=False),
        QueueVariant(name=ELASTIC_CAPACITY, policy="capacity", hard=True, elastic=True),
        QueueVariant(name=NEW_CAPACITY, policy="new-capacity", hard=False, elastic=True),
        QueueVariant(name=HEADGATE, policy="headgate", hard=False, elastic=True),
    )
}
"""By name, in the order of tables; `elastic-capacity` separates what elastic jobs gain alone."""

MIXED, ALONE = "mixed", "alone"
ORDERS: Final = (1, 2, 3)
OTHERS: Final = 3
"""Runs of WordCounts alone under assumptions other than the default, at most."""

DEFAULT: Final = Assumed()
ASSUMED: Final = {
    "default": DEFAULT,
    "deep-learning has 1/4": Assumed(twelfths=3),
    "deep-learning has 5/12": Assumed(twelfths=5),
    "deep-learning has 1/2": Assumed(twelfths=6),
    "10 executors declared": Assumed(least=10),
    "5 executors declared": Assumed(least=5),
    "gaps of 10 s": Assumed(gap_s=10.0),
}
"""By their names in tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSizes:
    """How large the experiments are: jobs of each kind in a mixed group, and WordCounts alone.

    `assumed` names the assumptions, the default among them; of WordCounts alone, groups of the
    `varied` sizes run under others.
    """

    mixed: int
    alone: tuple[int, ...]  # ascending
    varied: tuple[int, int]
    assumed: tuple[str, ...]


FULL: Final = LabelSizes(
    mixed=5, alone=(10, 20, 30, 40, 50, 60), varied=(10, 30), assumed=tuple(ASSUMED)
)
QUICK: Final = LabelSizes(
    mixed=2, alone=(2, 4), varied=(2, 4), assumed=("default", "deep-learning has 1/2")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRun:
    """One run of a group of so many jobs."""

    experiment: str
    jobs: int
    variant: str
    assumed: Assumed
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTimes:
    """The time of the whole group, from its first submission to its last end, and of its jobs."""

    total_s: float
    completion_s: float  # mean over jobs, from submission to end
    longest_wait_s: float


def plan(sizes: LabelSizes, seeds: Sequence[int]) -> list[LabelRun]:
    """Return all runs, long ones first; under other assumptions fewer runs and sizes."""
    varied = [ASSUMED[name] for name in sizes.assumed]
    shapes = [
        (ALONE, jobs, assumed, seed)
        for jobs in reversed(sizes.alone)
        for assumed in varied
        if jobs in sizes.varied or assumed == DEFAULT
        for seed in (seeds if assumed == DEFAULT else seeds[:OTHERS])
    ]
    shapes += [(MIXED, 2 * sizes.mixed, assumed, seed) for assumed in varied for seed in ORDERS]
    return [
        LabelRun(experiment=experiment, jobs=jobs, variant=name, assumed=assumed, seed=seed)
        for experiment, jobs, assumed, seed in shapes
        for name in VARIANTS
    ]


def measure(what: LabelRun, policies: Policies) -> GroupTimes:
    """Execute a run; `policies` are all by name."""
    variant, assumed = VARIANTS[what.variant], what.assumed
    mnists = what.jobs // 2 if what.experiment == MIXED else 0
    group = JobGroup(wordcounts=what.jobs - mnists, mnists=mnists, seed=what.seed, assumed=assumed)
    among = queues(assumed.twelfths, hard=variant.hard)
    simulation = Simulation(
        nodes=nodes(),
        links=_LINKS,
        queues=among,
        submissions=submissions(group, among, elastic=variant.elastic),
        seed=what.seed,
    )
    jobs = run(simulation, make_policy(policies, variant.policy)).jobs
    assert (jobs.state == JobState.FINISHED).all(), f"jobs of {what} have not finished"
    return GroupTimes(
        total_s=float(jobs.ended_at.max() - jobs.submitted_at.min()),
        completion_s=float((jobs.ended_at - jobs.submitted_at).mean()),
        longest_wait_s=float((jobs.started_at - jobs.submitted_at).max()),
    )


_LINKS: Final = Links(
    disk_bytes_per_s=1e9, node_link_bytes_per_s=1e9, rack_uplink_bytes_per_s=1e9
)  # no task reads anything
