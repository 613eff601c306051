"""No screen names a time that has passed: what a reason of the last round says once it has."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.engine.conftest import Bench

from headgate.api.views import JobViews
from headgate.app import POLICIES
from headgate.base.rng import stream
from headgate.foresight.explain import explain
from headgate.model import Demand, Task
from headgate.planning.place.limits import places_kept
from headgate.planning.rounds.decide import decided
from headgate.ports import make_policy
from headgate.protocol import Hardened, KeptPlace, PlacesKept, Refusal
from headgate.protocol.order_reasons import WaitsForJobs
from headgate.protocol.reasons import Short
from headgate.state import Snapshot, TaskState


@pytest.fixture
def bench() -> Bench:
    """A run of `a` that declares 100 s, from 2 s on, and `wide`, which waits for both GPUs."""
    made = Bench()
    made.node("n", gpus=2)
    made.job("a", estimated_s=100.0, time_limit_s=1000.0)
    made.job("wide", [Task(demand=Demand(gpus=2))], estimated_s=10.0)
    state = made.engine.state
    state.launch(made.row("a", 0), 0, (0,), attempt=1)
    state.tasks.started_at[made.row("a", 0)] = state.now
    state.move_task(made.row("a", 0), TaskState.RUNNING)
    return made


def decided_under(bench: Bench, policy: str) -> Snapshot:
    """Return the state with the reasons of a round now."""
    snapshot = bench.engine.state.freeze()
    plan = decided(make_policy(POLICIES, policy), snapshot, stream(0, "test"))
    return replace(snapshot, refusals=tuple(plan.refusals))


def sentence(snapshot: Snapshot, job: str, now: float) -> str:
    reason = explain(snapshot, snapshot.names.job_rows[job], now).reason
    assert reason is not None
    return reason.detail()


@pytest.mark.parametrize("policy", ["easy-backfill", "headgate", "conservative-backfill"])
def test_a_reservation_says_that_a_run_takes_longer_and_gives_the_new_range(
    bench: Bench, policy: str
) -> None:
    snapshot = decided_under(bench, policy)
    begun = snapshot.now
    assert sentence(snapshot, "wide", begun + 99).endswith(
        "reserved for 00:01:43 UTC when runs of a have ended"
    )
    late = sentence(snapshot, "wide", begun + 150)
    assert "00:01:43" not in late
    found = re.search(
        r"when runs of a have ended, which take longer than expected: by now in (.*)$", late
    )
    assert found, late
    later = sentence(snapshot, "wide", begun + 400)
    assert later != late, "the range follows the time"


def test_the_list_of_jobs_shows_no_time_that_has_passed_though_no_round_followed(
    bench: Bench,
) -> None:
    snapshot, views = decided_under(bench, "easy-backfill"), JobViews()
    row = snapshot.names.job_rows["wide"]

    def shown(now: float) -> str:
        (view,) = views.of(snapshot, [row], now)
        return str(view["reason"])

    assert "reserved for" in shown(snapshot.now + 99)
    assert "longer than expected" in shown(snapshot.now + 101)


def test_where_no_end_is_known_a_late_reservation_says_so(bench: Bench) -> None:
    snapshot = decided_under(bench, "easy-backfill")
    (refusal,) = (each for each in snapshot.refusals if isinstance(each.reason, Short))
    assert isinstance(refusal.reason, Short)
    assert refusal.reason.reserved is not None
    reserved = replace(refusal.reason.reserved, after=("wide",))  # which has no run
    reason = replace(refusal.reason, reserved=reserved)
    snapshot = replace(snapshot, refusals=(Refusal(reason=reason, jobs=refusal.jobs),))
    assert sentence(snapshot, "wide", snapshot.now + 200).endswith("for how long is unknown")


def test_the_bound_of_a_hardened_unit_is_a_time_and_passes_with_it(bench: Bench) -> None:
    snapshot = bench.engine.state.freeze()
    places = (KeptPlace(ordinal=0, node="n", gpus=(0, 1)),)
    hardened = Hardened(job="wide", since=snapshot.now, places=places)
    reason = places_kept(snapshot, hardened)
    assert reason.way_out() == "starts at the latest when a ends, at their time limits by 00:16 UTC"
    refusals = (Refusal(reason=reason, jobs=(snapshot.names.job_rows["wide"],)),)
    snapshot = replace(snapshot, hardened=hardened, refusals=refusals)
    now = snapshot.now + 1001
    found = explain(snapshot, snapshot.names.job_rows["wide"], now).reason
    assert isinstance(found, PlacesKept)
    assert "00:16" not in found.detail()


def test_a_job_that_is_awaited_longer_than_expected_has_a_new_expected_end(bench: Bench) -> None:
    bench.job("next", after=("a",))
    snapshot = bench.engine.state.freeze()
    for now in (snapshot.now, snapshot.now + 300):
        reason = explain(snapshot, snapshot.names.job_rows["next"], now).reason
        assert isinstance(reason, WaitsForJobs)
        assert reason.ends_at is not None
        assert reason.ends_at > now
