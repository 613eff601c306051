"""Waits of large jobs and completion times, by patience, where run times have heavy tails.

    python bench/patience.py [--policy easy-backfill] [--seeds 2] [--jobs 800] [--load 0.8]
                             [--patience 3600 86400 259200 1e9]

A seeded stream of jobs on 1 to 64 GPUs arrives at 8 nodes of 8 GPUs. Run times are lognormal with a
median of 93 s, 90 % below 42 min, at most 6.5 days; nothing is declared, there are no time limits,
and a class of jobs has all run times alike. One row per policy and patience, means of the seeds, on
stdout as JSON: waits of jobs of 64 GPUs in the mean and of 16 GPUs or more at the 99 % quantile,
completion times in the mean, in hours; how many units hardened. `fifo` and, with exact times,
`easy-backfill` are compared with.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from headgate.app import POLICIES
from headgate.model import Gpu, Node, Queue
from headgate.ports import make_policy
from headgate.sim.run import Simulation, run
from headgate.spec import Links
from headgate.testing.heavy_tails import heavy_tailed

NODES, NODE_GPUS = 8, 8
NEVER = 1e9
_LINKS = Links(disk_bytes_per_s=1, node_link_bytes_per_s=1, rack_uplink_bytes_per_s=1)


def figures(policy: str, seed: int, jobs: int, load: float, **more: Any) -> dict[str, float]:
    """Return the figures of one simulation."""
    exact = more.pop("exact", False)
    arriving = heavy_tailed(seed, jobs, load, nodes=NODES, node_gpus=NODE_GPUS)
    if exact:
        arriving = [(at, replace(job, estimated_s=job.tasks[0].compute_s)) for at, job in arriving]
    nodes = [
        Node(id=f"n{n}", rack="r", gpus=(Gpu(memory_bytes=0),) * NODE_GPUS) for n in range(NODES)
    ]
    outcome = run(
        Simulation(
            nodes=tuple(nodes),
            links=_LINKS,
            queues=(Queue(name="q"),),
            submissions=tuple(arriving),
        ),
        make_policy(POLICIES, policy, more),
    )
    gpus = np.array([sum(task.demand.gpus for task in job.tasks) for _, job in arriving])
    wait_s = outcome.jobs.started_at - outcome.jobs.submitted_at
    jct_s = outcome.jobs.ended_at - outcome.jobs.submitted_at
    return {
        "mean_wait_64_h": float(wait_s[gpus == 64].mean()) / 3600,
        "p99_wait_16_h": float(np.quantile(wait_s[gpus >= 16], 0.99)) / 3600,
        "mean_jct_h": float(jct_s.mean()) / 3600,
        "hardened": outcome.figures["reservations"]["hardened"],
    }


def rows(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row for each policy and patience."""
    variants: list[tuple[str, dict[str, Any]]] = [
        ("fifo", {}),
        ("easy-backfill", {"exact": True, "patience": NEVER}),
        *((name, {"patience": p}) for name in arguments.policy for p in arguments.patience),
    ]
    for name, more in variants:
        each = [
            figures(name, seed, arguments.jobs, arguments.load, **more)
            for seed in range(1, arguments.seeds + 1)
        ]
        means = {key: round(statistics.fmean(one[key] for one in each), 2) for key in each[0]}
        yield {"policy": name, **more, **means}


def main() -> None:
    """Print a row at a time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--policy", nargs="+", default=["easy-backfill"])
    parser.add_argument("--patience", nargs="+", type=float, default=[3600, 86400, 259200, NEVER])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=800)
    parser.add_argument("--load", type=float, default=0.8)
    for row in rows(parser.parse_args()):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
