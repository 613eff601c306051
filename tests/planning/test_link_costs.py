"""Slowdowns of units on sets of leaves, against the rates of all jobs together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headgate.base.rng import Random
from headgate.model import Communication, Pattern
from headgate.model.topology import Tree
from headgate.planning.contention import flow_rates
from headgate.planning.link_costs import _Sender, _Senders
from headgate.planning.traffic import Traffic, traffic_of

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
