"""Storms under every policy: jobs of every kind, faults, time limits; and every job ends.

`ride` checks all that holds in any storm. The first seeds are run here, any number of others by
`python fuzz/run.py storms`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.cases import cases
from tests.sim.weather import Watch, ends_all, named, ride

from headgate.app import POLICIES
from headgate.policies.flow import PreemptiveFlowSharing, TimelyFlow
from headgate.policies.offers.greedy import GreedyDelay, GreedyPreemption
from headgate.ports import Policy, make_policy
from headgate.state import JobState

SEEDS = cases(6)
HELD_BACK = {*(name for name, info in POLICIES.items() if info.parts), "fs", "fsp"}
"""Policies under which a job that can never start may hold back others: behind it in the order, or
waiting for GPUs near their data beyond their share, of which it keeps a part, or with GPUs idle for
tasks that lack the rest of their demand."""
PREEMPTING = {"headgate", "fsp", "gsp", "least-attained-service", "srtf"}
RESERVING = {"headgate", *(name for name in POLICIES if name.endswith("backfill"))}
PARAMETERS = {"least-attained-service": {"threshold_gpu_s": 5.0}}
MAKERS: dict[str, Callable[[], Policy]] = {
    **{name: lambda n=name: make_policy(POLICIES, n, PARAMETERS.get(n, {})) for name in POLICIES},
    "gsp, no slack": lambda: GreedyPreemption(slack=0.0),
    "gsd, thresholds never reached": lambda: GreedyDelay(threshold1=1e6, threshold2=1e9),
    "fsp, no slack": lambda: PreemptiveFlowSharing(slack=0.0),
    "headgate, no slack": lambda: TimelyFlow(slack=0.0),
    "headgate, short memory": lambda: TimelyFlow(memory_s=5.0, slack=0.0),
}


def weathered(name: str, seed: int) -> Watch:
    """Let the storm of a seed pass: each third one is calm, each second one has time limits."""
    policy, calm, limits = MAKERS[name](), seed % 3 == 2, seed % 2 == 1
    with named(f"storm({seed}) under {name}"):
        watch = ride(seed, policy, calm=calm, limits=limits)
        states = set(watch.engine.state.jobs.state.array().tolist())
        assert ends_all(watch.engine, held_back=policy.name in HELD_BACK)
        assert not calm or limits or states <= {JobState.FINISHED}
    return watch


@pytest.mark.parametrize("name", MAKERS)
def test_every_job_ends_in_a_storm_or_needs_a_node_that_never_returned(name: str) -> None:
    watches = [weathered(name, seed) for seed in range(SEEDS)]
    policy, preempted = name.split(",", maxsplit=1)[0], sum(watch.preempted for watch in watches)
    assert preempted or policy not in {"least-attained-service", "srtf"}
    assert not preempted or policy in PREEMPTING
    assert any(watch.reserved for watch in watches) == (policy in RESERVING)


@pytest.mark.parametrize(
    ("name", "place", "seed"),
    [
        ("fifo", "", 105),  # parts of GPUs that other programs withhold from further runs
        ("gs", "", 35),  # a job runs on nodes alone that the mesh does not name
        ("capacity", "", 35),
        ("headgate", "", 20014),
        ("easy-backfill", "", 20014),
        ("srtf", "block", 30005),  # a task lacks a license that another task of its job holds
        ("gsp", "", 20047),  # GPUs idle for tasks for which no node is left that has the CPUs
    ],
)
def test_storms_of_jobs_that_communicate(name: str, place: str, seed: int) -> None:
    policy = make_policy(POLICIES, name, {"place": place} if place else {})
    watch = ride(seed, policy, links=True)
    assert ends_all(watch.engine, held_back=name in HELD_BACK)
