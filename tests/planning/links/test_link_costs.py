"""Slowdowns of units on sets of leaves, against the rates of all jobs together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headgate.base.rng import Random
from headgate.model import Communication, Pattern
from headgate.model.topology import Tree
from headgate.planning.links.contention import flow_rates
from headgate.planning.links.costs import _Sender, _Senders
from headgate.planning.links.traffic import Traffic, traffic_of

TREE = Tree.uniform((3, 3, 4), (20.0, 40.0, 100.0))


def traffic(rng: Random, step_s: float) -> Traffic:
    pattern = rng.choice((Pattern.RING, Pattern.TREE, Pattern.ALL_TO_ALL, Pattern.NEIGHBOURS))
    leaves = np.array(rng.sample(range(TREE.leaves), rng.randint(2, 12)))
    sends = Communication(pattern=pattern, bytes_per_step=rng.choice((10, 400)), step_s=step_s)
    return traffic_of(TREE, leaves, sends)


def rate_beside(own: Traffic, others: list[tuple[Traffic, float]], at: float) -> float:
    senders = [_Sender(each, end, np.zeros(0, np.int64)) for each, end in others]
    alone = own.alone_rate(TREE.capacity)
    rates = flow_rates([each for each, _ in others], TREE.capacity)
    return _Senders(senders, rates, TREE.capacity).near(own, alone, at).rate(at)


@pytest.mark.parametrize("seed", range(60))
def test_rate_beside_one_job_that_sends_without_pause_is_exact(seed: int) -> None:
    rng = Random(seed)
    own, other = traffic(rng, 0.0), traffic(rng, 0.0)
    expected = float(flow_rates([own, other], TREE.capacity)[0])
    assert rate_beside(own, [(other, math.inf)], 0.0) == pytest.approx(expected)
    assert rate_beside(own, [(other, 5.0)], 5.0) == own.alone_rate(TREE.capacity), "it has ended"


@pytest.mark.parametrize("seed", range(60))
def test_rate_beside_many_jobs_is_near_the_exact_one(seed: int) -> None:
    rng = Random(seed)
    own, *others = [traffic(rng, rng.choice((0.0, 1.0, 10.0))) for _ in range(rng.randint(2, 7))]
    expected = float(flow_rates([own, *others], TREE.capacity)[0])
    found = rate_beside(own, [(other, math.inf) for other in others], 0.0)
    assert found <= own.alone_rate(TREE.capacity)
    assert 0.6 < found / expected < 1.6


def test_job_without_links_leaves_the_rates_of_others() -> None:
    sends = Communication(pattern=Pattern.ALL_TO_ALL, bytes_per_step=10)
    apart = traffic_of(TREE, np.array([0, 4, 8]), sends)
    alone = traffic_of(TREE, np.array([0, 0]), sends)
    rates = flow_rates([apart, apart, alone], TREE.capacity)
    assert rates[2] == math.inf
    assert rates[:2].tolist() == flow_rates([apart, apart], TREE.capacity).tolist()


def lost_ranks(own: Traffic, others: list[Traffic], until: float = 1.0) -> float:
    """Return the mean ranks that others lose to some traffic; each has 4 and ends at 1."""
    four = np.zeros(4, np.int64)
    senders = [_Sender(each, 1.0, four) for each in others]
    rates = flow_rates(others, TREE.capacity)
    beside = _Senders(senders, rates, TREE.capacity)
    rate = beside.near(own, own.alone_rate(TREE.capacity), 0.0).rate(0.0)
    return beside.lost(own, rate, 0.0, until)


def lost_exactly(own: Traffic, others: list[Traffic]) -> float:
    before = flow_rates(others, TREE.capacity)
    after = flow_rates([own, *others], TREE.capacity)[1:]
    lost = 0.0
    for each, first, then in zip(others, before, after, strict=True):
        first_s, then_s = (
            each.step_s + each.flow_bytes / first,
            each.step_s + each.flow_bytes / then,
        )
        lost += 4 * (1 - first_s / then_s) if then_s else 0.0
    return lost


@pytest.mark.parametrize("seed", range(60))
def test_loss_of_one_job_that_sends_without_pause_is_exact(seed: int) -> None:
    rng = Random(seed)
    own, other = traffic(rng, 0.0), traffic(rng, 0.0)
    exact = lost_exactly(own, [other])
    assert lost_ranks(own, [other]) == pytest.approx(exact, abs=1e-6)
    assert lost_ranks(own, [other], 0.25) == pytest.approx(exact / 4, abs=1e-6), "while both run"
    assert lost_ranks(own, [other], 9.0) == pytest.approx(exact, abs=1e-6), "until it ends"


@pytest.mark.parametrize("seed", range(60))
def test_loss_of_many_jobs_is_near_the_exact_one(seed: int) -> None:
    rng = Random(seed)
    own, *others = [traffic(rng, rng.choice((0.0, 1.0, 10.0))) for _ in range(rng.randint(2, 7))]
    exact, found = lost_exactly(own, others), lost_ranks(own, others)
    assert -1e-6 <= found <= 4 * len(others)
    assert abs(found - exact) <= 0.3 * 4 * len(others)


def test_job_loses_nothing_to_one_on_other_links() -> None:
    sends = Communication(pattern=Pattern.RING, bytes_per_step=10)
    here, there = (traffic_of(TREE, np.arange(first, first + 4), sends) for first in (0, 12))
    assert lost_ranks(here, [there]) == 0
    assert lost_ranks(here, [here]) == pytest.approx(2), "it has half of each link"
