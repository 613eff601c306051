"""A gang on parts of GPUs starts as soon as brute force says, under policies that reserve."""

from __future__ import annotations

import pytest
from tests.planning.place.held_parts import Held
from tests.planning.place.small_cluster import GIB, earliest, unit_of
from tests.policies.declared import declared_job

from headgate.app import POLICIES
from headgate.base.rng import Random
from headgate.model import Demand, Gpu, Job, Node, Queue
from headgate.planning.times.reservations import LATE_S
from headgate.ports import Policy, make_policy
from headgate.protocol import Plan, Reason
from headgate.sim.run import Simulation, run
from headgate.spec import Links
from headgate.state import Snapshot

GANG_AT, GANG_S = 12.0, 10.0


class _Watched(Policy):
    """Another policy, and the first snapshot in which the gang waits."""

    def __init__(self, policy: Policy) -> None:
        self.name, self._policy = policy.name, policy
        self.seen: Snapshot | None = None

    def refuses(self, job: Job) -> Reason | None:
        return self._policy.refuses(job)

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        if self.seen is None and "gang" in snapshot.names.job_rows:
            self.seen = snapshot
        return self._policy.decide(snapshot, rng)


def _simulation(rng: Random, gang: list[Demand], shares: tuple[int, ...]) -> Simulation:
    """Return two nodes of two GPUs each, and a stream of tasks on parts of them."""
    jobs = [(GANG_AT, declared_job("gang", gang, GANG_S))]
    for n in range(30):
        at = rng.uniform(0.0, 11.0) if n < 6 else rng.uniform(13.0, 50.0)
        memory, milli = rng.choice((0, 2, 4)) * GIB, rng.choice(shares)
        small = Demand(gpus=1, gpu_milli=milli, gpu_memory_bytes=memory if milli else 2 * GIB)
        jobs.append((at, declared_job(f"small-{n}", [small], rng.choice((5.0, 20.0, 40.0)))))
    return Simulation(
        nodes=tuple(
            Node(id=f"n{n}", rack="r", gpus=(Gpu(memory_bytes=8 * GIB),) * 2, memory_bytes=GIB)
            for n in range(2)
        ),
        links=Links(disk_bytes_per_s=1, node_link_bytes_per_s=1, rack_uplink_bytes_per_s=1),
        queues=(Queue(name="q"),),
        submissions=tuple(sorted(jobs, key=lambda each: each[0])),
    )


def _started_and_expected(
    name: str, rng: Random, gang: list[Demand], shares: tuple[int, ...]
) -> tuple[float, float]:
    """Return when the gang starts under a policy, and when enough was first known to be free."""
    policy = _Watched(make_policy(POLICIES, name))
    outcome = run(_simulation(rng, gang, shares), policy)
    snapshot = policy.seen
    assert snapshot is not None
    row = snapshot.names.job_rows["gang"]
    assert snapshot.waiting_tasks == len(gang)
    started_at = snapshot.tasks.started_at.array().tolist()
    ends = {
        task: started_at[task] + snapshot.job(snapshot.tasks.job[task]).tasks[0].compute_s
        for task in snapshot.grants.task.array().tolist()
        if task >= 0
    }
    expected = earliest(Held(ends, snapshot), unit_of(snapshot, row), GANG_S, GANG_AT)
    assert expected is not None
    return float(outcome.jobs.started_at[row]), expected


@pytest.mark.parametrize("name", ["easy-backfill", "conservative-backfill", "headgate"])
@pytest.mark.parametrize("seed", range(6))
def test_gang_on_parts_starts_when_enough_of_gpus_is_free(name: str, seed: int) -> None:
    """Despite a stream of small tasks that could always use what is free."""
    rng = Random(seed)
    gang = [Demand(gpus=1, gpu_milli=rng.choice((500, 600)))] * rng.choice((3, 4))
    started_at, expected = _started_and_expected(name, rng, gang, (200, 250, 400, 500))
    assert started_at == pytest.approx(expected)


@pytest.mark.parametrize("name", ["easy-backfill", "conservative-backfill", "headgate"])
@pytest.mark.parametrize("seed", range(16))
def test_gang_on_memory_of_gpus_starts_when_enough_of_it_is_free(name: str, seed: int) -> None:
    """Despite a stream of tasks on parts, some of which hold no share either.

    Under `headgate` units that are to start sooner come before it, and may delay it a little.
    """
    rng = Random(seed)
    gang = [Demand(gpus=1, gpu_milli=0, gpu_memory_bytes=5 * GIB)] * rng.choice((3, 4))
    started_at, expected = _started_and_expected(name, rng, gang, (0, 200, 250, 400, 500))
    late_s = LATE_S if name == "headgate" else 0.0
    assert expected - 0.001 <= started_at <= expected + late_s + 0.001
