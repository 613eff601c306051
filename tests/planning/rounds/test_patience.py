"""No unit waits without bound, whatever estimates say: units that are overtaken harden, and start.

Streams that never end while a unit waits; run times with heavy tails; declared times that are wrong
by a factor of 1,000.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from headgate.app import POLICIES
from headgate.base.rng import Random
from headgate.base.rng import stream as stream_of
from headgate.engine import Engine, drive
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.planning.rounds.decide import decided
from headgate.ports import make_policy
from headgate.protocol import (
    Command,
    Event,
    Hardened,
    JobCancelled,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    PlanAdmitted,
    QueueChanged,
)
from headgate.sim.world import SimulatedWorld
from headgate.state import Snapshot
from headgate.state.check import check

GIB = 2**30
HARDENING = [
    name for name, info in POLICIES.items() if "patience" in {p.name for p in info.parameters}
]
SMALL_S = 40.0
GPUS = (Gpu(memory_bytes=GIB),) * 4


def job(name: str, *demands: Demand, run_s: float = 10.0, estimated_s: float | None = None) -> Job:
    tasks = tuple(Task(demand=demand, compute_s=run_s) for demand in demands)
    return Job(
        id=name, name=name, user=name, queue="q", tasks=tasks, gang=len(tasks) > 1,
        estimated_s=estimated_s,
    )  # fmt: skip


def node(name: str, **more: Any) -> Node:
    fields = {"gpus": GPUS, "memory_bytes": 64 * GIB, "cpus": 16, **more}
    return Node(id=name, rack="r", **fields)


class Watch:
    """Sees when jobs start and harden, and that nothing else starts where places are kept."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.started_at: dict[str, float] = {}
        self.hardened: dict[str, float] = {}
        self.seen: dict[str, Snapshot] = {}  # when they hardened
        self._kept: Hardened | None = None

    def __call__(self, batch: Sequence[Event], commands: Sequence[Command]) -> None:
        check(self.engine.state)
        for event in batch:
            if isinstance(event, PlanAdmitted):
                self._check_starts(event)
                for start in event.starts:
                    self.started_at.setdefault(start.run.job, event.at)
        kept = self.engine.state.hardened
        if kept is not None:
            self.hardened.setdefault(kept.job, batch[0].at)
            self.seen.setdefault(kept.job, self.engine.state.freeze())
        self._kept = kept

    def _check_starts(self, event: PlanAdmitted) -> None:
        if self._kept is None:
            return
        places = {(node, gpu) for _, node, gpus in self._kept.places for gpu in gpus}
        for start in event.starts:
            used = {(start.node, gpu) for gpu in start.gpus}
            assert start.run.job == self._kept.job or not used & places


def watched(
    facts: list[Event],
    name: str,
    *,
    nodes: int = 2,
    seed: int = 0,
    gpus: tuple[Gpu, ...] = GPUS,
    **parameters: float,
) -> Watch:
    """Let facts happen on some nodes under a policy; return what was seen."""
    watch = Watch()
    before: list[Event] = [
        QueueChanged(at=0.0, queue=Queue(name="q")),
        *(NodeJoined(at=0.0, node=node(f"n{number}", gpus=gpus)) for number in range(nodes)),
    ]
    world = SimulatedWorld(
        [*before, *sorted(facts, key=lambda fact: fact.at)],
        network=FluidNetwork(
            {},
            disk_bytes_per_s=1e9,
            node_link_bytes_per_s=1e9,
            rack_uplink_bytes_per_s=1e9,
            aggregation_bytes_per_s=1e9,
        ),
        policy=make_policy(POLICIES, name, parameters),
        seed=seed,
    )
    drive(watch.engine, world, observe=(watch,))
    return watch


