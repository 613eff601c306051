"""The policy `fsu`: most tasks at least cost, of any job, under every ceiling."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.policies.flow.bench import GB, Bench, priced, submitted, workloads

from headgate.model import Demand, Task
from headgate.policies.flow import FlowSharing, UnfairFlow
from headgate.protocol import Plan
from headgate.protocol.reasons import NoFreeGpu, QueueLimit
from headgate.state import Snapshot


def bench() -> Bench:
    return Bench(UnfairFlow())


def test_the_nearest_tasks_run_though_all_are_of_one_job() -> None:
    stage = bench()
    stage.node("near", "r", 10, 10, 10)
    stage.node("away", "s")
    stage.data("here", GB, "near")
    stage.data("there", GB, "away")
    stage.apply(
        submitted("first", [Task(reads=("there",))] * 3),
        submitted("second", [Task(reads=("here",))] * 3),
    )
    assert (stage.running("first"), stage.running("second")) == ([], [0, 1, 2])
    assert stage.reason("first") == NoFreeGpu(free_gpus=0, needed_gpus=1, total_gpus=3)


def test_most_tasks_go_before_least_cost() -> None:
    """The one GPU where the small task's data is goes to the task that fits no other."""
    stage = bench()
    stage.node("big", "r", 80)
    stage.node("small", "s", 10)
    stage.data("d", GB, "big")
    stage.apply(
        submitted("any", [Task(reads=("d",))]),
        submitted("needy", [Task(demand=Demand(gpus=1, gpu_memory_bytes=40 * GB))]),
    )
    assert stage.where() == {"any/0": "small", "needy/0": "big"}


def test_jobs_of_a_queue_share_its_ceiling_by_cost_alone() -> None:
    stage = bench()
    stage.queue("small", max_gpus=2)
    stage.node("near", "r", 10, 10, 10, 10)
    stage.node("away", "s")
    stage.data("here", GB, "near")
    stage.data("there", GB, "away")
    stage.apply(
        submitted("one", [Task(reads=("there",))] * 2, queue="small"),
        submitted("two", [Task(reads=("here",))], queue="small"),
        submitted("free", 1),
    )
    assert [stage.running(j) for j in ("one", "two", "free")] == [[0], [0], [0]]
    assert stage.reason("one") == QueueLimit(queue="small", used_gpus=2, max_gpus=2)
    stage.finish("two", 0)
    assert stage.running("one") == [0, 1]


class Compared:
    """Decides as `fs` does, and checks that `fsu` would place no fewer, and as many no dearer."""

    name = "fs"

    def __init__(self) -> None:
        self._fs, self._fsu = FlowSharing(), UnfairFlow()
        self.refuses = self._fs.refuses

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        plan = self._fs.decide(snapshot, rng)
        count, cost = priced(snapshot, plan)
        most, least = priced(snapshot, self._fsu.decide(snapshot, rng))
        assert most >= count
        if most == count:
            assert least <= cost + 1e-4  # microseconds that break ties
        return plan


@settings(max_examples=60)
@given(workloads(Compared()), st.randoms(use_true_random=False))
def test_it_places_no_fewer_tasks_than_fs_and_as_many_no_dearer(
    stage: Bench, order: Random
) -> None:
    while stage.runs:
        stage.finish(*order.choice(sorted(stage.runs)))
