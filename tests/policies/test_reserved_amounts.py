"""A gang that needs CPUs or memory starts in bounded time under every policy that reserves."""

from __future__ import annotations

import pytest
from tests.policies.declared import declared_job

from headgate.app import POLICIES
from headgate.model import Demand, Gpu, Node, Queue
from headgate.ports import make_policy
from headgate.sim.run import Simulation, run
from headgate.spec import Links

GIB = 2**30
RESERVING = [
    "headgate", "easy-backfill", "conservative-backfill",
    "fair-easy-backfill", "fair-conservative-backfill",
]  # fmt: skip


@pytest.mark.parametrize("name", RESERVING)
@pytest.mark.parametrize(
    "needs",
    [{"memory_bytes": (48 * GIB, 24 * GIB)}, {"cpus_milli": (12_000, 6_000)}],
    ids=["memory", "cpus"],
)
def test_gang_that_needs_more_than_gpus_starts_despite_a_stream_of_small_tasks(
    name: str, needs: dict[str, tuple[int, int]]
) -> None:
    """The stream leaves GPUs free, but never enough of the rest; all run times are declared."""
    ((kind, (of_gang, of_small)),) = needs.items()
    gang = Demand(gpus=2, **{kind: of_gang})
    small = Demand(gpus=1, **{kind: of_small})
    jobs = [(12.0, declared_job("gang", [gang] * 2, 10.0))]
    jobs += [(5.0 * n, declared_job(f"small-{n}", [small], 20.0)) for n in range(100)]
    outcome = run(
        Simulation(
            nodes=tuple(
                Node(
                    id=f"n{n}",
                    rack="r",
                    gpus=(Gpu(memory_bytes=GIB),) * 4,
                    memory_bytes=64 * GIB,
                    cpus=16,
                )
                for n in range(2)
            ),
            links=Links(disk_bytes_per_s=1, node_link_bytes_per_s=1, rack_uplink_bytes_per_s=1),
            queues=(Queue(name="q"),),
            submissions=tuple(sorted(jobs, key=lambda each: each[0])),
        ),
        make_policy(POLICIES, name),
    )
    waited_s = outcome.jobs.started_at - outcome.jobs.submitted_at
    assert waited_s[outcome.jobs.submitted_at == 12.0] <= 30.0
