"""Figures of the flow paper's tables against ones computed by hand."""

from __future__ import annotations

import math

import pytest

from headgate.experiments.flow.runs import FlowRun, Measured, Setup, Span
from headgate.experiments.flow.tables import as_json, gather, job_rows, run_rows


def run_of(setup: Setup, seed: int, policy: str = "fs") -> FlowRun:
    return FlowRun(setup=setup, network="constrained", policy=policy, seed=seed, parallel=2)


def measured(*times_s: float, job: str = "J{}", moved: tuple[float, ...] = (6, 3, 1)) -> Measured:
    """Return figures of a run whose jobs start one second after the other."""
    node, rack, cluster = moved
    spans = tuple(
        Span(job=job.format(n), start_s=float(n), end_s=n + time_s)
        for n, time_s in enumerate(times_s, 1)
    )
    return Measured(
        makespan_s=max(s.end_s for s in spans) - 1.0,
        spans=spans,
        read_bytes=(node, rack, cluster),
        lost_gpu_s=2.0,
        rounds=3,
    )


def test_figures_are_means_over_seeds_of_each_runs_own_fairness() -> None:
    runs = {
        run_of(Setup.PARALLEL, 1): measured(10.0, 40.0),
        run_of(Setup.PARALLEL, 2): measured(20.0, 20.0, moved=(2, 1, 7)),
        run_of(Setup.TURN, 1): measured(5.0, 10.0),
        run_of(Setup.TURN, 2): measured(5.0, 15.0),
        run_of(Setup.TURN_SHARE, 1): measured(10.0, 20.0),
        run_of(Setup.TURN_SHARE, 2): measured(10.0, 30.0),
    }

    results = gather(runs, (1, 2), 2)
    own = results.figures["constrained"]["fs"]

    assert own.makespan_s == pytest.approx((41.0 + 21.0) / 2)
    assert own.makespan_range_s == (21.0, 41.0)
    assert own.mean_run_s == pytest.approx((25.0 + 20.0) / 2)
    # s is 1 and 0.5 under seed 1, 0.5 and 1.5 under seed 2
    assert own.fairness["share"] == pytest.approx(((0.75 + 1.0) / 2, (0.25 + 0.5) / 2))
    # s is 0.5 and 0.25, then 0.25 and 0.75
    assert own.fairness["alone"] == pytest.approx(((0.375 + 0.5) / 2, (0.125 + 0.25) / 2))
    assert own.read_bytes == (4.0, 2.0, 4.0)
    assert own.shares == pytest.approx((0.4, 0.2, 0.4))
    assert own.network_bytes == 6.0
    assert own.times["J2"].run_s == 30.0
    assert own.times["J2"].ideal_s == {"share": 25.0, "alone": 12.5}
    turn = results.figures["in-turn"]["fs"]
    assert turn.fairness == {}
    assert results.figures["unconstrained"] == {}


def test_users_job_has_the_ideals_of_the_job_that_it_copies() -> None:
    runs = {
        run_of(Setup.USERS, 1): measured(10.0, 20.0, job="J{}-u7"),
        run_of(Setup.TURN, 1): measured(5.0, 10.0, 1.0),
        run_of(Setup.USERS_SHARE, 1): measured(8.0, 10.0, 1.0),
        run_of(Setup.TURN_SHARE, 1): measured(1.0, 1.0, 1.0),
    }

    own = gather(runs, (1,), 2).figures["users"]["fs"]

    assert own.fairness["share"] == pytest.approx((0.65, 0.15))
    assert own.fairness["alone"] == pytest.approx((0.5, 0.0))
    assert own.times["J1"].run_s == 10.0


def test_job_without_an_ideal_does_not_count_for_fairness() -> None:
    """J37 is not among the jobs that run in turn."""
    runs = {
        run_of(Setup.SUPPLEMENT, 1): measured(10.0, 20.0, 30.0),
        run_of(Setup.TURN, 1): measured(5.0, 5.0),
        run_of(Setup.TURN_SHARE, 1): measured(10.0, 10.0),
    }

    own = gather(runs, (1,), 2).figures["supplement"]["fs"]

    assert own.fairness["share"] == pytest.approx((0.75, 0.25))
    assert own.mean_run_s == 20.0


def test_tables_as_json_have_published_and_own_values() -> None:
    runs = {run_of(Setup.TURN, 1, "gs"): measured(5.0)}

    table = next(t for t in as_json(gather(runs, (1,), 2)) if t["name"] == "in-turn")

    assert table["policies"]["gs"]["published"] == {
        "makespan_s": 825.6,
        "fairness": {"mean": None, "deviation": None},
        "bytes": {"node": None, "rack": None, "cluster": None},
        "share_of_bytes": {"node": None, "rack": 0.25, "cluster": 0.15},
    }
    ours = table["policies"]["gs"]["ours"]
    assert ours["makespan_s"] == 5.0
    assert ours["share_of_bytes"] == {"node": 0.6, "rack": 0.3, "cluster": 0.1}


def test_rows_of_runs_and_jobs_have_ideals_and_fairness() -> None:
    runs = {
        run_of(Setup.PARALLEL, 1): measured(10.0, 40.0),
        run_of(Setup.TURN, 1): measured(5.0, 10.0),
    }
    results = gather(runs, (1,), 2)

    by_run, by_job = run_rows(results), job_rows(results)

    assert by_run["experiment"] == ["parallel", "turn"]
    assert by_run["fairness_share"] == [None, None]
    assert by_run["fairness_alone"][0] == pytest.approx(0.375)
    assert {len(column) for column in by_run.values()} == {2}
    assert {len(column) for column in by_job.values()} == {4}
    assert by_job["job"] == ["J1", "J2", "J1", "J2"]
    assert by_job["ideal_alone_s"] == [5.0, 10.0, 5.0, 10.0]
    assert by_job["ideal_share_s"] == [None] * 4
    assert not any(math.isnan(t) for t in by_job["run_s"])