def stream(estimated_s: float | None, count: int = 60, every_s: float = 5.0) -> list[Event]:
    """Return small jobs that always leave GPUs free, but never enough of them."""
    return [
        JobSubmitted(
            at=every_s * number,
            job=job(f"s{number}", Demand(gpus=1), run_s=SMALL_S - 2, estimated_s=estimated_s),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("name", HARDENING)
@pytest.mark.parametrize(
    "estimated_s", [None, 0.04, 40_000.0], ids=["unknown", "a thousandth", "thousandfold"]
)
def test_gang_starts_while_an_endless_stream_of_small_jobs_leaves_too_few_gpus(
    name: str, estimated_s: float | None
) -> None:
    """Whatever is known of the small jobs."""
    gang = job("gang", *[Demand(gpus=4)] * 2, estimated_s=10.0)
    facts = [JobSubmitted(at=21.0, job=gang), *stream(estimated_s)]
    watch = watched(facts, name, patience=100.0)
    assert watch.started_at["gang"] <= 21.0 + 15.0 + 100.0 + SMALL_S
    if "gang" in watch.hardened:
        assert watch.started_at["gang"] <= watch.hardened["gang"] + SMALL_S


@pytest.mark.parametrize("name", HARDENING)
@pytest.mark.parametrize("gib", [0, 48])
def test_short_gang_starts_within_two_minutes_where_times_are_known(name: str, gib: int) -> None:
    """At the default patience: two nodes of 4 GPUs and 64 GiB, small tasks of 20 s on one GPU."""
    gang = job("gang", *[Demand(gpus=2, memory_bytes=gib * GIB)] * 2, estimated_s=10.0)
    if not gib:
        gang = job("gang", *[Demand(gpus=4)] * 2, estimated_s=10.0)
    demand = Demand(gpus=1, memory_bytes=gib // 2 * GIB)
    small = [
        JobSubmitted(at=2.5 * n, job=job(f"s{n}", demand, run_s=20.0, estimated_s=20.0))
        for n in range(120)
    ]
    watch = watched([JobSubmitted(at=21.0, job=gang), *small], name)
    assert watch.started_at["gang"] <= 21.0 + 120.0


@pytest.mark.parametrize("name", HARDENING)
def test_gang_that_needs_memory_starts_though_tasks_without_gpus_take_it(name: str) -> None:
    gang = job("gang", *[Demand(gpus=2, memory_bytes=48 * GIB)] * 2, estimated_s=10.0)
    demand = Demand(cpus_milli=1000, memory_bytes=24 * GIB)
    small = [
        JobSubmitted(at=5.0 * n, job=job(f"s{n}", demand, run_s=20.0, estimated_s=20.0))
        for n in range(60)
    ]
    watch = watched([JobSubmitted(at=21.0, job=gang), *small], name)
    assert watch.started_at["gang"] <= 21.0 + 120.0


@pytest.mark.parametrize("name", HARDENING)
@pytest.mark.parametrize("milli", [500, 0], ids=["shares", "memory alone"])
def test_gang_of_which_two_tasks_share_each_gpu_starts_within_two_minutes(
    name: str, milli: int
) -> None:
    """Two nodes of a GPU each, small tasks that always leave too little of both; times learnt."""
    gib = 0 if milli else 5
    half = Demand(gpus=1, gpu_milli=milli, gpu_memory_bytes=gib * GIB)
    part = Demand(gpus=1, gpu_milli=milli and 400, gpu_memory_bytes=gib and 4 * GIB)
    small = [JobSubmitted(at=5.0 * n, job=job(f"s{n}", part, run_s=20.0)) for n in range(60)]
    gang = JobSubmitted(at=21.0, job=job("gang", *[half] * 4))
    watch = watched([gang, *small], name, gpus=(Gpu(memory_bytes=10 * GIB),))
    assert watch.started_at["gang"] <= 21.0 + 120.0


@pytest.mark.parametrize("name", HARDENING)
@pytest.mark.parametrize("tasks", [1, 2], ids=["a task", "a gang"])
def test_tasks_without_gpus_start_while_an_endless_stream_leaves_too_few_cpus(
    name: str, tasks: int
) -> None:
    """On a cluster without GPUs, and on one with."""
    large = job("large", *[Demand(cpus_milli=12_000)] * tasks, estimated_s=10.0)
    small = [
        JobSubmitted(
            at=5.0 * n, job=job(f"s{n}", Demand(cpus_milli=4000), run_s=38.0, estimated_s=38.0)
        )
        for n in range(60)
    ]
    for gpus in ((), GPUS):
        watch = watched([JobSubmitted(at=41.0, job=large), *small], name, gpus=gpus)
        if name != "new-capacity":  # there nothing of the same queue overtakes it
            assert "large" in watch.hardened
        assert watch.started_at["large"] <= 41.0 + 60.0 + 2 * SMALL_S


@pytest.mark.parametrize("seed", range(12))
def test_units_start_in_bounded_time_where_run_times_have_heavy_tails(seed: int) -> None:
    """Declared times are wrong by up to 1,000 times; the k-th unit waits for k longest runs."""
    rng = Random(seed)
    name = HARDENING[seed % len(HARDENING)]
    facts: list[Event] = []
    longest_s = 0.0
    for number in range(70):
        run_s = min(400.0, rng.paretovariate(1.1))
        longest_s = max(longest_s, run_s)
        wrong = rng.choice((None, 1e-3, 1.0, 1e3))
        gpus = rng.choice((1, 1, 1, 2, 4))
        demands = [Demand(gpus=gpus, memory_bytes=rng.choice((0, 8, 24)) * GIB)]
        demands *= rng.choice((1, 1, 1, 2))
        estimated_s = None if wrong is None else run_s * wrong
        one = job(f"j{number}", *demands, run_s=run_s, estimated_s=estimated_s)
        facts.append(JobSubmitted(at=rng.uniform(0.0, 400.0), job=one))
    watch = watched(facts, name, patience=100.0)
    assert len(watch.started_at) == 70
    order = sorted(watch.hardened.values())
    for hardened, at in watch.hardened.items():
        before = sum(other <= at for other in order)
        assert watch.started_at[hardened] <= at + before * longest_s + 1.0, hardened


@pytest.mark.parametrize("name", HARDENING)
def test_units_on_gpus_wait_for_them_on_a_cluster_that_has_none(name: str) -> None:
    """Tasks without GPUs overtake them there, and no places exist for them."""
    cpu = Demand(cpus_milli=1000)
    facts: list[Event] = [
        JobSubmitted(at=0.0, job=job("waits", Demand(gpus=1, cpus_milli=1000))),
        *(JobSubmitted(at=1.0 + n, job=job(f"s{n}", cpu, run_s=5.0)) for n in range(5)),
        NodeLost(at=100.0, node="n1"),
        NodeJoined(at=200.0, node=node("n2")),
    ]
    watch = watched(facts, name, nodes=2, gpus=())
    assert len(watch.started_at) == 6
    assert watch.started_at["waits"] >= 200.0


@pytest.mark.parametrize("name", HARDENING)
def test_members_of_a_gang_on_distinct_nodes_harden_and_share_none(name: str) -> None:
    """The one without GPUs has no place that is kept; it starts on another node."""
    demands = (Demand(gpus=4), Demand(gpus=4), Demand(cpus_milli=1000))
    apart = replace(job("gang", *demands, estimated_s=10.0), distinct_nodes=True)
    facts: list[Event] = [NodeJoined(at=0.0, node=node("n2", gpus=()))]
    facts += [JobSubmitted(at=21.0, job=apart), *stream(None)]
    watch = watched(facts, name, patience=100.0)
    assert watch.started_at["gang"] <= 21.0 + 15.0 + 100.0 + SMALL_S


def test_places_end_with_the_loss_of_their_node_and_are_chosen_again() -> None:
    gang = job("gang", *[Demand(gpus=4)] * 2, estimated_s=10.0)
    facts: list[Event] = [JobSubmitted(at=21.0, job=gang), *stream(None)]
    facts += [NodeLost(at=90.0, node="n0"), NodeJoined(at=95.0, node=node("n2"))]
    watch = watched(facts, "easy-backfill", nodes=2)
    assert watch.engine.state.hardened is None
    assert watch.started_at["gang"] <= 95.0 + 3 * SMALL_S


def test_places_are_kept_no_longer_for_a_job_that_is_cancelled() -> None:
    gang = job("gang", *[Demand(gpus=4)] * 2, estimated_s=10.0)
    cancel = JobCancelled(at=90.0, job="gang", by="ada")
    watch = watched([JobSubmitted(at=21.0, job=gang), *stream(None), cancel], "fair-easy-backfill")
    assert "gang" in watch.hardened
    assert watch.engine.state.hardened is None
    assert len(watch.started_at) == 60


def test_unit_that_nothing_overtakes_does_not_harden() -> None:
    facts = [JobSubmitted(at=0.0, job=job(f"g{n}", Demand(gpus=4), Demand(gpus=4), run_s=200.0))
             for n in range(4)]  # fmt: skip
    watch = watched(facts, "conservative-backfill", patience=0.0)
    assert watch.hardened == {}


def test_places_end_with_the_policy_by_whose_rules_the_unit_hardened() -> None:
    gang = job("gang", *[Demand(gpus=4)] * 2, estimated_s=10.0)
    watch = watched([JobSubmitted(at=21.0, job=gang), *stream(None)], "fair-easy-backfill")
    kept = watch.seen["gang"]
    for name in ("fair-easy-backfill", "easy-backfill", "fifo"):
        plan = decided(make_policy(POLICIES, name), kept, stream_of(0, "test"))
        same = plan.hardened == kept.hardened
        assert same is (name == "fair-easy-backfill"), name


def test_no_unit_hardens_that_can_rely_on_its_reservation() -> None:
    """Long runs are known to end; small jobs run before that on what a gang waits for."""
    facts: list[Event] = [
        JobSubmitted(at=0.0, job=job("long", Demand(gpus=2), run_s=2000.0, estimated_s=2000.0)),
        JobSubmitted(at=1.0, job=job("gang", *[Demand(gpus=4)] * 2, estimated_s=10.0)),
        *stream(SMALL_S - 2),
    ]
    for name in ("easy-backfill", "conservative-backfill", "fair-easy-backfill", "headgate"):
        watch = watched(facts, name)
        assert watch.hardened == {}, name
        assert watch.started_at["gang"] == 2000.0
        assert max(watch.started_at[f"s{number}"] for number in range(60)) <= 400.0
