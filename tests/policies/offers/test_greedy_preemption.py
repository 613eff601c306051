"""Runs are preempted for tasks that then start; GPUs of tasks that lack the rest go to others."""

from __future__ import annotations

import pytest
from tests.policies.flow.bench import GB, Bench, submitted

from headgate.model import Demand, Gpu, Node, Task
from headgate.policies.offers.greedy import GreedyPreemption
from headgate.protocol import NodeJoined

LICENSED = Task(demand=Demand(gpus=1, custom=(("license", 1000),)))


@pytest.mark.parametrize("licenses", [1, 2])
def test_runs_are_preempted_only_for_a_task_that_then_starts(licenses: int) -> None:
    """A licensed task needs, beside a GPU, what another run holds, or, with two, what is free."""
    bench = Bench(GreedyPreemption(slack=0.0))
    node = Node(id="n", rack="r", gpus=(Gpu(memory_bytes=GB),) * 3, cpus=8,
                custom=(("license", 1000 * licenses),))  # fmt: skip
    bench.apply(NodeJoined(at=0.0, node=node))
    bench.apply(submitted("first", [LICENSED], user="a"))
    bench.apply(submitted("many", 9, user="b"))
    assert len(bench.running("many")) == 2
    bench.apply(submitted("late", [LICENSED], user="c"))
    assert [stop.run.job for stop in bench.stops] == ["many"] * (licenses - 1)
    bench.stop()
    assert bench.running("late") == [0] * (licenses - 1)
    assert len(bench.running("many")) == 3 - licenses
    bench.finish("many", min(bench.running("many")))
    assert len(bench.running("many")) == 3 - licenses, "no GPU idles for what lacks a license"
    assert bench.stops == []
