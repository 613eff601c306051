"""Allocators of elastic jobs with deadlines: decisions against exhaustive search, and storms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model.speed import SpeedCurve
from headgate.planning._native import WidthPlan
from headgate.planning.deadlines import ALLOCATORS, Allocation, TrainingJob

CURVES = (
    SpeedCurve((1, 2, 4), (1.0, 1.8, 3.0)),
    SpeedCurve((1, 2), (2.0, 3.0)),
    SpeedCurve((2, 4), (3.0, 5.0)),
    SpeedCurve((1, 2, 4), (1.0, 0.9, 2.0)),
)
SLOT_S, GPUS, SLOTS = 60.0, 4, 3


def job(
    key: int,
    curve: SpeedCurve,
    left: float,
    deadline_s: float,
    *,
    width: int = 0,
    admitted: bool | None = None,
) -> TrainingJob:
    return TrainingJob(
        key=key,
        curve=curve,
        left=left,
        deadline_s=deadline_s,
        useful=curve.best,
        width=width,
        admitted=admitted,
    )


def feasible(jobs: Sequence[TrainingJob]) -> bool:
    """Try every width of every job in every slot; deadlines are multiples of a slot."""
    plans = []
    for each in jobs:
        slots = int(each.deadline_s // SLOT_S)
        choices = (0, *(w for w in each.curve.widths if w <= each.useful))
        plans.append(
            [
                widths + (0,) * (SLOTS - slots)
                for widths in itertools.product(choices, repeat=slots)
                if sum(SLOT_S * each.curve.rate(w) for w in widths if w) >= each.left
            ]
        )
    return any(
        all(sum(column) <= GPUS for column in zip(*chosen, strict=True))
        for chosen in itertools.product(*plans)
    )


@st.composite
def some_jobs(draw: st.DrawFn, most: int) -> list[TrainingJob]:
    count = draw(st.integers(1, most))
    found = []
    for key in range(count):
        curve = draw(st.sampled_from(CURVES))
        slots = draw(st.integers(1, SLOTS))
        share = draw(st.integers(1, 22)) / 20
        rate = draw(st.sampled_from(curve.rates))
        found.append(job(key, curve, slots * SLOT_S * rate * share, slots * SLOT_S))
    return found


@given(some_jobs(1))
@settings(max_examples=200, deadline=None)
@pytest.mark.parametrize("name", ["elasticflow", "headgate", "edf-admission"])
def test_one_job_is_admitted_exactly_if_it_can_end_in_time(
    name: str, jobs: list[TrainingJob]
) -> None:
    found = ALLOCATORS[name](gpus=GPUS, slot_s=SLOT_S).decide(jobs, 0.0)
    rates = [jobs[0].curve.rate(w) for w in jobs[0].curve.widths if w <= jobs[0].useful]
    assert found.admitted[0] == (jobs[0].left <= max(rates) * jobs[0].deadline_s * (1 + 1e-9))


@given(some_jobs(3))
@settings(max_examples=150, deadline=None)
@pytest.mark.parametrize("name", ["elasticflow", "headgate"])
def test_what_is_admitted_together_can_end_in_time(name: str, jobs: list[TrainingJob]) -> None:
    found = ALLOCATORS[name](gpus=GPUS, slot_s=SLOT_S).decide(jobs, 0.0)
    admitted = [each for each, yes in zip(jobs, found.admitted, strict=True) if yes]
    for each in admitted:
        each.left *= 1 - 1e-9  # plans may be that much short
    assert feasible(admitted)
    if name == "elasticflow":
        assert len(admitted) in (0, len(jobs))


def check(found: Allocation, jobs: Sequence[TrainingJob], gpus: int) -> None:
    assert sum(found.widths) <= gpus
    for each, width in zip(jobs, found.widths, strict=True):
        assert width == 0 or width in each.curve.widths


@given(some_jobs(8), st.integers(1, 9), st.sampled_from([0.0, 60.0]))
@settings(max_examples=150, deadline=None)
@pytest.mark.parametrize("name", ALLOCATORS)
def test_gpus_are_never_given_twice(
    name: str, jobs: list[TrainingJob], gpus: int, slot_s: float
) -> None:
    jobs = [each for each in jobs if each.curve.widths[0] <= gpus]
    allocator = ALLOCATORS[name](gpus=gpus, slot_s=slot_s)
    for now_s in (0.0, 60.0, 90.0, 400.0):
        found = allocator.decide(jobs, now_s)
        check(found, jobs, gpus)
        for each, width, admitted in zip(jobs, found.widths, found.admitted, strict=True):
            assert admitted or not each.admitted
            each.width, each.admitted = width, admitted
        assert found.change_s > now_s


@pytest.mark.parametrize("name", ALLOCATORS)
def test_nothing_is_wasted_while_a_job_could_use_it(name: str) -> None:
    jobs = [job(0, CURVES[0], 100.0, 1000.0, admitted=True)]
    allocator = ALLOCATORS[name](gpus=4)
    if name != "tiresias":  # its jobs are not elastic
        assert [*allocator.decide(jobs, 0.0).widths] == [4]


def test_earliest_deadline_gets_the_widest() -> None:
    jobs = [job(0, CURVES[0], 500.0, 900.0), job(1, CURVES[1], 500.0, 300.0)]
    assert [*ALLOCATORS["edf"](gpus=5).decide(jobs, 0.0).widths] == [2, 2]


def test_an_impossible_arrival_costs_others_their_place_only_in_elasticflow() -> None:
    def arrivals() -> list[TrainingJob]:
        return [job(0, CURVES[1], 100.0, 300.0), job(1, CURVES[1], 1e6, 300.0)]

    assert [*ALLOCATORS["elasticflow"](gpus=4).decide(arrivals(), 0.0).admitted] == [False, False]
    assert [*ALLOCATORS["headgate"](gpus=4).decide(arrivals(), 0.0).admitted] == [True, False]


def test_a_minimum_share_is_as_late_as_possible() -> None:
    """Two GPUs; the first job leaves one free, the second waits until the last moment it can."""
    curve = SpeedCurve((1,), (1.0,))
    jobs = [job(key, curve, 100.0, 100.0 * (key + 1), admitted=True) for key in range(3)]
    found = ALLOCATORS["elasticflow"](gpus=1).decide(jobs, 0.0)
    assert [*found.widths] == [1, 0, 0]
    assert [*found.finish_s] == [100.0, 200.0, 300.0]
    assert found.change_s == 100.0


def test_equal_input_gives_equal_output() -> None:
    jobs = [job(key, CURVES[key % 4], 90.0 + key, 400.0 - key % 7) for key in range(12)]
    for name, make in ALLOCATORS.items():
        first, second = (make(gpus=8).decide(jobs, 5.0) for _ in range(2))
        assert first == second, name


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def floats(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(values, np.float64)


def test_a_plan_refuses_what_does_not_match() -> None:
    with pytest.raises(ValueError, match="no such cluster"):
        WidthPlan(gpus=0, slot_s=0.0)
    plan = WidthPlan(gpus=4, slot_s=0.0)
    for width, rate in ((ints(), floats()), (ints(2, 1), floats(1, 1)), (ints(1), floats(0.0))):
        with pytest.raises(ValueError, match="no such curve"):
            plan.add_curve(width, rate)
    number = plan.add_curve(ints(1, 8), floats(1.0, 5.0))
    wide = plan.add_curve(ints(8), floats(5.0))
    with pytest.raises(ValueError, match="columns do not match"):
        plan.begin(0.0, ints(number), floats(), floats(1.0), ints(-1))
    with pytest.raises(ValueError, match="wider than the cluster"):
        plan.begin(0.0, ints(wide), floats(1.0), floats(1.0), ints(-1))
    with pytest.raises(ValueError, match="no such curve"):
        plan.begin(0.0, ints(7), floats(1.0), floats(1.0), ints(-1))
    with pytest.raises(ValueError, match="no work left"):
        plan.begin(0.0, ints(number), floats(0.0), floats(1.0), ints(-1))
    plan.begin(0.0, ints(number), floats(3.0), floats(9.0), ints(-1))
    with pytest.raises(ValueError, match="no such job"):
        plan.fill(ints(1))
    with pytest.raises(ValueError, match="named twice"):
        plan.fill(ints(0, 0))
    with pytest.raises(ValueError, match="nothing was noted"):
        plan.undo()
    assert plan.fill(ints(0)) == 0
    assert plan.finishes() == [3.0]
    assert plan.next_change() == math.inf
