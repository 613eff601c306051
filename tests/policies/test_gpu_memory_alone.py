"""Tasks on the memory of GPUs alone, which hold no share, under every policy.

They count for no share, but wait, start and are overtaken as others on parts of GPUs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.app import POLICIES
from headgate.base.rng import Random
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.ports import Policy, make_policy
from headgate.protocol import Plan, Reason
from headgate.sim.run import Outcome, Simulation, run
from headgate.spec import Links
from headgate.state import Snapshot

GIB = 2**30
LARGE_AT = 21.0
UNBOUNDED = {"srtf", "fsu"}  # they neither reserve, nor keep places, nor have a line
IN_ORDER = {"fifo", "fair-order", "new-capacity"}  # nothing comes before the first that waits


def of_memory(gib: int, **more: int) -> Demand:
    return Demand(gpus=1, gpu_milli=0, gpu_memory_bytes=gib * GIB, **more)


def job(name: str, *demands: Demand, run_s: float, known: bool = True, gang: bool = True) -> Job:
    """Return a job of a user of its own."""
    tasks = tuple(Task(demand=demand, compute_s=run_s) for demand in demands)
    return Job(
        id=name, name=name, user=name, queue="q", tasks=tasks, gang=gang and len(tasks) > 1,
        estimated_s=run_s if known else None,
    )  # fmt: skip


def simulated(policy: Policy, *jobs: tuple[float, Job], gpus: tuple[int, ...] = (1, 1)) -> Outcome:
    """Run jobs, submitted at some times, on nodes of so many GPUs of 16 GiB."""
    return run(
        Simulation(
            nodes=tuple(
                Node(id=f"n{n}", rack="r", gpus=(Gpu(memory_bytes=16 * GIB),) * count, cpus=16)
                for n, count in enumerate(gpus)
            ),
            links=Links(disk_bytes_per_s=1, node_link_bytes_per_s=1, rack_uplink_bytes_per_s=1),
            queues=(Queue(name="q"),),
            submissions=tuple(sorted(jobs, key=lambda each: each[0])),
        ),
        policy,
    )


def waits_s(name: str, *jobs: tuple[float, Job], gpus: tuple[int, ...] = (1, 1)) -> list[float]:
    """Return for how long each job waits under a policy, in the order given."""
    outcome = simulated(make_policy(POLICIES, name), *jobs, gpus=gpus)
    at = outcome.jobs.submitted_at
    order = sorted(range(len(jobs)), key=lambda n: jobs[n][0])
    waits = dict(zip(order, (outcome.jobs.started_at - at).tolist(), strict=True))
    return [waits[n] for n in range(len(jobs))]


@pytest.mark.parametrize("known", [True, False], ids=["exact", "learnt"])
@pytest.mark.parametrize("tasks", [1, 2], ids=["a task", "a gang"])
@pytest.mark.parametrize("name", [name for name in POLICIES if name not in UNBOUNDED])
def test_unit_starts_within_two_minutes_while_a_stream_of_small_tasks_takes_the_memory(
    name: str, tasks: int, known: bool
) -> None:
    """At the default patience; the small ones hold three eighths of a GPU, it needs most of it."""
    large = job("large", *[of_memory(12)] * tasks, run_s=10.0, known=known)
    small = [(5.0 * n, job(f"s{n}", of_memory(6), run_s=20.0, known=known)) for n in range(60)]
    apart = replace(large, distinct_nodes=tasks > 1)
    assert waits_s(name, (LARGE_AT, apart), *small)[0] <= 120.0


class _Watched(Policy):
    """Another policy, and whether it ever reserves for a job."""

    def __init__(self, policy: Policy) -> None:
        self.name, self._policy = policy.name, policy
        self.reserved: set[str] = set()

    def refuses(self, job: Job) -> Reason | None:
        return self._policy.refuses(job)

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        plan = self._policy.decide(snapshot, rng)
        self.reserved |= {snapshot.job(each.job).id for each in plan.reservations}
        return plan


@pytest.mark.parametrize(
    "name", ["headgate", *(name for name in POLICIES if name.endswith("backfill"))]
)
def test_gang_gets_a_reservation(name: str) -> None:
    gang = job("gang", *[of_memory(12)] * 2, run_s=10.0)
    small = [(5.0 * n, job(f"s{n}", of_memory(6), run_s=20.0)) for n in range(20)]
    policy = _Watched(make_policy(POLICIES, name))
    simulated(policy, (LARGE_AT, gang), *small)
    assert "gang" in policy.reserved


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("gang", [False, True], ids=["tasks", "a gang"])
def test_memory_is_used_of_gpus_of_which_no_share_is_left(name: str, gang: bool) -> None:
    half = Demand(gpus=1, gpu_milli=500, gpu_memory_bytes=GIB)
    halves = [(0.0, job(f"half-{n}", half, run_s=100.0)) for n in range(4)]
    rest = job("rest", *[of_memory(7)] * 4, run_s=10.0, gang=gang)
    assert waits_s(name, *halves, (1.0, rest))[-1] == 0.0


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in IN_ORDER])
def test_all_tasks_of_a_job_start_where_their_memory_is_free(name: str) -> None:
    """Beside one on a whole GPU, which waits."""
    policy = make_policy(POLICIES, name)
    one, small = job("one", Demand(gpus=1), run_s=100.0), job("small", of_memory(1), run_s=200.0)
    mixed = job("mixed", Demand(gpus=1), *[of_memory(3)] * 4, run_s=10.0, gang=False)
    outcome = simulated(policy, (0.0, one), (1.0, small), (2.0, mixed))
    assert outcome.jobs.started_at.tolist()[-1] == 2.0
    assert outcome.jobs.ended_at.tolist()[-1] <= 111.0


@pytest.mark.parametrize("name", ["srtf", "least-attained-service"])
@pytest.mark.parametrize("milli", [0, 300])
def test_part_starts_beside_another_where_all_gpus_are_held_in_part(name: str, milli: int) -> None:
    part = Demand(gpus=1, gpu_milli=milli, gpu_memory_bytes=4 * GIB)
    jobs = [(float(n), job(f"p{n}", part, run_s=100.0)) for n in range(3)]
    assert waits_s(name, *jobs, gpus=(1,)) == [0.0] * 3
