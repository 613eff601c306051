"""Waits of large and small jobs on shared GPUs, by the node that a job gets.

    python bench/mixed_sizes.py [--policy headgate easy-backfill] [--seeds 3] [--jobs 1500]
                                [--load 0.9] [--pods openb2023_pods_default.parquet]

A seeded stream of jobs arrives at 16 nodes of 8 GPUs, 96 CPUs and 768 GiB: tasks on a share of one
GPU, on 1, 2, 4 and 8 GPUs, and gangs of 16 GPUs, with CPUs and memory. With `--pods`, what single
tasks ask for is drawn from recorded pods. Run times are lognormal, declared, and exact. One row
per policy and choice of nodes, means of the seeds, on stdout as JSON: waits in seconds, of jobs by
GPUs; GPUs in use from the first arrival to the last one.

`first-fit` is `place=first-fit`, `links` is `place=links`; `best-fit` is the latter with the
node and the GPU where least of the GPUs and CPUs is left, in place of what others miss.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq

from headgate.app import POLICIES
from headgate.model import Bandwidth, Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.packing.cluster import ClusterPacking
from headgate.planning.packing.future import Future
from headgate.planning.place.choose.packed import Packed
from headgate.ports import make_policy
from headgate.sim.run import Simulation, run
from headgate.spec import Links

NODES, GPUS, CPUS, GIB = 16, 8, 96, 1 << 30
RUN_S, SPREAD = 1800.0, 1.0  # mean, and deviation of the logarithm
SHARES = ((250, 2), (300, 4), (470, 6), (500, 4), (650, 8), (810, 8))  # thousandths, CPUs
CHOICES = ("first-fit", "best-fit", "links")
FAST = 1 << 40
BY_GPUS = (("share", 0, 1), ("1", 1, 2), ("2-4", 2, 8), ("8", 8, 16), ("16", 16, 99))


def drawn(rng: np.random.Generator) -> tuple[dict[str, Any], int]:
    """Return what a task asks for, and how many there are of it."""
    kind = rng.choice(6, p=(0.55, 0.2, 0.1, 0.07, 0.05, 0.03))
    if kind == 0:
        milli, cpus = SHARES[rng.integers(len(SHARES))]
        return {"gpus": 1, "gpu_milli": milli, "cpus": cpus, "memory_bytes": 8 * cpus * GIB}, 1
    gpus = (1, 2, 4, 8, 8)[kind - 1]
    ask = {"gpus": gpus, "cpus": 10 * gpus, "memory_bytes": 64 * gpus * GIB}
    return ask, 2 if kind == 5 else 1


def recorded(pods: Path) -> list[dict[str, Any]]:
    """Return what the recorded pods that fit a node ask for."""
    rows = pq.read_table(pods, columns=["cpus", "mem_gb", "num_gpu", "gpu_milli"]).to_pylist()
    return [
        {
            "gpus": row["num_gpu"],
            "gpu_milli": row["gpu_milli"] if row["num_gpu"] == 1 else 1000,
            "cpus": row["cpus"],
            "memory_bytes": int(row["mem_gb"] * GIB),
        }
        for row in rows
        if row["num_gpu"] and row["cpus"] <= CPUS and row["mem_gb"] <= 8 * CPUS
    ]


def stream(seed: int, jobs: int, load: float, pods: list[dict[str, Any]]) -> Simulation:
    """Return the simulation of a seed."""
    rng, submissions = np.random.default_rng(seed), list[tuple[float, Job]]()
    asks = [
        (pods[rng.integers(len(pods))], 1) if pods and rng.random() > 0.03 else drawn(rng)
        for _ in range(jobs)
    ]
    if pods:
        gang = {"gpus": 8, "cpus": 80, "memory_bytes": 512 * GIB}
        asks = [(gang, 2) if rng.random() < 0.03 else ask for ask in asks]
    run_s = rng.lognormal(np.log(RUN_S) - SPREAD**2 / 2, SPREAD, jobs).round(3)
    gpus = np.array([a["gpus"] * a.get("gpu_milli", 1000) / 1000 * n for a, n in asks])
    at = np.cumsum(rng.exponential(gpus.mean() * RUN_S / (load * NODES * GPUS), jobs))
    for number, (ask, count) in enumerate(asks):
        task = Task(demand=Demand.of(**ask), compute_s=float(run_s[number]))
        job = Job(
            id=f"j{number}",
            name="j",
            user=f"u{number % 7}",
            queue="q",
            tasks=(task,) * count,
            gang=count > 1,
            estimated_s=float(run_s[number]),
        )
        submissions.append((float(at[number]), job))
    gpu = (Gpu(memory_bytes=80 * GIB),) * GPUS
    memory = 8 * CPUS * GIB
    return Simulation(
        nodes=tuple(
            Node(id=f"n{n}", rack=f"r{n // 8}", gpus=gpu, cpus=CPUS, memory_bytes=memory)
            for n in range(NODES)
        ),
        links=Links(
            disk_bytes_per_s=FAST, node_link_bytes_per_s=FAST, rack_uplink_bytes_per_s=FAST
        ),
        bandwidth=Bandwidth(disk_bytes_per_s=FAST, rack_bytes_per_s=FAST, cluster_bytes_per_s=FAST),
        queues=(Queue(name="q"),),
        submissions=tuple(submissions),
        seed=seed,
    )


def left_over(self: Future, free: Any, gpu: Any, model: Any) -> Any:
    """Return the worth of which best fit takes least: little where little is left."""
    del self, model
    part = (gpu.sum(axis=1) / (1000 * GPUS) + free[:, 0] / (1000 * CPUS)) / 2
    return 1000 * part**2


@contextmanager
def choice(name: str) -> Iterator[None]:
    """Choose nodes so meanwhile."""
    if name != "best-fit":
        yield
        return
    with (
        patch.object(Future, "worth_of", left_over),
        patch.object(ClusterPacking, "in_use", 1.0),
        patch.object(Packed, "_freed_in", lambda self, run_s: []),
    ):
        yield


def measure(policy: str, name: str, args: argparse.Namespace, pods: list[Any]) -> dict[str, Any]:
    """Return the row of a policy and a choice."""
    rows, began = list[dict[str, float]](), time.process_time()
    place = "first-fit" if name == "first-fit" else "links"
    for seed in range(args.seeds):
        simulation = stream(seed, args.jobs, args.load, pods)
        made = make_policy(POLICIES, policy, {"place": place})
        with choice(name):
            records = run(simulation, made).jobs
        jobs = [job for _, job in simulation.arrivals()]
        start, end = np.array(records.started_at), np.array(records.ended_at)
        at = np.array([at for at, _ in simulation.arrivals()])
        gpus = np.array([sum(t.demand.gpus_milli for t in job.tasks) / 1000 for job in jobs])
        wait, last = start - at, at[-1]
        used = (gpus * np.clip(np.minimum(end, last) - np.minimum(start, last), 0, None)).sum()
        row = {"mean_wait_s": wait.mean(), "gpus_in_use": used / (last * NODES * GPUS)}
        row["wait_gpu_weighted_s"] = (wait * gpus).sum() / gpus.sum()
        for label, low, high in (
            ("share", 0, 1),
            ("1", 1, 2),
            ("2-4", 2, 8),
            ("8", 8, 16),
            ("16", 16, 99),
        ):
            row[f"wait_{label}_s"] = wait[(gpus >= low) & (gpus < high)].mean()
        row["makespan_s"] = end.max()
        rows.append({key: float(value) for key, value in row.items()})
    means = {key: round(statistics.mean(row[key] for row in rows), 3) for key in rows[0]}
    return {
        "policy": policy,
        "nodes": name,
        **means,
        "cpu_s": round(time.process_time() - began, 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="waits of large and small jobs on shared GPUs")
    parser.add_argument("--policy", nargs="+", default=["headgate", "easy-backfill"])
    parser.add_argument("--choice", nargs="+", default=CHOICES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1500)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--pods", type=Path)
    args = parser.parse_args()
    pods = recorded(args.pods) if args.pods else []
    rows = [measure(p, name, args, pods) for p in args.policy for name in args.choice]
    print(json.dumps({"load": args.load, "jobs": args.jobs, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
