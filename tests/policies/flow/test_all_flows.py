"""What policies that decide by a flow have in common: near the data, on large GPUs, to the end."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.policies.flow.bench import GB, Bench, submitted, workloads

from headgate.model import WHOLE, Demand, Task
from headgate.policies.flow import FlowSharing, PreemptiveFlowSharing, TimelyFlow, UnfairFlow
from headgate.policies.flow.policy import FlowPolicy
from headgate.protocol.reasons import GpuMemory, NothingFits

LARGE = Task(demand=Demand(gpus=1, gpu_memory_bytes=40 * GB))
HUGE = Task(demand=Demand(gpus=1, gpu_memory_bytes=90 * GB))


def each(*kinds: type[FlowPolicy]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.name)


@each(FlowSharing, PreemptiveFlowSharing, TimelyFlow)
def test_three_tasks_of_two_jobs_run_where_their_data_is(kind: type[FlowPolicy]) -> None:
    bench = Bench(kind())
    bench.node("one", "r", 10)
    bench.node("two", "r", 10)
    bench.data("d11", GB, "one", "two")
    bench.data("d12", GB, "two")
    bench.data("d21", GB, "two")
    bench.apply(
        submitted("first", [Task(reads=("d11",)), Task(reads=("d12",))]),
        submitted("second", [Task(reads=("d21",))]),
    )
    assert bench.where() == {"first/0": "one", "second/0": "two"}


@each(PreemptiveFlowSharing, UnfairFlow, TimelyFlow)
def test_no_task_waits_for_data_that_no_run_is_about_to_leave(kind: type[FlowPolicy]) -> None:
    """While `fs`, which prices a wait by the average task, holds the first one back."""
    bench = Bench(kind())
    bench.node("near", "r")
    bench.node("away", "s", 10, 10, 10, 10)
    bench.data("huge", 10 * GB, "near")
    bench.data("tiny", GB // 100, "near")
    bench.apply(submitted("job", [Task(reads=("huge",))] + [Task(reads=("tiny",))] * 3))
    assert bench.running("job") == [0, 1, 2, 3]


@each(FlowSharing, PreemptiveFlowSharing, UnfairFlow, TimelyFlow)
def test_large_gpus_are_kept_for_tasks_that_need_them(kind: type[FlowPolicy]) -> None:
    for jobs in ([submitted("any", 1), submitted("needy", [LARGE])], [submitted("any", 1)]):
        bench = Bench(kind())
        bench.node("large", "r", 80)
        bench.node("small", "r", 10)
        bench.apply(*jobs)
        assert bench.where() == {"any/0": "small"} | ({"needy/0": "large"} if jobs[1:] else {})


@each(FlowSharing, PreemptiveFlowSharing, UnfairFlow, TimelyFlow)
def test_tasks_wait_for_gpus_that_are_large_enough(kind: type[FlowPolicy]) -> None:
    bench = Bench(kind())
    bench.node("n", "r", 10, 10)
    bench.node("big", "r", 80)
    bench.apply(submitted("large", [LARGE] * 2), submitted("huge", [HUGE]))
    assert bench.reason("large") == GpuMemory(needed_bytes=40 * GB, largest_free_bytes=10 * GB)
    assert bench.reason("huge") == NothingFits(need="a GPU of 83.8 GiB")


@settings(max_examples=80)
@given(
    st.sampled_from([FlowSharing, UnfairFlow]).flatmap(lambda kind: workloads(kind())),
    st.randoms(use_true_random=False),
)
def test_every_workload_ends_under_its_ceilings(bench: Bench, order: Random) -> None:
    """Plans are always feasible (the bench asserts it), and no task waits without a reason."""
    state = bench.engine.state
    while bench.runs:
        for row, queue in enumerate(state.queues.spec.array()):
            if queue.max_gpus is not None:
                assert state.queues.held_gpus_milli[row] <= WHOLE * queue.max_gpus
        for job in state.freeze().waiting_jobs():
            assert bench.reason(state.job(job).id) is not None
        bench.finish(*order.choice(sorted(bench.runs)))
    assert state.waiting_tasks == 0
    assert not state.jobs.unfinished.array().any()
