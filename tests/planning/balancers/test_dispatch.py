"""Balancers compared on one stream of tasks over unlike nodes, with queues."""

from __future__ import annotations

import pytest
from tests.planning.balancers.dispatch import SPEED, TOTAL, Loop, rate

from headgate.planning.balancers import BALANCERS


@pytest.mark.parametrize("in_flight", [10, 100])
def test_least_cost_is_at_least_as_good_as_the_best_other_balancer(in_flight: int) -> None:
    rates = {name: rate(each, in_flight, tasks=300, seeds=2) for name, each in BALANCERS.items()}
    assert rates.pop("least-cost") >= max(rates.values())


def test_no_balancer_finishes_more_than_the_nodes_can() -> None:
    # a task takes 7/3 CPUs for 1 s on average, at a speed of 1
    most = sum(cpus * speed for cpus, speed in zip(TOTAL[:, 0], SPEED, strict=True)) / (7 / 3)
    for each in BALANCERS.values():
        assert 0 < Loop(each, 60).throughput(300) < 1.1 * most
