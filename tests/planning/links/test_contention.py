"""Rates of jobs that share links: cases by hand, max-min fairness, and a simulation of events."""

from __future__ import annotations

import itertools
import math
from random import Random

import numpy as np
import pytest

from headgate.base.errors import InvariantBroken
from headgate.planning.links.contention import Contention, flow_rates
from headgate.planning.links.traffic import Traffic


def job(flows: dict[int, float], *, size: float = 1.0, step_s: float = 0.0) -> Traffic:
    """Return a job of one flow size with so many flows over each link."""
    links = sorted(flows)
    return Traffic(
        np.array(links, np.int64), np.array([float(flows[link]) for link in links]), size, step_s
    )


def rates(*jobs: Traffic, capacity: list[float]) -> list[float]:
    found: list[float] = flow_rates(jobs, np.array(capacity)).tolist()
    return found


def test_job_alone_sends_as_fast_as_its_tightest_master_client() -> None:
    assert rates(job({0: 2, 1: 1}), capacity=[10.0, 8.0]) == [5.0]


def test_job_without_links_is_never_slowed() -> None:
    assert rates(job({}), job({0: 1}), capacity=[10.0]) == [math.inf, 10.0]


def test_jobs_that_always_send_share_a_link_by_their_flows() -> None:
    # five flows in all: each gets 2
    assert rates(job({0: 1}), job({0: 4}), capacity=[10.0]) == pytest.approx([2.0, 2.0])


def test_share_that_a_job_cannot_use_goes_to_the_others() -> None:
    # the first is held to 1 by its own link: 9 are left for two
    assert rates(job({0: 1, 1: 1}), job({0: 1}), job({0: 1}), capacity=[10.0, 1.0]) == (
        pytest.approx([1.0, 4.5, 4.5])
    )


def test_chain_of_links_gets_the_max_min_fair_rates() -> None:
    # textbook: A on both links, B and C on the first, D on the second
    a, b, c, d = job({0: 1, 1: 1}), job({0: 1}), job({0: 1}), job({1: 1})
    assert rates(a, b, c, d, capacity=[3.0, 5.0]) == pytest.approx([1.0, 1.0, 1.0, 4.0])


def test_two_equal_jobs_that_send_half_of_the_time_meet_some_of_the_time() -> None:
    # alone 1 s of computing and 1 s of sending; t = 1 + t / (1 + t), the golden ratio
    first, second = rates(job({0: 1}, step_s=1), job({0: 1}, step_s=1), capacity=[1.0])
    assert 1 / first == pytest.approx((1 + math.sqrt(5)) / 2)
    assert first == second


def test_job_that_hardly_sends_hardly_slows_its_neighbour() -> None:
    often, seldom = rates(job({0: 1}, step_s=1), job({0: 1}, step_s=1e6), capacity=[1.0])
    assert often == pytest.approx(1.0, rel=1e-5)
    assert seldom < 0.7


def test_link_wide_enough_for_all_together_slows_no_job() -> None:
    assert rates(job({0: 1, 1: 1}), job({0: 1, 2: 1}), capacity=[2.0, 1.0, 1.0]) == [1.0, 1.0]


def random_jobs(seed: int, *, always: bool) -> tuple[list[Traffic], list[float]]:
    random = Random(seed)
    links = random.randint(1, 6)
    capacity = [random.choice([1.0, 2.0, 5.0, 20.0]) for _ in range(links)]
    jobs = [
        job(
            {link: random.choice([1, 1, 2, 7]) for link in random.sample(range(links), k)},
            size=random.choice([0.1, 1.0, 30.0]),
            step_s=0.0 if always else random.choice([0.0, 0.1, 1.0, 10.0]),
        )
        for k in (random.randint(1, links) for _ in range(random.randint(1, 8)))
    ]
    return jobs, capacity


def filled(jobs: list[Traffic], capacity: list[float], busy: set[int]) -> dict[int, float]:
    """Return max-min fair rates of the jobs that send, by progressive filling, link by link."""
    left, rate = list(capacity), {}
    pending = set(busy)
    while pending:
        count = [
            sum(float(jobs[j].flows[jobs[j].links == link].sum()) for j in pending)
            for link in range(len(capacity))
        ]
        least, tightest = min((left[n] / count[n], n) for n in range(len(left)) if count[n])
        settled = {j for j in pending if tightest in jobs[j].links}
        for j in settled:
            rate[j] = least
            for link, flows in zip(jobs[j].links, jobs[j].flows, strict=True):
                left[link] -= least * flows
        pending -= settled
    return rate


@pytest.mark.parametrize("seed", range(60))
def test_rates_of_jobs_that_always_send_are_those_of_progressive_filling(seed: int) -> None:
    jobs, capacity = random_jobs(seed, always=True)
    want = filled(jobs, capacity, set(range(len(jobs))))
    assert rates(*jobs, capacity=capacity) == pytest.approx(
        [want[j] for j in range(len(jobs))], rel=1e-8
    )


@pytest.mark.parametrize("seed", range(60))
def test_rates_solve_the_equations_of_the_model(seed: int) -> None:
    jobs, capacity = random_jobs(seed, always=False)
    assert_solves(jobs, capacity, rates(*jobs, capacity=capacity))


@pytest.mark.parametrize("seed", range(5))
def test_rates_of_many_jobs_on_many_links_solve_the_equations_on_every_link(seed: int) -> None:
    random = Random(seed)
    capacity = [random.choice([1.0, 2.0, 5.0]) for _ in range(80)]
    jobs = [
        job(
            {link: random.randint(1, 9) for link in random.sample(range(80), 20)},
            size=random.choice([0.1, 1.0, 30.0]),
            step_s=random.choice([0.1, 1.0, 10.0]),
        )
        for _ in range(25)
    ]
    assert_solves(jobs, capacity, rates(*jobs, capacity=capacity))


