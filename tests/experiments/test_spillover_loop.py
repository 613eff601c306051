"""The simulation of dispatch and queues in `headgate reproduce spillover`."""

from __future__ import annotations

import pytest

from headgate.base.rng import stream
from headgate.experiments.spillover.loop import Loop, LoopCluster, LoopOutcome, LoopTask
from headgate.planning.balancers import BALANCERS

ONE = LoopCluster(name="one", total=((2, 0, 8),), speed=(1.0,))
TWO = LoopCluster(name="two", total=((2, 0, 8), (4, 0, 8)), speed=(1.0, 2.0))
DEMANDS = ((1, 0, 1), (2, 0, 1))


def run(
    cluster: LoopCluster, balancer: str, tasks: list[LoopTask], in_flight: int = 1000
) -> LoopOutcome:
    loop = Loop(
        cluster=cluster, demands=DEMANDS, balancer=BALANCERS[balancer], rng=stream(1, "balancer")
    )
    return loop.run(tasks, in_flight)


@pytest.mark.parametrize("balancer", BALANCERS)
def test_all_tasks_run_and_hold_their_cpus_for_their_time(balancer: str) -> None:
    tasks = [LoopTask(number % 2, 1.0) for number in range(40)]

    ended = run(TWO, balancer, tasks, in_flight=13)

    assert sum(ended.placed) == len(tasks)
    work = sum(busy_s * speed for busy_s, speed in zip(ended.busy_s, TWO.speed, strict=True))
    assert work == pytest.approx(60.0)
    assert all(
        busy_s <= cpus * ended.makespan_s + 1e-9
        for busy_s, (cpus, _, _) in zip(ended.busy_s, TWO.total, strict=True)
    )


def test_tasks_queue_where_no_node_has_room() -> None:
    assert run(ONE, "swrr", [LoopTask(0, 1.0)] * 5).makespan_s == pytest.approx(3.0)


def test_first_task_of_a_queue_that_fits_starts_next() -> None:
    # One CPU is left beside the first task: the third task passes the second.
    ended = run(ONE, "random", [LoopTask(0, 2.0), LoopTask(1, 1.0), LoopTask(0, 2.0)])

    assert ended.makespan_s == pytest.approx(3.0)


def test_one_in_flight_runs_tasks_one_after_the_other_on_the_local_node() -> None:
    ended = run(TWO, "swrr", [LoopTask(0, 0.5)] * 6, in_flight=1)

    assert ended.makespan_s == pytest.approx(3.0)
    assert ended.placed == (6, 0)


def test_local_node_is_filled_before_tasks_spill_over() -> None:
    assert run(TWO, "round-robin", [LoopTask(0, 1.0)] * 4).placed == (2, 2)


def test_speed_divides_computing_and_not_reading() -> None:
    fast = LoopCluster(name="fast", total=((1, 0, 8),), speed=(4.0,))

    ended = run(fast, "swrr", [LoopTask(0, 2.0, (3.0,))])

    assert ended.makespan_s == pytest.approx(3.5)
    assert ended.busy_s == (0.5,)


def test_least_cost_prefers_the_node_that_has_the_data() -> None:
    tasks = [LoopTask(0, 1.0, (9.0, 0.0))] * 3

    assert run(TWO, "least-cost", tasks).placed == (0, 3)
    assert run(TWO, "swrr", tasks).placed == (2, 1)
