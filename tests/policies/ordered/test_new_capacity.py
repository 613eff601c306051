"""`new-capacity`: queues within their guarantees, by what jobs need at least; who may borrow."""

from __future__ import annotations

from collections.abc import Sequence

from tests.policies.laws import OwnPolicy
from tests.small_clusters import NO_LIMITS

from headgate.app import POLICIES
from headgate.engine import Engine, drive
from headgate.model import Demand, Elastic, Gpu, Job, Node, Queue, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.ports import make_policy
from headgate.protocol import JobSubmitted, NodeJoined, QueueChanged
from headgate.protocol.queue_reasons import QueueQuota
from headgate.sim.world import SimulatedWorld

BATCH = Queue(name="batch", guaranteed=(("cpus", 8000),))
DEEP = Queue(name="deep", guaranteed=(("cpus", 4000), ("gpus", 2000)))
OTHER = Queue(name="other")


class TestNewCapacity(OwnPolicy):
    policy = "new-capacity"
    idles_by_choice = True


def job(name: str, queue: str, *, run_s: float = 10.0, count: int = 1, **needs: int) -> Job:
    demand = Demand(
        gpus=needs.get("gpus", 0), cpus_milli=1000 * needs.get("cpus", 0 if "gpus" in needs else 1)
    )
    task = Task(demand=demand, compute_s=run_s)
    return Job(id=name, name=name, user="u", queue=queue, tasks=(task,) * count, gang=count > 1)


def workers(name: str, queue: str, least: int, most: int, work_s: float) -> Job:
    task = Task(demand=Demand(gpus=0, cpus_milli=1000), compute_s=work_s / least)
    units = Elastic(minimum=least, work_s=work_s)
    return Job(id=name, name=name, user="u", queue=queue, tasks=(task,) * most, elastic=units)


def run(*jobs: tuple[float, Job], queues: Sequence[Queue] = (BATCH, DEEP, OTHER)) -> Engine:
    """Run jobs on one node with 12 CPUs and 4 GPUs."""
    engine = Engine()
    node = Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1 << 30),) * 4, cpus=12)
    facts = [
        NodeJoined(at=0.0, node=node),
        *(QueueChanged(at=0.0, queue=queue) for queue in queues),
        *(JobSubmitted(at=at, job=each) for at, each in jobs),
    ]
    world = SimulatedWorld(
        facts,
        network=FluidNetwork({}, **NO_LIMITS),
        policy=make_policy(POLICIES, "new-capacity"),
    )
    drive(engine, world)
    return engine


def started(engine: Engine) -> dict[str, float]:
    state = engine.state
    return {each.id: state.jobs.started_at[row] for row, each in enumerate(state.names.jobs)}


def test_job_with_gpus_waits_for_its_queue_though_gpus_idle() -> None:
    jobs = [(0.0, job(f"g{n}", "deep", gpus=1)) for n in range(4)]
    assert [*started(run(*jobs)).values()] == [0.0, 0.0, 10.0, 10.0]


def test_job_with_more_gpus_than_its_queue_is_guaranteed_borrows() -> None:
    assert started(run((0.0, job("wide", "deep", gpus=1, count=3)))) == {"wide": 0.0}


def test_job_without_gpus_borrows_idle_cpus_until_their_queue_wants_them() -> None:
    small = [(0.0, job(f"c{n}", "batch", cpus=2, run_s=100.0)) for n in range(6)]
    engine = run(*small, (5.0, job("deep", "deep", gpus=1, cpus=3, run_s=10.0)))
    found = started(engine)
    assert [found[f"c{n}"] for n in range(6)] == [0.0] * 6
    assert found["deep"] == 5.0, "what was borrowed is taken back"


def test_queue_without_a_guarantee_is_limited_by_what_is_free_alone() -> None:
    jobs = [(0.0, job(f"g{n}", "other", gpus=1)) for n in range(4)]
    assert {*started(run(*jobs)).values()} == {0.0}


def test_first_job_of_a_queue_that_does_not_fit_blocks_its_queue_alone() -> None:
    found = started(
        run(
            (0.0, job("first", "deep", gpus=2, run_s=10.0)),
            (1.0, job("second", "deep", gpus=2, run_s=10.0)),
            (2.0, job("third", "deep", gpus=1, run_s=10.0)),
            (3.0, job("elsewhere", "other", gpus=1, run_s=10.0)),
        )
    )
    assert found == {"first": 0.0, "second": 10.0, "third": 20.0, "elsewhere": 3.0}


def test_admission_counts_the_minimum_of_elastic_jobs_though_the_queue_looks_full() -> None:
    engine = run(
        (0.0, workers("one", "batch", 2, 20, 80.0)), (1.0, workers("two", "batch", 6, 20, 80.0))
    )
    assert started(engine) == {"one": 0.0, "two": 1.0}


def test_surplus_stays_within_the_guarantee_of_the_queue() -> None:
    engine = run((0.0, workers("one", "batch", 2, 20, 80.0)))
    assert engine.state.jobs.ended_at[0] == 10.0, "8 units, and not 12"


def test_reason_names_the_queue_and_what_it_is_guaranteed() -> None:
    reason = QueueQuota(queue="deep", resource="gpus", used=2000, limit=2000)
    assert str(reason).startswith("QueueQuota(queue deep: 2 of 2 GPUs allocated; ")