def assert_solves(jobs: list[Traffic], capacity: list[float], found: list[float]) -> None:
    """Check that the tightest link of each job is full, and none is overloaded."""
    sends = [j.flow_bytes / g for j, g in zip(jobs, found, strict=True)]
    busy = [t / (j.step_s + t) for j, t in zip(jobs, sends, strict=True)]
    for number, (mine, rate) in enumerate(zip(jobs, found, strict=True)):
        used = [
            float(flows) * rate
            + sum(
                busy[k] * float(jobs[k].flows[jobs[k].links == link].sum()) * min(rate, found[k])
                for k in range(len(jobs))
                if k != number
            )
            for link, flows in zip(mine.links, mine.flows, strict=True)
        ]
        part = max(u / capacity[link] for u, link in zip(used, mine.links, strict=True))
        assert part == pytest.approx(1.0, rel=1e-9), "its tightest link, and no other, is full"


def simulated_steps_s(
    jobs: list[Traffic], capacity: list[float], *, seed: int, steps: int
) -> list[float]:
    """Return the mean seconds of a step of each job, from event to event.

    Computing takes a random time of the given mean; jobs that send share links max-min fairly.
    """
    random = Random(seed)
    now = 0.0
    done = [0] * len(jobs)
    wakes_at = [random.expovariate(1 / j.step_s) if j.step_s else 0.0 for j in jobs]
    left: dict[int, float] = {}
    while min(done) < steps:
        rate = filled(jobs, capacity, set(left))
        ends = [(now + left[j] / rate[j], j) for j in left]
        wakes = [(at, j) for j, at in enumerate(wakes_at) if j not in left]
        at, which = min(ends + wakes)
        for j in left:
            left[j] -= rate[j] * (at - now)
        now = at
        if which in left:
            del left[which]
            done[which] += 1
            mean_s = jobs[which].step_s
            wakes_at[which] = now + (random.expovariate(1 / mean_s) if mean_s else 0.0)
        else:
            left[which] = jobs[which].flow_bytes
    return [now / count for count in done]


CASES = {
    "two equal": ([job({0: 1}, step_s=1)] * 2, [1.0]),
    "four equal": ([job({0: 1}, step_s=1)] * 4, [1.0]),
    "one sends more": ([job({0: 1}, step_s=2), job({0: 1}, size=3, step_s=1)], [1.0]),
    "more flows": ([job({0: 1}, step_s=1), job({0: 4}, size=0.25, step_s=1)], [1.0]),
    "two links": (
        [job({0: 1, 1: 1}, step_s=1), job({0: 1}, step_s=0.5), job({1: 1}, step_s=2)],
        [1.0, 1.0],
    ),
    "held elsewhere": (
        [job({0: 1, 1: 1}, step_s=0.5), job({0: 1}, step_s=1), job({0: 1}, step_s=1)],
        [1.0, 0.4],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_steps_last_about_as_long_as_in_a_simulation_of_events(case: str) -> None:
    jobs, capacity = CASES[case]
    want = simulated_steps_s(jobs, capacity, seed=1, steps=3000)
    found = [
        j.step_s + j.flow_bytes / rate
        for j, rate in zip(jobs, rates(*jobs, capacity=capacity), strict=True)
    ]
    alone = [j.step_alone_s(np.array(capacity)) for j in jobs]
    for model_s, event_s, alone_s in zip(found, want, alone, strict=True):
        assert alone_s - 1e-9 <= model_s
        assert model_s == pytest.approx(event_s, rel=0.12)


def test_rates_do_not_depend_on_the_order_in_which_jobs_came() -> None:
    jobs, capacity = random_jobs(7, always=False)
    names = [f"j{n}" for n in range(len(jobs))]
    want: dict[str, float] = {}
    for order in itertools.islice(itertools.permutations(range(len(jobs))), 0, 5000, 700):
        shared = Contention(np.array(capacity))
        shared.add("gone", job({0: 3}, step_s=1))
        shared.changed()
        for number in order:
            shared.add(names[number], jobs[number])
            shared.changed()
        shared.remove("gone")
        shared.changed()
        found = {name: shared.step_s(name) for name in names}
        want = want or found
        assert found == pytest.approx(want, rel=1e-9)


def test_only_jobs_that_a_change_reaches_are_recomputed() -> None:
    shared = Contention(np.ones(4))
    shared.add("a", job({0: 1}, step_s=1))
    shared.add("b", job({1: 1}, step_s=1))
    assert shared.changed() == ["a", "b"]
    shared.add("c", job({1: 1, 2: 1}, step_s=1))
    assert shared.changed() == ["b", "c"]
    shared.remove("b")
    assert shared.changed() == ["c"]
    assert shared.changed() == []
    assert shared.step_s("a") == shared.step_s("c") == 2.0


def test_loads_are_mean_bytes_per_second_of_each_link() -> None:
    shared = Contention(np.array([1.0, 4.0]))
    shared.add("a", job({0: 1, 1: 2}, size=3.0, step_s=1.0))
    shared.changed()
    assert shared.loads().tolist() == [3 / 4, 6 / 4]


def test_same_job_twice_is_an_error() -> None:
    shared = Contention(np.ones(1))
    shared.add("a", job({0: 1}))
    with pytest.raises(InvariantBroken, match="sends already"):
        shared.add("a", job({0: 1}))
