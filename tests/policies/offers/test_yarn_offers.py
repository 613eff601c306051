"""Capacity and fair by hand: the order of offers, the GPU that a job takes, reasons for waiting."""

from __future__ import annotations

from random import Random

import pytest

from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Shard, Task
from headgate.policies.offers.yarn import Capacity, Fair
from headgate.ports import Policy
from headgate.protocol import Reason
from headgate.protocol.reasons import (
    BehindHead,
    GpuMemory,
    NoFreeGpu,
    NothingFits,
    QueueLimit,
    Shortage,
)
from headgate.state import State, check

GB = 10**9
BOTH = pytest.mark.parametrize("policy", [Capacity(), Fair()], ids=lambda p: p.name)


def task(*reads: str, memory: int = 0, gpus: int = 1) -> Task:
    return Task(reads=reads, demand=Demand.of(gpu_memory_bytes=memory, gpus=gpus))


class World:
    """A state to place tasks in."""

    def __init__(self, **nodes: tuple[int, ...]) -> None:
        """Add nodes in one rack, by name the memory of each GPU in bytes."""
        self.state = State()
        self.state.set_queue(Queue(name="default"))
        for name, memory in nodes.items():
            self.node(name, "r", *memory)

    def node(self, name: str, rack: str, *memory: int) -> None:
        gpus = tuple(Gpu(memory_bytes=m) for m in memory)
        self.state.add_node(Node(id=name, rack=rack, gpus=gpus, cpus=2))

    def queue(self, name: str, weight: float = 1.0, max_gpus: int | None = None) -> None:
        self.state.set_queue(Queue(name=name, weight=weight, max_gpus=max_gpus))

    def data(self, shard: str, size_bytes: int, *nodes: str) -> None:
        row = self.state.shard(Shard(id=shard, size_bytes=size_bytes))
        for node in nodes:
            self.state.add_replica(row, self.state.names.node_rows[node])

    def job(
        self,
        name: str,
        tasks: int | list[Task],
        *,
        user: str = "ada",
        queue: str = "default",
        priority: int = 0,
        gang: bool = False,
    ) -> None:
        many = (Task(),) * tasks if isinstance(tasks, int) else tuple(tasks)
        row = self.state.add_job(
            Job(
                id=name,
                name=name,
                user=user,
                queue=queue,
                tasks=many,
                priority=priority,
                gang=gang,
            )
        )
        activate(self.state, row)

    def round(self, policy: Policy) -> list[str]:
        """Decide, launch the placements, and return them in order as `job/task@node`."""
        plan = policy.decide(self.state.freeze(), Random(0))
        placed = []
        for p in plan.starts:
            self.state.launch(p.task, p.node, p.gpus, attempt=1)
            name = f"{self.state.job(self.state.tasks.job[p.task]).id}/{self.state.ordinal(p.task)}"
            placed.append(f"{name}@{self.state.node(p.node).id}")
        check(self.state)
        self.reasons: dict[str, Reason] = {}
        for refusal in plan.refusals:
            for job in refusal.jobs:
                self.reasons.setdefault(self.state.job(job).id, refusal.reason)
        return placed

    def counts(self, policy: Policy) -> dict[str, int]:
        """Decide, launch, and return how many tasks each job got."""
        names = [placed.split("/")[0] for placed in self.round(policy)]
        return {name: names.count(name) for name in dict.fromkeys(names)}


# -------------------------------------------------------------------------------- order of offers


@BOTH
def test_users_share_evenly_whatever_their_number_of_jobs(policy: Policy) -> None:
    world = World(n=(1,) * 7)
    for number in range(4):
        world.job(f"ada-{number}", 5)
    world.job("bob", 9, user="bob")
    world.job("cyd", 1, user="cyd")
    got = world.counts(policy)
    assert (got["bob"], got["cyd"]) == (3, 1)
    assert sum(n for job, n in got.items() if job.startswith("ada")) == 3


