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
import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from headgate.app import POLICIES
from headgate.base.rng import stream
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.ports import make_policy
from headgate.sim.run import Simulation, run
from headgate.spec import Links

NODES, NODE_GPUS = 8, 8
SIZES = (1,) * 60 + (2,) * 12 + (4,) * 10 + (8,) * 10 + (16,) * 4 + (32,) * 2 + (64,) * 2
MEDIAN_S, SIGMA, LONGEST_S = 93.0, 2.57, 6.5 * 86400
NEVER = 1e9
_LINKS = Links(disk_bytes_per_s=1, node_link_bytes_per_s=1, rack_uplink_bytes_per_s=1)


def history(seed: int, jobs: int, load: float) -> list[tuple[float, Job]]:
    """Return jobs with the times at which they arrive; together they need `load` of the GPUs."""
    rng = stream(seed, "heavy tails")
    drawn = [
        (rng.choice(SIZES), min(LONGEST_S, rng.lognormvariate(math.log(MEDIAN_S), SIGMA)))
        for _ in range(jobs)
    ]
    lasts_s = sum(gpus * run_s for gpus, run_s in drawn) / (NODES * NODE_GPUS) / load
    arrivals = sorted(rng.uniform(0.0, lasts_s) for _ in drawn)
    return [
        (at, _job(f"j{number}", rng.choice("abcdefgh"), gpus, run_s))
        for number, (at, (gpus, run_s)) in enumerate(zip(arrivals, drawn, strict=True))
    ]


def _job(name: str, user: str, gpus: int, run_s: float) -> Job:
    count = -(-gpus // NODE_GPUS)
    task = Task(demand=Demand(gpus=gpus // count), compute_s=run_s)
    return Job(
        id=name, name=f"{user}-{gpus}", user=user, queue="q", tasks=(task,) * count, gang=count > 1
    )


def figures(policy: str, seed: int, jobs: int, load: float, **more: Any) -> dict[str, float]:
    """Return the figures of one simulation."""
    exact, arriving = more.pop("exact", False), history(seed, jobs, load)
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
