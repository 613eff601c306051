"""Multi-GPU units under the flow policies: gangs, tasks of several GPUs, and parts of GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.policies.flow.bench import GB, Bench, submitted

from headgate.model import Demand, Task
from headgate.policies.flow import FlowSharing, PreemptiveFlowSharing, TimelyFlow, UnfairFlow
from headgate.policies.flow.policy import FlowPolicy
from headgate.protocol import Reason
from headgate.protocol.reasons import Fragmented, GangShort, NothingFits, QueueLimit


def unreserved(reason: Reason | None) -> Reason:
    """Return a reason without the reservation that only `headgate` makes."""
    assert isinstance(reason, GangShort | Fragmented)
    return replace(reason, reserved=None)


WIDE = pytest.mark.parametrize(
    "make", [FlowSharing, PreemptiveFlowSharing, UnfairFlow, TimelyFlow], ids=lambda each: each.name
)


@WIDE
def test_wide_units_get_their_shares_and_one_wider_than_its_share_starts(
    make: Callable[[], FlowPolicy],
) -> None:
    bench = Bench(make())
    bench.node("n", "r", *[10] * 8)
    bench.apply(
        submitted("one", [Task(demand=Demand(gpus=2))] * 9),
        submitted("two", [Task(demand=Demand(gpus=2))] * 9),
        submitted("all", [Task()] * 5, gang=True),
    )
    if make in (FlowSharing, PreemptiveFlowSharing):
        assert (bench.running("one"), bench.running("two")) == ([0, 1], [0, 1])
        bench.finish("one", 0)
    first = bench.engine.state.names.job_rows["all"]
    for _ in range(30):
        if bench.running("all"):
            break
        job = "one" if bench.running("one") else "two"
        bench.finish(job, bench.running(job)[0])
    assert bench.running("all") == [0, 1, 2, 3, 4]
    assert bench.engine.state.jobs.held_gpus_milli[first] == 5000


@WIDE
def test_wide_units_that_wait_have_reasons(make: Callable[[], FlowPolicy]) -> None:
    bench = Bench(make())
    bench.queue("small", max_gpus=1)
    bench.node("a", "r", 10, 10, 10)
    bench.node("b", "r", 10, 10, 10)
    bench.apply(submitted("first", [Task(demand=Demand(gpus=2))] * 2))
    bench.apply(
        submitted("gang", [Task(demand=Demand(gpus=2))] * 3, gang=True),
        submitted("wide", [Task(demand=Demand(gpus=2))]),
        submitted("large", [Task(demand=Demand(gpus=2, gpu_memory_bytes=40 * GB))]),
        submitted(
            "capped", [Task(demand=Demand(gpus=2)), Task(demand=Demand(gpus=2))], queue="small"
        ),
    )
    assert unreserved(bench.reason("gang")) == GangShort(
        placeable_tasks=0, tasks=3, free_gpus=2, needed_gpus=6
    )
    assert unreserved(bench.reason("wide")) == Fragmented(
        needed_gpus=2, free_gpus=2, most_on_one_node=1
    )
    assert bench.reason("large") == NothingFits(need="2 GPUs with 37.3 GiB on one node")
    assert bench.reason("capped") == QueueLimit(queue="small", used_gpus=0, max_gpus=1)
