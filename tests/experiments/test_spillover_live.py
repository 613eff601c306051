"""Figures and claims of a live run, from rows made here."""

from __future__ import annotations

from pathlib import Path

from headgate.experiments.frame import claims
from headgate.experiments.frame.report import write
from headgate.experiments.spillover import live, live_page
from headgate.experiments.spillover.live import SIDES, LiveOptions, LiveResults, Rows
from headgate.experiments.spillover.live_claims import CLAIMS

_COUNTS = {
    "sync": (500,),
    "async": (1000, 10_000),
    "balance": (500,),
    "scan": (48,),
    "join": (48,),
    "arithmetic": (10, 100, 300, 700),
}
_FASTER = {"ray": 1.0, "random": 1.0, "round-robin": 1.1, "resource-pick-kx": 1.2, "swrr": 1.3}


def _results(*, slow: str = "", workloads: tuple[str, ...] = tuple(_COUNTS)) -> LiveResults:
    rows = Rows()
    for workload in workloads:
        for count in _COUNTS[workload]:
            for side in SIDES:
                speed = 0.5 if side == slow else _FASTER.get(side, 1.3)
                for seconds in (1 / speed, 50.0, 0.9 / speed):
                    uneven = 0.05 if side == "ray" else 0.02
                    cpu_s = [0.7 * seconds, (0.3 + uneven) * seconds, 0.15 * seconds]
                    rows.add(workload, count, side, seconds, cpu_s)
    return LiveResults(
        options=LiveOptions(), limited=True, rows=rows.all(), wrong=(), load=(1.0, 2.0), cores=2
    )


def _verdicts(results: LiveResults) -> dict[str, bool | None]:
    return {v.claim.id: v.holds for v in claims.judge(CLAIMS, results)}


def test_rate_and_use_are_medians_over_rounds() -> None:
    results = _results()
    row = results.row("balance", 500, "ray")
    assert row is not None
    assert row.per_s == 500
    busy = row.busy([node.cores for node in results.options.nodes])
    assert [round(percent, 3) for percent in busy] == [100, 87.5, 75]
    assert round(results.gap(row), 3) == 12.5


def test_claims_hold_or_not_by_the_figures() -> None:
    assert set(_verdicts(_results()).values()) == {True}
    slow = {shape for shape, holds in _verdicts(_results(slow="swrr")).items() if not holds}
    assert slow == {"live-sync", "live-async", "live-mixed-swrr", "live-scan", "live-join"}
    slow = {shape for shape, holds in _verdicts(_results(slow="least-cost")).items() if not holds}
    assert slow == {"live-rate", "live-least-cost"}


def test_claims_whose_workload_was_not_measured_have_no_verdict() -> None:
    verdicts = _verdicts(_results(workloads=("scan",)))
    assert {shape for shape, holds in verdicts.items() if holds is not None} == {
        "live-scan", "live-least-cost", "live-right",
    }  # fmt: skip


def test_page_names_each_side_and_the_conditions(tmp_path: Path) -> None:
    results = _results()
    page = write(tmp_path, live_page.report(results)).read_text()
    assert all(side in page for side in SIDES)
    assert "limited to 0.7, 0.4, 0.2 cores" in page
    assert len((tmp_path / "live.csv").read_text().splitlines()) == len(results.rows) + 1


def test_every_side_is_first_in_some_round() -> None:
    assert {live.in_turn(SIDES, number)[0] for number in range(len(SIDES))} == set(SIDES)


def test_larger_demands_compute_more() -> None:
    assert live.demands(3) == [(1, live.STEPS), (2, 2 * live.STEPS), (1, live.STEPS)]
