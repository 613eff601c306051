"""The claims of the flow paper on synthetic figures that satisfy all, or violate one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from headgate.cli.common.output import verdict
from headgate.experiments.flow.claims import CLAIMS
from headgate.experiments.flow.tables import Figures, FlowResults, MeanTimes, Rounds, job_kinds
from headgate.experiments.frame.claims import as_json, judge, numbers_text

World = dict[tuple[str, str], dict[str, Any]]  # table, policy -> figures

JOB_KINDS = job_kinds()


def papers() -> World:
    """Return figures that satisfy all claims."""
    world: World = {
        ("in-turn", "gs"): {"makespan_s": 825.6, "shares": (0.60, 0.25, 0.15)},
        ("in-turn", "fs"): {"makespan_s": 808.2, "shares": (0.65, 0.23, 0.12)},
        ("in-turn", "fsp"): {"makespan_s": 782.3, "shares": (0.75, 0.16, 0.09)},
        ("users", "fs"): {"makespan_s": 90.0, "fair": 0.9},
        ("users", "fsp"): {"makespan_s": 88.0, "fair": 0.9},
        ("users", "fair"): {"makespan_s": 100.0, "fair": 0.6},
        ("users", "capacity"): {"makespan_s": 102.0, "fair": 0.5},
    }
    parallel = {  # makespan, mean time, fairness, deviation
        "gs": (400.0, 60.0, 0.60, 0.10),
        "gsp": (390.0, 58.0, 0.62, 0.10),
        "gsd": (380.0, 59.0, 0.55, 0.15),
        "fs": (340.0, 52.0, 0.90, 0.12),
        "fsp": (330.0, 50.0, 0.92, 0.08),
        "fsu": (300.0, 55.0, 0.74, 0.32),
        "headgate": (280.0, 48.0, 0.93, 0.05),
    }
    for policy, (makespan_s, mean_s, fair, deviation) in parallel.items():
        own = {"makespan_s": makespan_s, "mean_s": mean_s, "fair": fair, "deviation": deviation}
        own["bytes"] = 90e9 if policy == "headgate" else 100e9
        world["constrained", policy] = {**own, "shares": (0.60, 0.25, 0.15)}
        world["unconstrained", policy] = {
            **own, "makespan_s": 0.8 * makespan_s, "shares": (0.56, 0.25, 0.19)
        }  # fmt: skip
        world["supplement", policy] = {**own, "shares": (0.60, 0.25, 0.15)}
    return world


def figures(
    makespan_s: float = 100.0,
    mean_s: float = 50.0,
    fair: float = 0.5,
    deviation: float = 0.1,
    shares: tuple[float, float, float] = (0.6, 0.25, 0.15),
    bytes: float = 100e9,  # noqa: A002  # as the metric is called
    small: float = 1.1,
    large: float = 2.0,
    others_s: float | None = None,
) -> Figures:
    """Return figures: `mean_s` is the time of every job, `small` and `large` times the ideal."""
    times = {}
    for job, (_, shards) in JOB_KINDS.items():
        run_s = others_s if others_s is not None and job != "J37" else mean_s
        stretch = small if shards <= 10 else large
        times[job] = MeanTimes(run_s=run_s, ideal_s={"alone": run_s / stretch})
    node, rack, cluster = (share * bytes for share in shares)
    return Figures(
        makespan_s=makespan_s,
        makespan_range_s=(makespan_s, makespan_s),
        mean_run_s=mean_s,
        fairness={"share": (fair, deviation)},
        read_bytes=(node, rack, cluster),
        lost_gpu_s=0.0,
        rounds=1,
        times=times,
    )


def results(world: World, rounds: dict[str, tuple[float, float]] | None = None) -> FlowResults:
    made: dict[str, dict[str, Figures]] = {}
    for (table, policy), own in world.items():
        made.setdefault(table, {})[policy] = figures(**own)
    measured = rounds or {"test bed": (0.004, 0.012), "large": (1.2, 1.9)}
    overhead = tuple(
        Rounds(policy="fs", where=where, gpus=1, jobs=1, count=1, mean_s=mean_s, max_s=max_s)
        for where, (mean_s, max_s) in measured.items()
    )
    return FlowResults(runs={}, seeds=(1,), parallel=6, figures=made, overhead=overhead)


def verdicts(world: World, **more: Any) -> dict[str, bool | None]:
    return {v.claim.id: v.holds for v in judge(CLAIMS, results(world, **more))}


def change(table: str, policies: str, **values: Any) -> Callable[[World], None]:
    def apply(world: World) -> None:
        for policy in policies.split():
            world[table, policy] |= values

    return apply


def both(*changes: Callable[[World], None]) -> Callable[[World], None]:
    def apply(world: World) -> None:
        for one in changes:
            one(world)

    return apply


SIX = "gs gsp gsd fs fsp fsu"
BREAKS: dict[str, Callable[[World], None]] = {
    "turn-totals": change("in-turn", "fsp", makespan_s=500.0),
    "turn-order": change("in-turn", "fs", makespan_s=830.0),
    "turn-shares": change("in-turn", "gs", shares=(0.9, 0.05, 0.05)),
    "turn-shares-order": change("in-turn", "fsp", shares=(0.7, 0.235, 0.065)),
    "fsu-fastest": change("constrained", "gsd", makespan_s=299.0),
    "fsu-least-even": change("constrained", "gs", deviation=0.33),
    "fsu-deviation": change("constrained", "fsu", deviation=0.38),
    "fsp-fairest": change("constrained", "fs", fair=0.93),
    "fsp-fsu-apart": change("constrained", "fsu", fair=0.9),
    "fsp-best-times": change("constrained", "fsu", mean_s=40.0),
    "flow-fairness": change("constrained", "fs", fair=0.84),
    "gsd-faster": change("constrained", "gsd", makespan_s=401.0),
    "gsd-less-fair": change("constrained", "gsd", fair=0.61),
    "small-near-ideal": change("constrained", "fs fsp", small=1.3),
    "large-stretch": change("constrained", "fs fsp", large=1.2),
    "flow-fairer-greedy": change("constrained", "gs", fair=0.9),
    "flow-faster-greedy": change("constrained", "gs gsp", makespan_s=350.0),
    "flow-fairer-queues": change("users", "fair", fair=0.8),
    "flow-faster-queues": change("users", "fsp", makespan_s=100.0),
    "unconstrained-faster": change("unconstrained", "gsp", makespan_s=391.0),
    "unconstrained-deviation": change("unconstrained", "fs", deviation=0.2),
    "unconstrained-cross": change("unconstrained", SIX, shares=(0.65, 0.25, 0.10)),
    "unconstrained-rack": change("unconstrained", SIX, shares=(0.51, 0.30, 0.19)),
    "unconstrained-local": change("unconstrained", SIX, shares=(0.65, 0.25, 0.10)),
    "users-fair": change("users", "fair", makespan_s=94.0),
    "users-capacity": change("users", "capacity", makespan_s=95.0),
    "supplement": change("supplement", "fsu", makespan_s=340.0),
    "goal-makespan-constrained": change("constrained", "headgate", makespan_s=301.0),
    "goal-makespan-unconstrained": change("unconstrained", "headgate", makespan_s=241.0),
    "goal-fairness-constrained": change("constrained", "headgate", fair=0.91),
    "goal-fairness-unconstrained": change("unconstrained", "headgate", fair=0.91),
    "goal-network-bytes-constrained": change("constrained", "headgate", bytes=101e9),
    "goal-network-bytes-unconstrained": change("unconstrained", "headgate", bytes=111e9),
    "goal-all": change("unconstrained", "headgate", fair=0.91),
    "goal-clear": both(
        change("constrained", "headgate", bytes=98e9, makespan_s=295.0),
        change("unconstrained", "headgate", bytes=98e9, makespan_s=235.0),
    ),
}
BY_ROUNDS = {
    "overhead-test-bed": {"test bed": (0.004, 0.021), "large": (1.2, 1.9)},
    "overhead-large": {"test bed": (0.004, 0.012), "large": (1.2, 2.1)},
}


def test_all_claims_hold_on_figures_that_satisfy_them() -> None:
    assert {k: v for k, v in verdicts(papers()).items() if v is not True} == {}


@pytest.mark.parametrize("claim", BREAKS)
def test_claim_fails_on_figures_that_violate_it(claim: str) -> None:
    world = copy.deepcopy(papers())
    BREAKS[claim](world)

    assert verdicts(world)[claim] is False


@pytest.mark.parametrize("claim", BY_ROUNDS)
def test_overhead_claim_fails_on_slow_rounds(claim: str) -> None:
    assert verdicts(papers(), rounds=BY_ROUNDS[claim])[claim] is False


def test_every_claim_has_figures_that_violate_it() -> None:
    ids = [claim.id for claim in CLAIMS]
    assert len(set(ids)) == len(ids)
    assert set(ids) == {*BREAKS, *BY_ROUNDS}


def test_claim_without_its_runs_has_no_verdict() -> None:
    world = {key: own for key, own in papers().items() if key[1] in ("fs", "gs")}
    found = verdicts(world)

    assert found["fsu-fastest"] is None
    assert found["goal-all"] is None
    assert found["gsd-faster"] is None
    assert set(verdicts({}).values()) == {None, True}  # only rounds were measured
    (empty,) = [v for v in judge(CLAIMS, results({})) if v.claim.id == "fsu-fastest"]
    assert empty.ours == {}


def test_supplement_is_judged_by_the_times_of_the_other_jobs() -> None:
    world = papers()
    # With J37 counted the mean time would fall; the others' time rises by a fifth.
    change("supplement", "fs", others_s=1.2 * 52.0, mean_s=1.0)(world)

    assert verdicts(world)["supplement"] is False


def test_failed_goal_has_the_relative_loss() -> None:
    world = papers()
    change("constrained", "headgate", makespan_s=330.0)(world)
    found = {v.claim.id: v for v in judge(CLAIMS, results(world))}

    assert found["goal-makespan-constrained"].ours == {"headgate": 330.0, "best of six": 300.0}
    assert found["goal-all"].ours["makespan, constrained"] == pytest.approx(-0.10)
    assert numbers_text({"a": 0.123, "b": 1.0}, "part") == "a 12.3%, b 100.0%"


def test_verdicts_as_json_have_text_numbers_and_verdict() -> None:
    values = as_json(judge(CLAIMS, results(papers())))

    assert [v["claim"] for v in values] == [claim.text for claim in CLAIMS]
    assert values[0]["published"] == {"gs": 825.6, "fs": 808.2, "fsp": 782.3}
    assert values[0]["ours"] == values[0]["published"]
    assert values[0]["holds"] is True


def test_line_of_a_claim_without_its_runs_says_that_they_were_not_made() -> None:
    assert verdict(None, "it is fast") == "-    it is fast (not run)"
    assert verdict(False, "it is fast", measured="3 s") == "NO   it is fast (measured 3 s)"
