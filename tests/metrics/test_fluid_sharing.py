"""Fluid fair sharing, against hand-made timelines and a simulation in fractions, job by job."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from headgate.metrics.fluid_sharing import fluid_ends


class J(NamedTuple):
    """A job of a history."""

    submitted_at: int
    compute_s: int
    width: int
    group: int = 0


def ends(jobs: list[J], gpus: int) -> list[float]:
    columns = [np.array(column) for column in zip(*jobs, strict=True)]
    submitted_at, compute_s, width, group = columns
    ends_at = fluid_ends(
        submitted_at.astype(float), compute_s.astype(float), width, group, gpus=gpus
    )
    return [float(at) for at in ends_at]


def filled(limits: dict[int, Fraction], amount: Fraction) -> dict[int, Fraction]:
    """Divide an amount max-min fairly, by raising all that are below their limits alike."""
    shares = dict.fromkeys(limits, Fraction(0))
    while amount > 0 and (open_ := [n for n in limits if shares[n] < limits[n]]):
        step = min(amount / len(open_), *(limits[n] - shares[n] for n in open_))
        for n in open_:
            shares[n] += step
        amount -= step * len(open_)
    return shares


def exact_ends(jobs: list[J], gpus: int) -> list[Fraction]:
    """Step from event to event; every job by itself, in exact fractions."""
    left = {n: Fraction(job.compute_s) for n, job in enumerate(jobs)}
    ended: dict[int, Fraction] = {}
    now = Fraction(0)
    while left:
        here = [n for n in left if jobs[n].submitted_at <= now]
        limits: dict[int, Fraction] = {}
        for n in here:
            limits[jobs[n].group] = limits.get(jobs[n].group, Fraction(0)) + jobs[n].width
        groups = filled(limits, Fraction(gpus))
        speed = {}
        for group, share in groups.items():
            members = {n: Fraction(jobs[n].width) for n in here if jobs[n].group == group}
            for n, got in filled(members, share).items():
                speed[n] = got / jobs[n].width if jobs[n].width else Fraction(1)
        times = [now + left[n] / speed[n] for n in here]
        times += [Fraction(jobs[n].submitted_at) for n in left if jobs[n].submitted_at > now]
        then = min(times)
        for n in here:
            left[n] -= (then - now) * speed[n]
            if left[n] == 0:
                ended[n] = then
                del left[n]
        now = then
    return [ended[n] for n in range(len(jobs))]


def test_jobs_that_all_fit_run_at_full_speed() -> None:
    assert ends([J(0, 10, 2), J(3, 4, 1), J(3, 0, 1)], gpus=4) == [10, 7, 3]


def test_equal_jobs_share_and_speed_up_when_one_ends() -> None:
    # 1/2 GPU each to 20 s, when the second has had 10 s; the first then needs 10 s on its own
    assert ends([J(0, 20, 1), J(0, 10, 1)], gpus=1) == [30, 20]


def test_narrow_job_is_never_given_more_than_its_width() -> None:
    # 4 GPUs: 1 to the narrow one, 3 of its 4 to the wide one, until 10 s
    assert ends([J(0, 10, 4), J(0, 10, 1)], gpus=4) == [12.5, 10]


def test_groups_share_first_however_many_jobs_each_has() -> None:
    # 2 GPUs each; of group 1 each job has 1/2
    jobs = [J(0, 10, 4, 0), *(J(0, 5, 1, 1) for _ in range(4))]
    assert ends(jobs, gpus=4) == [15, 10, 10, 10, 10]


def test_what_a_group_cannot_use_goes_to_the_others() -> None:
    # 1 to group 1; 3 to group 0
    assert ends([J(0, 30, 4, 0), J(0, 100, 1, 1)], gpus=4) == [40, 100]


def test_job_without_gpus_is_not_shared_down() -> None:
    assert ends([J(0, 10, 1), J(0, 10, 1), J(5, 10, 0)], gpus=1) == [20, 20, 15]


def test_gap_without_jobs_does_not_disturb_the_next_ones() -> None:
    assert ends([J(0, 1, 1), J(100, 10, 2), J(100, 10, 2)], gpus=2) == [1, 120, 120]


@pytest.mark.parametrize("seed", range(120))
def test_ends_equal_those_of_exact_fractions_on_random_histories(seed: int) -> None:
    rng = random.Random(seed)
    gpus = rng.choice([1, 3, 8, 30])
    at, jobs = 0, []
    for _ in range(rng.randint(1, 40)):
        at += rng.choice([0, 0, 1, 7])
        width = rng.choice([0, 1, 1, 2, 3, 8])
        group = rng.randrange(rng.choice([1, 2, 5]))
        jobs.append(J(at, rng.choice([0, 1, 5, 30]), min(width, gpus), group))
    for got, exact in zip(ends(jobs, gpus), exact_ends(jobs, gpus), strict=True):
        assert math.isclose(got, exact, rel_tol=1e-9, abs_tol=1e-9)


def test_long_history_under_load_does_all_its_work() -> None:
    """20 groups, widths of powers of two: the GPUs work at full speed while enough jobs wait."""
    rng = np.random.default_rng(5)
    count, gpus = 3_000, 64
    submitted_at = np.zeros(count)
    width = 2 ** rng.integers(0, 6, count)
    compute_s = rng.lognormal(5, 1.5, count)
    ends_at = fluid_ends(submitted_at, compute_s, width, rng.integers(0, 20, count), gpus=gpus)
    assert (ends_at >= compute_s * (1 - 1e-9)).all()
    half = np.sort(ends_at)[count // 2]
    done = compute_s * width * np.minimum(1.0, half / ends_at)
    assert done[ends_at <= half].sum() <= gpus * half * (1 + 1e-9)
    assert ends_at.max() >= (compute_s * width).sum() / gpus * (1 - 1e-9)


def test_history_without_any_gpu_ends_as_it_computes() -> None:
    assert ends([J(0, 10, 0), J(5, 3, 0)], gpus=1) == [10, 8]