def test_capacity_serves_a_users_jobs_by_arrival_and_fair_evenly() -> None:
    got = {}
    for policy in (Capacity(), Fair()):
        world = World(n=(1,) * 6)
        for name in ("first", "second", "third"):
            world.job(name, 4)
        got[policy.name] = world.counts(policy)
    assert got == {
        "capacity": {"first": 4, "second": 2},
        "fair": {"first": 2, "second": 2, "third": 2},
    }


def test_fair_counts_gpus_that_a_job_holds_already() -> None:
    world = World(n=(1,) * 3)
    world.job("early", 9)
    assert world.counts(Fair()) == {"early": 3}
    world.node("more", "r", *(1,) * 4)
    world.job("late", 9)
    assert world.counts(Fair()) == {"late": 3, "early": 1}


@BOTH
def test_user_who_holds_fewer_gpus_is_offered_the_free_ones(policy: Policy) -> None:
    world = World(n=(1,) * 4)
    world.job("ada", 9)
    assert world.counts(policy) == {"ada": 4}
    world.node("more", "r", *(1,) * 6)
    world.job("bob", 9, user="bob")
    assert world.counts(policy) == {"bob": 5, "ada": 1}


@BOTH
def test_priority_orders_jobs_of_one_user_only(policy: Policy) -> None:
    world = World(n=(1,) * 4)
    world.job("low", 4)
    world.job("high", 4, priority=5)
    world.job("bob", 4, user="bob")
    assert world.counts(policy) == {"high": 2, "bob": 2}


@BOTH
def test_queues_share_by_weight_up_to_their_ceilings(policy: Policy) -> None:
    world = World(n=(1,) * 9)
    world.queue("heavy", weight=2.0)
    world.queue("small", max_gpus=1)
    world.job("heavy", 9, queue="heavy")
    world.job("light", 9)
    world.job("capped", 9, queue="small")
    assert world.counts(policy) == {"heavy": 5, "light": 3, "capped": 1}
    assert world.reasons["capped"] == QueueLimit(queue="small", used_gpus=1, max_gpus=1)


@BOTH
def test_job_that_no_free_gpu_fits_does_not_block_later_jobs(policy: Policy) -> None:
    world = World(n=(GB, GB), full=(2 * GB,))
    world.job("taker", [task(memory=2 * GB)], user="bob")
    assert world.round(policy) == ["taker/0@full"]
    world.job("large", [task(memory=2 * GB)] * 2)
    world.job("next", 2)
    assert world.counts(policy) == {"next": 2}


# ----------------------------------------------------------------------- the GPU that a job takes


@BOTH
def test_two_jobs_of_two_users_both_read_locally(policy: Policy) -> None:
    world = World(one=(GB,), two=(GB,))
    world.data("d11", GB, "one", "two")
    world.data("d12", GB, "two")
    world.job("job1", [task("d11"), task("d12")])
    world.job("job2", [task("d12")], user="bob")
    assert world.round(policy) == ["job1/0@one", "job2/0@two"]


@BOTH
def test_job_takes_node_local_then_rack_local_then_any_gpu_over_all_its_tasks(
    policy: Policy,
) -> None:
    world = World()
    world.node("far", "s", GB)
    world.node("beside", "r", GB)
    world.node("home", "r")
    world.node("own", "t", GB)
    world.data("homely", GB, "home")
    world.data("owned", GB, "own")
    world.job("job", [task("homely"), task("homely"), task("owned")])
    assert world.round(policy) == ["job/2@own", "job/0@beside", "job/1@far"]


@BOTH
def test_task_takes_a_remote_gpu_rather_than_wait(policy: Policy) -> None:
    world = World(busy=(GB,))
    world.node("far", "s", GB)
    world.data("d", 1000 * GB, "busy")
    world.job("job", [task("d")] * 2)
    assert world.round(policy) == ["job/0@busy", "job/1@far"]


