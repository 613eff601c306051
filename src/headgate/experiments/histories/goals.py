"""The goals of the policy `headgate` on each history, as claims on the rows of the runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from headgate.experiments.frame import claims
from headgate.experiments.frame.claims import Claim, Judged, NotRunError, Numbers, Verdict
from headgate.experiments.histories.histories import History
from headgate.experiments.histories.runs import (
    EASY,
    FIFO,
    HEADGATE,
    ORACLE,
    ORDERS,
    RESUMED,
    HistoryRun,
    PolicyVariant,
    Row,
)
from headgate.experiments.histories.sizes import HistorySizes

WIDE_GPUS = 16
WIDE_JOBS = 20
"""Waits of wide jobs are a goal where there are at least so many of so many GPUs or more."""

Rows = Mapping[HistoryRun, Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryGoal:
    """A claim on one history and one size, with its verdict."""

    trace: str
    gpus: int
    verdict: Verdict[Rows]


def judge_all(
    histories: Sequence[History], sizes: Mapping[History, HistorySizes], rows: Rows
) -> tuple[HistoryGoal, ...]:
    """Return every goal on every history; one whose runs were not made has no verdict."""
    return tuple(
        HistoryGoal(trace=history.name, gpus=gpus, verdict=verdict)
        for history in histories
        for gpus, claim in _goals(history, sizes[history])
        for verdict in claims.judge((claim,), rows)
    )


def judged(goals: Sequence[HistoryGoal]) -> tuple[Judged, ...]:
    """Return the goals as rows of a report."""
    rows = claims.judged([goal.verdict for goal in goals])
    return tuple(
        replace(
            row,
            claim=f"{goal.trace}: {row.claim}",
            values={"trace": goal.trace, "gpus": goal.gpus, **row.values},
        )
        for goal, row in zip(goals, rows, strict=True)
    )


def _goals(history: History, sizes: HistorySizes) -> Iterator[tuple[int, Claim[Rows]]]:
    if sizes.goal is not None:
        yield sizes.goal, _jct(history, sizes.goal)
        yield sizes.goal, _fairness(history, sizes.goal)
        if np.count_nonzero(history.gpus >= WIDE_GPUS) >= WIDE_JOBS:
            yield sizes.goal, _wide(history, sizes.goal)
    for gpus in reversed(sizes.busy):
        if gpus != sizes.goal:
            yield gpus, _jct(history, gpus)


def _jct(history: History, gpus: int) -> Claim[Rows]:
    def check(rows: Rows) -> tuple[bool, Numbers]:
        of, same = _figures(rows, history, gpus, (HEADGATE, EASY), lambda row: row["mean_jct_s"])
        return same and of[HEADGATE] <= of[EASY], {c.name: value for c, value in of.items()}

    return _claim(
        history,
        gpus,
        "jct",
        "the mean completion time under headgate with learnt estimates is no worse than that under "
        "easy-backfill with exact ones",
        "means over all jobs that fit; both finish all of them",
        "s",
        check,
    )


def _fairness(history: History, gpus: int) -> Claim[Rows]:
    def check(rows: Rows) -> tuple[bool, Numbers]:
        def p95(row: Row) -> float:
            found: float = row["finish_time_fairness"]["p95"]
            return found

        of, same = _figures(rows, history, gpus, (HEADGATE, *ORDERS), p95)
        best = min(ORDERS, key=lambda order: of[order])
        feasible = min((o for o in ORDERS if o.policy != ORACLE), key=lambda order: of[order])
        shown = {HEADGATE.name: of[HEADGATE]}
        for title, order in (("best", best), (f"best but {ORACLE}", feasible)):
            shown[f"{title}: {order.name}"] = of[order]
        for resumed in RESUMED:
            with suppress(NotRunError):
                shown[resumed.name] = _figures(rows, history, gpus, (resumed,), p95)[0][resumed]
        own = rows[HistoryRun(source=history.source, gpus=gpus, variant=HEADGATE)]
        shown["lower bound"] = own["least_p95_fairness"]
        return same and of[HEADGATE] < of[best], shown

    return _claim(
        history,
        gpus,
        "fairness",
        "p95 finish-time fairness under headgate with learnt estimates is better than under every "
        "order",
        "below the least of all orders, which lose the work of preempted jobs, too; those that "
        "resume, the best without an oracle, and a lower bound are shown beside them",
        "number",
        check,
    )


def _wide(history: History, gpus: int) -> Claim[Rows]:
    def check(rows: Rows) -> tuple[bool, Numbers]:
        def p99(row: Row) -> float:
            (found,) = (s for s in row["wait_by_size"] if s["gpus_at_least"] == WIDE_GPUS)
            p99_s: float = found["p99_wait_s"]
            return p99_s

        of, same = _figures(rows, history, gpus, (HEADGATE, FIFO), p99)
        return same and of[HEADGATE] <= of[FIFO], {c.name: value for c, value in of.items()}

    return _claim(
        history,
        gpus,
        "wide",
        f"the p99 wait of jobs of {WIDE_GPUS} GPUs or more under headgate is no worse than that "
        "under fifo",
        f"where there are at least {WIDE_JOBS} such jobs",
        "s",
        check,
    )


def _figures(
    rows: Rows,
    history: History,
    gpus: int,
    variants: Sequence[PolicyVariant],
    figure: Callable[[Row], float],
) -> tuple[dict[PolicyVariant, float], bool]:
    """Return a figure of each variant, and whether all finished the same number of jobs.

    Raises NotRunError if one did not run, or has no such figure.
    """
    found: dict[PolicyVariant, float] = {}
    finished = set()
    for variant in variants:
        row = rows.get(HistoryRun(source=history.source, gpus=gpus, variant=variant))
        value = None if row is None else figure(row)
        if row is None or value is None:
            raise NotRunError
        found[variant] = value
        finished.add(row["jobs_finished"])
    return found, len(finished) == 1


def _claim(
    history: History,
    gpus: int,
    kind: str,
    text: str,
    reading: str,
    unit: str,
    check: Callable[[Rows], tuple[bool, Numbers]],
) -> Claim[Rows]:
    return Claim(
        id=f"{kind}-{history.name}-{gpus}",
        text=f"On {gpus} GPUs, {text}",
        reading=reading,
        unit=unit,
        check=check,
        is_goal=True,
    )
