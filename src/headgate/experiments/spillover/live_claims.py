"""The published claims on balancing small tasks, and Headgate's own goals, for a live run."""

from __future__ import annotations

from collections.abc import Callable
from statistics import geometric_mean

from headgate.experiments.frame.claims import Claim, NotRunError, Numbers
from headgate.experiments.spillover.live import RAY, LiveResults, RoundsRow

_NEAR = 0.9
_SPILLED = 300  # calls in flight, from which on SWRR leads

_Check = Callable[[LiveResults], tuple[bool, Numbers]]


def _rows(results: LiveResults, workload: str, side: str) -> list[RoundsRow]:
    found = [row for row in results.rows if (row.workload, row.side) == (workload, side)]
    if not found:
        raise NotRunError
    return found


def _ratios(results: LiveResults, workload: str, side: str, base: str = RAY) -> dict[int, float]:
    """Return the rate of a side over that of another one, by the number of calls."""
    base_per_s = {row.count: row.per_s for row in _rows(results, workload, base)}
    return {row.count: row.per_s / base_per_s[row.count] for row in _rows(results, workload, side)}


def _over_ray(
    workload: str, side: str, least: float, counts: Callable[[int], bool] = lambda _: True
) -> _Check:
    """Return a check of a side's rate over that of Ray, at these numbers of calls."""

    def check(results: LiveResults) -> tuple[bool, Numbers]:
        found = _ratios(results, workload, side)
        ratios = {count: ratio for count, ratio in found.items() if counts(count)}
        if not ratios:
            raise NotRunError
        return min(ratios.values()) >= least, {f"{n:,}": ratio for n, ratio in ratios.items()}

    return check


def _order(workload: str) -> _Check:
    def check(results: LiveResults) -> tuple[bool, Numbers]:
        sides = ("random", "resource-pick-kx", "swrr")
        times_s = {
            side: _rows(results, workload, side)[0].count / _rows(results, workload, side)[0].per_s
            for side in sides
        }
        ordered = times_s["random"] >= times_s["resource-pick-kx"] >= times_s["swrr"]
        return ordered, {side: 1e3 * seconds for side, seconds in times_s.items()}

    return check


def _gaps(side: str) -> _Check:
    def check(results: LiveResults) -> tuple[bool, Numbers]:
        (row,), (base,) = (_rows(results, "balance", name) for name in (side, RAY))
        ours, rays = results.gap(row), results.gap(base)
        return ours <= rays, {"ray": rays, side: ours}

    return check


def _least_cost(results: LiveResults) -> tuple[bool, Numbers]:
    """Compare least-cost with the best other balancer of each workload."""
    rates: dict[str, dict[str, list[float]]] = {}
    for row in results.rows:
        if row.side != RAY:
            rates.setdefault(row.workload, {}).setdefault(row.side, []).append(row.per_s)
    numbers = {}
    for workload, by_side in rates.items():
        means = {side: geometric_mean(per_s) for side, per_s in by_side.items()}
        own = means.pop("least-cost", None)
        if own is not None and means:
            numbers[workload] = own / max(means.values())
    if not numbers:
        raise NotRunError
    return min(numbers.values()) >= _NEAR, numbers


def _right(results: LiveResults) -> tuple[bool, Numbers]:
    return not results.wrong, {"wrong": float(len(results.wrong))}


CLAIMS: tuple[Claim[LiveResults], ...] = (
    Claim(
        id="live-sync",
        text="One task after the other: SWRR executes 8 % more than Ray.",
        reading="calls per second of Executor with swrr over Ray's: at least 1.08",
        unit="ratio",
        check=_over_ray("sync", "swrr", 1.08),
        published={"swrr": 1080 / 997},
    ),
    Claim(
        id="live-async",
        text="Many tasks in flight: SWRR executes about 20 % more than Ray.",
        reading="calls per second over Ray's, by calls in flight: at least 1.2 each",
        unit="ratio",
        check=_over_ray("async", "swrr", 1.2),
        published={"swrr": 1.2},
    ),
    Claim(
        id="live-mixed-rpk",
        text="Mixed demands: resource-Pick_kx is ahead of Ray up to 300 tasks in flight.",
        reading="calls per second over Ray's, by calls in flight up to 300: at least 1 each",
        unit="ratio",
        check=_over_ray("arithmetic", "resource-pick-kx", 1.0, lambda count: count <= _SPILLED),
    ),
    Claim(
        id="live-mixed-swrr",
        text="Mixed demands: SWRR is about 10 % ahead of Ray from 300 tasks in flight on.",
        reading="calls per second over Ray's, by calls in flight from 300 on: at least 1.1 each",
        unit="ratio",
        check=_over_ray("arithmetic", "swrr", 1.1, lambda count: count >= _SPILLED),
        published={"swrr": 1.1},
    ),
    *(
        Claim(
            id=f"live-{query}",
            text=f"TPC-DS {query}: random is slowest, then resource-Pick_kx; SWRR is fastest.",
            reading="the times of the query over all files, read four times, have this order",
            unit="ms",
            check=_order(query),
        )
        for query in ("scan", "join")
    ),
    *(
        Claim(
            id=f"live-balance-{side}",
            text=f"The two nodes beside the first are used more evenly under {name} than by Ray.",
            reading="points by which the use of their cores differs: no more than with Ray",
            unit="number",
            check=_gaps(side),
            published={"ray": 15.0, side: gap},
        )
        for side, name, gap in (
            ("resource-pick-kx", "resource-Pick_kx", 8.0), ("swrr", "SWRR", 9.0),
        )
    ),
    Claim(
        id="live-rate",
        text="Executor executes tiny calls at Ray's rate or above, all in flight.",
        reading="calls per second of least-cost, the default, over Ray's: at least 1 each",
        unit="ratio",
        check=_over_ray("async", "least-cost", 1.0),
        is_goal=True,
    ),
    Claim(
        id="live-least-cost",
        text="least-cost is as good as the best of the other balancers.",
        reading="its geometric mean by workload over that of the best: at least 0.9 each",
        unit="ratio",
        check=_least_cost,
        is_goal=True,
    ),
    Claim(
        id="live-right",
        text="All results are right on all sides.",
        reading="workloads with a result other than that of a single process",
        unit="number",
        check=_right,
        is_goal=True,
    ),
)  # fmt: skip
"""All claims that a live run judges."""