@BOTH
def test_node_with_most_of_the_bytes_is_preferred(policy: Policy) -> None:
    world = World(little=(GB,), much=(GB,))
    world.data("small", GB, "little")
    world.data("large", 2 * GB, "much")
    world.job("job", [task("small", "large")])
    assert world.round(policy) == ["job/0@much"]


@BOTH
def test_smallest_sufficient_gpu_of_the_preferred_nodes_is_taken(policy: Policy) -> None:
    world = World(large=(8 * GB,), small=(2 * GB, GB), other=(GB,))
    world.data("d", GB, "large", "small")
    world.job("job", [task("d", memory=2 * GB)])
    assert world.round(policy) == ["job/0@small"]
    world.job("next", [task("d", memory=2 * GB), task(), task()])
    assert world.round(policy) == ["next/0@large", "next/1@small", "next/2@other"]


@BOTH
def test_tasks_without_a_gpu_run_on_the_node_of_their_data(policy: Policy) -> None:
    world = World(one=(GB,), two=())
    world.data("d", GB, "two")
    world.job("job", [task("d", gpus=0), task()])
    assert world.round(policy) == ["job/0@two", "job/1@one"]


# ---------------------------------------------------------------------------- reasons for waiting


def test_capacity_reports_the_users_first_job_as_the_blocking_one() -> None:
    world = World(n=(GB,))
    for name in ("first", "second", "third"):
        world.job(name, 2)
    world.job("bob", 1, user="bob")
    world.round(Capacity())
    no_gpu = NoFreeGpu(free_gpus=0, needed_gpus=1, total_gpus=1)
    behind = BehindHead(head="first")
    assert world.reasons == {"first": no_gpu, "second": behind, "third": behind, "bob": no_gpu}
    world.job("urgent", 1, priority=1)
    world.round(Capacity())
    assert world.reasons["urgent"] == no_gpu
    assert world.reasons["second"] == no_gpu  # `urgent` goes first, but did not arrive first


@BOTH
def test_each_waiting_job_has_its_reason(policy: Policy) -> None:
    world = World(n=(GB,), big=(8 * GB,))
    world.job("large", [task(memory=8 * GB)] * 2)
    world.job("huge", [task(memory=9 * GB)], user="bob")
    world.job("cpus", [Task(demand=Demand(cpus_milli=3000))], user="cyd")
    world.round(policy)
    assert world.reasons == {
        "large": GpuMemory(needed_bytes=8 * GB, largest_free_bytes=GB),
        "huge": NothingFits(need="a GPU of 8.4 GiB"),
        "cpus": Shortage(resource="cpus", needed=3000, most_free=2000),
    }
    empty = World()
    empty.job("any", 1)
    empty.round(policy)
    assert empty.reasons == {"any": NothingFits(need="a GPU")}


@BOTH
def test_wide_unit_starts_at_the_turn_of_its_job(policy: Policy) -> None:
    world = World(n=(GB,) * 3, m=(GB,) * 3)
    world.job("gang", 2, gang=True, user="bob")
    world.job("wide", [task(gpus=2), task(gpus=2), task(gpus=0)])
    world.job("plain", [task(), task(gpus=0)], user="cyd")
    assert world.round(policy) == [
        *("wide/2@n", "plain/1@m"),
        *("gang/0@n", "gang/1@n", "wide/0@m", "plain/0@n"),
    ]
    short = NoFreeGpu(free_gpus=1, needed_gpus=2, total_gpus=6)
    assert world.reasons == {"wide": short}


@BOTH
def test_wide_units_of_a_queue_stop_at_its_ceiling(policy: Policy) -> None:
    world = World(n=(GB,) * 6)
    world.queue("capped", max_gpus=3)
    world.job("wide", [task(gpus=2), task(gpus=2)], queue="capped")
    world.job("plain", 2, queue="capped", user="bob")
    assert world.round(policy) == ["wide/0@n", "plain/0@n"]
    full = QueueLimit(queue="capped", used_gpus=3, max_gpus=3)
    assert world.reasons == {"wide": full, "plain": full}
