"""The policy `fs` on an engine: placements, waiting by price, and reasons."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.policies.flow.bench import GB, Bench, submitted

from headgate.model import Bandwidth, Demand, Task
from headgate.policies.flow import FlowSharing
from headgate.protocol import (
    BandwidthMeasured,
    NodeLost,
)
from headgate.protocol.reasons import (
    BelowShare,
    GpuMemory,
    NoFreeGpu,
    NothingFits,
    QueueLimit,
    ShareLimit,
    WaitsForLocality,
)

NEVER_WAITS = FlowSharing(alpha1=1.5, alpha2=2.0, alpha3=2.0)  # a task of average size never waits


def test_freed_gpus_go_to_the_job_below_its_share() -> None:
    bench = Bench()
    bench.node("n", "r", 10, 10, 10, 10)
    bench.apply(submitted("early", 20))
    assert bench.running("early") == [0, 1, 2, 3]
    bench.apply(submitted("late", 20))
    assert bench.running("late") == []  # nothing is taken away
    for ordinal in range(4):
        bench.finish("early", ordinal)
    assert (len(bench.running("early")), len(bench.running("late"))) == (2, 2)


def test_many_jobs_of_one_user_share_one_users_share_by_priority() -> None:
    bench = Bench()
    bench.node("n", "r", *[10] * 6)
    bench.apply(
        submitted("low", 9, user="ann"),
        submitted("high", 9, user="ann", priority=1),
        submitted("other", 9, user="bob"),
    )
    assert [len(bench.running(j)) for j in ("low", "high", "other")] == [0, 3, 3]
    assert bench.reason("low") == ShareLimit(running_gpus=0, share_gpus=0, ahead="high")


def test_gpus_beyond_the_shares_are_used_where_others_cannot() -> None:
    bench = Bench()
    bench.node("n", "r", 80, 10, 10, 10)
    need = Task(demand=Demand(gpus=1, gpu_memory_bytes=40 * GB))
    bench.apply(submitted("needy", [need] * 4), submitted("any", 9))
    assert (len(bench.running("needy")), len(bench.running("any"))) == (1, 3)
    assert bench.reason("needy") == ShareLimit(running_gpus=1, share_gpus=1, ahead="any")


def test_a_large_task_waits_for_its_data_and_the_last_one_does_not() -> None:
    bench = Bench(NEVER_WAITS)
    bench.node("near", "r")
    bench.node("far", "s", 10, 10, 10, 10)
    bench.data("huge", 10 * GB, "near")
    bench.data("tiny", GB // 100, "near")
    bench.apply(submitted("job", [Task(reads=("huge",))] + [Task(reads=("tiny",))] * 3))
    # Across racks huge costs 2 x 500 s, waiting 2 x 2 x (10.03 GB / 4 tasks / 20 MB/s) = 501.5 s.
    assert bench.running("job") == [1, 2, 3]
    assert bench.reason("job") == WaitsForLocality(move_s=1000.0, wait_s=501.5)
    bench.finish("job", 1)
    # Now it is the average one itself.
    assert bench.running("job") == [0, 2, 3]


def test_the_average_counts_tasks_that_could_not_all_be_placed_now() -> None:
    bench = Bench(NEVER_WAITS)
    bench.node("near", "r")
    bench.node("far", "s", 10, 10)
    bench.node("big", "s", 80)
    bench.data("huge", 10 * GB, "near")
    need = Task(demand=Demand(gpus=1, gpu_memory_bytes=40 * GB))
    bench.apply(submitted("other", [need]))
    bench.apply(submitted("job", [Task(reads=("huge",))] * 10 + [need] * 20))
    assert bench.running("job") == [0]  # one, since it had nothing running
    # 2 x 2 x (10 x 10 GB / 30 tasks / 20 MB/s), in whole microseconds on each of two arcs.
    assert bench.reason("job") == WaitsForLocality(move_s=1000.0, wait_s=666.666666)


def test_waiting_for_locality_is_explained_with_both_prices() -> None:
    bench = Bench(FlowSharing(alpha1=1.1, alpha2=8.0, alpha3=1.5))
    bench.node("near", "r", 10)
    bench.node("far", "s", 10)
    bench.data("d", GB, "near")
    bench.apply(submitted("job", [Task(reads=("d",))] * 2))
    assert bench.where() == {"job/0": "near"}
    assert bench.reason("job") == WaitsForLocality(move_s=8 * 50.0, wait_s=2 * 1.5 * 50.0)
    bench.apply(submitted("idle-free", 5))
    assert bench.where()["idle-free/0"] == "far"


def test_a_job_with_nothing_running_is_never_held_back_by_price() -> None:
    bench = Bench(FlowSharing(alpha1=1.1, alpha2=90.0, alpha3=1.1))
    bench.node("full", "r")
    bench.node("far", "s", 10)
    bench.data("d", 10 * GB, "full")
    bench.apply(submitted("job", [Task(reads=("d",))] * 2))
    assert bench.where() == {"job/0": "far"}


def test_the_reason_of_a_job_below_its_share_names_the_job_above() -> None:
    bench = Bench(NEVER_WAITS)
    bench.node("n", "r", 10, 10, 10, 10)
    bench.apply(submitted("early", 9))
    assert bench.reason("early") == NoFreeGpu(free_gpus=0, needed_gpus=1, total_gpus=4)
    bench.apply(submitted("late", 9))
    assert bench.reason("late") == BelowShare(
        running_gpus=0, share_gpus=2, ahead="early", ahead_over_gpus=2
    )


def test_every_wait_has_its_reason() -> None:
    bench = Bench()
    bench.queue("small", max_gpus=1)
    bench.node("n", "r", 10, 10, 10)
    bench.node("big", "r", 80)
    bench.apply(submitted("capped", 3, queue="small"))
    assert bench.reason("capped") == QueueLimit(queue="small", used_gpus=1, max_gpus=1)
    bench.apply(submitted("large", [Task(demand=Demand(gpus=1, gpu_memory_bytes=40 * GB))] * 2))
    assert bench.reason("large") == GpuMemory(needed_bytes=40 * GB, largest_free_bytes=10 * GB)
    bench.apply(submitted("rest", 9))
    assert bench.reason("rest") == ShareLimit(running_gpus=2, share_gpus=2, ahead="capped")
    bench.apply(NodeLost(at=bench.at, node="big"))
    assert bench.reason("large") == NothingFits(need="a GPU of 37.3 GiB")
    bench.apply(NodeLost(at=bench.at, node="n"))
    assert bench.reason("rest") == NothingFits(need="a GPU")


def test_a_single_job_waits_for_gpus_not_for_its_share() -> None:
    bench = Bench()
    bench.node("n", "r", 10, 10)
    bench.apply(submitted("alone", 5))
    assert bench.reason("alone") == NoFreeGpu(free_gpus=0, needed_gpus=1, total_gpus=2)


def test_jobs_with_equal_reasons_are_one_refusal() -> None:
    bench = Bench()
    bench.node("n", "r", 10)
    bench.apply(*[submitted(f"job-{i}", 2) for i in range(50)])
    waiting = [len(r.jobs) for r in bench.engine.state.refusals]
    assert sorted(waiting) == [1, 49]


@given(
    st.lists(st.floats(1e6, 1e10), min_size=3, max_size=3),
    st.integers(1, 8),
    st.integers(1, 100),
)
def test_average_tasks_never_wait_by_price_where_moving_is_priced_below_waiting(
    speeds: list[float], tasks: int, size_mb: int
) -> None:
    bench = Bench(NEVER_WAITS)
    disk, rack, cluster = speeds  # whichever of them is slowest
    bandwidth = Bandwidth(disk_bytes_per_s=disk, rack_bytes_per_s=rack, cluster_bytes_per_s=cluster)
    bench.apply(BandwidthMeasured(at=0.0, bandwidth=bandwidth))
    bench.node("near", "r", 10)
    bench.node("beside", "r", 10, 10)
    bench.node("far", "s", 10)
    bench.data("d", size_mb * 10**6, "near")
    bench.apply(submitted("job", [Task(reads=("d",))] * tasks))
    assert len(bench.where()) == min(tasks, 4)
