"""Time of decisions with elastic jobs: 50 of them fill 1,600 GPUs, and small gangs come and go.

    python bench/elastic_decisions.py [--policy fifo headgate ...] [--nodes 200]

Each elastic job has 4 to 64 units of a GPU; they belong to 10 users, and start one per second. Then
100 gangs of 4 GPUs arrive, one per second, each for 50 s: surplus leaves for each. `rigid` is the
same with elastic jobs that never have surplus, so that the rounds are those of the policy alone;
`over_rigid` is the ratio of the means in the same run. Times are CPU time of a whole round. The
output is one JSON object on stdout.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from typing import Any, ClassVar

from headgate.app import POLICIES
from headgate.engine import Engine, drive
from headgate.model import Demand, Elastic, Gpu, Job, Node, Queue, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.ports import make_policy
from headgate.protocol import Decide, Event, JobSubmitted, NodeJoined, QueueChanged
from headgate.sim.world import SimulatedWorld
from headgate.state import Snapshot

GPUS_PER_NODE, LEAST, MOST, WORK_S = 8, 4, 64, 3000.0
GANGS, GANG_GPUS, GANG_S = 100, 4, 50.0
NO_LIMITS = dict.fromkeys(
    (
        "disk_bytes_per_s",
        "node_link_bytes_per_s",
        "rack_uplink_bytes_per_s",
        "aggregation_bytes_per_s",
    )
)
ONE_GPU = Demand(gpus=1)


def facts(nodes: int, most: int) -> Iterator[Event]:
    """Yield the cluster and its jobs."""
    yield QueueChanged(at=0.0, queue=Queue(name="default"))
    gpus = (Gpu(memory_bytes=0),) * GPUS_PER_NODE
    for n in range(nodes):
        yield NodeJoined(at=0.0, node=Node(id=f"n{n}", rack=f"r{n // 20}", gpus=gpus, cpus=64))
    for n in range(nodes // 4):
        task = Task(demand=ONE_GPU, compute_s=WORK_S / LEAST)
        units = Elastic(minimum=LEAST, work_s=WORK_S)
        job = Job(
            id=f"e{n}",
            name="e",
            user=f"u{n % 10}",
            queue="default",
            tasks=(task,) * most,
            elastic=units,
        )
        yield JobSubmitted(at=float(n), job=job)
    for n in range(GANGS):
        task = Task(demand=ONE_GPU, compute_s=GANG_S)
        gang = (task,) * GANG_GPUS
        job = Job(id=f"g{n}", name="g", user=f"v{n % 5}", queue="default", tasks=gang, gang=True)
        yield JobSubmitted(at=60.0 + n, job=job)


class TimedWorld(SimulatedWorld):
    """A world whose rounds are timed."""

    took_ms: ClassVar[list[float]]

    def _decide(self, command: Decide, snapshot: Snapshot) -> None:
        started_s = time.process_time()
        super()._decide(command, snapshot)
        self.took_ms.append(1e3 * (time.process_time() - started_s))


def rounds_ms(policy: str, nodes: int, most: int) -> list[float]:
    """Return the milliseconds that each round took."""
    TimedWorld.took_ms = []
    world = TimedWorld(
        facts(nodes, most),
        network=FluidNetwork({}, **NO_LIMITS),
        policy=make_policy(POLICIES, policy),
    )
    drive(Engine(), world)
    return TimedWorld.took_ms


def measure(policy: str, nodes: int) -> dict[str, Any]:
    """Return the row of one policy."""
    rigid_ms = rounds_ms(policy, nodes, LEAST)
    took_ms = rounds_ms(policy, nodes, MOST)
    mean_ms, rigid_mean_ms = statistics.mean(took_ms), statistics.mean(rigid_ms)
    return {
        "policy": policy,
        "rounds": len(took_ms),
        "mean_ms": round(mean_ms, 1),
        "max_ms": round(max(took_ms), 1),
        "rigid_mean_ms": round(rigid_mean_ms, 2),
        "over_rigid": round(mean_ms / rigid_mean_ms, 1),
    }


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--policy", nargs="+", default=["fifo", "headgate", "new-capacity"])
    parser.add_argument("--nodes", type=int, default=200)
    given = parser.parse_args()
    rows = [measure(policy, given.nodes) for policy in given.policy]
    print(json.dumps({"nodes": given.nodes, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
