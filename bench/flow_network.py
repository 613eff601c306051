"""The laminar form of problems against the paper's dense network: equal optima, and the speedup.

Random problems (seeded) of 2-GPU nodes in racks of 16, one waiting task per GPU, one shard of about
1 GB with 3 replicas each, a third of the GPUs free. Both forms are built from the same arrays and
solved by the compiled solvers, one after the other; times are medians, build included.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from headgate.base.arrays import Ints
from headgate.flow import NativeSolver, Network
from headgate.model import Bandwidth
from headgate.planning.units.costs import prices_per_byte, shard_prices
from headgate.policies.flow.placed import Placed
from headgate.policies.flow.prices import wait_prices
from headgate.policies.flow.problem import NONE, FlowProblem, FullProblem
from headgate.policies.flow.solve import Flow

Result = TypeVar("Result")

SEEDS = (1, 2, 3)
BANDWIDTH = Bandwidth(disk_bytes_per_s=5e8, rack_bytes_per_s=1.25e8, cluster_bytes_per_s=3.1e7)


def random_problem(gpus: int, seed: int) -> FlowProblem:
    """Return a random problem on a cluster of this many GPUs."""
    rng = np.random.default_rng(seed)
    nodes, tasks, jobs = gpus // 2, gpus, max(2, gpus // 20)
    free = (rng.random((nodes, 2)) < 1 / 3).sum(axis=1, keepdims=True).astype(np.int64)
    task_job = np.sort(rng.integers(0, jobs, tasks))
    waiting = np.bincount(task_job, minlength=jobs)
    share = np.minimum(waiting, -(-int(free.sum()) // jobs))
    per_byte = prices_per_byte(BANDWIDTH, alpha1=1.5, alpha2=2.0)
    sizes = rng.integers(5 * 10**8, 15 * 10**8, tasks)
    return FlowProblem(
        windows=1,
        node_rack=np.arange(nodes) // 16,
        free=free,
        task=np.arange(tasks),
        task_job=task_job,
        task_type=np.zeros(tasks, np.int64),
        accepts=np.ones((1, 1), bool),
        task_window=np.zeros(tasks, np.int64),
        read_first=np.arange(tasks + 1),
        read_bytes=sizes,
        per_byte=per_byte,
        replica_first=np.arange(tasks + 1) * 3,
        replica_node=np.concatenate([rng.choice(nodes, 3, replace=False) for _ in range(tasks)]),
        job=np.arange(jobs),
        most=share,
        least=np.minimum(share, 1),
        wait_price=wait_prices(np.full(jobs, 1e9), BANDWIDTH, alpha3=2.0, least=1),
        may_wait=True,
        held_gpu=NONE,
        held_node=NONE,
        held_kind=NONE,
        held_price=NONE,
    )


def dense(problem: FlowProblem) -> Network:
    """Return the paper's network: an arc from every task to every free GPU (flow paper, 4)."""
    jobs, tasks = len(problem.most), len(problem.task_job)
    gpu_node = np.repeat(np.arange(len(problem.free)), problem.free[:, 0])
    job, wait, task, gpu = 0, jobs, 2 * jobs, 2 * jobs + tasks
    sink = gpu + len(gpu_node)
    holder = problem.replica_node.reshape(tasks, 3)
    far = np.full((tasks, len(gpu_node)), 2)
    far[(problem.node_rack[holder][:, :, None] == problem.node_rack[gpu_node]).any(axis=1)] = 1
    far[(holder[:, :, None] == gpu_node).any(axis=1)] = 0
    price = np.take_along_axis(shard_prices(problem.read_bytes, problem.per_byte), far, axis=1)
    may_wait = problem.most - problem.least
    every, one = np.arange(jobs), np.ones
    parts: list[tuple[Ints, Ints, Ints, Ints]] = [
        (job + every, wait + every, may_wait, problem.wait_price),
        (wait + every, np.full(jobs, sink), may_wait, problem.wait_price),
        (job + problem.task_job, task + np.arange(tasks), one(tasks), np.zeros(tasks)),
        (
            np.repeat(task + np.arange(tasks), len(gpu_node)),
            np.tile(gpu + np.arange(len(gpu_node)), tasks),
            one(price.size),
            price.ravel(),
        ),
        (
            gpu + np.arange(len(gpu_node)),
            np.full(len(gpu_node), sink),
            one(len(gpu_node)),
            np.zeros(len(gpu_node)),
        ),
    ]
    tail, head, capacity, cost = (
        np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True)
    )
    supply = np.zeros(sink + 1, np.int64)
    supply[:jobs], supply[sink] = problem.most, -problem.most.sum()
    return Network(tail=tail, head=head, capacity=capacity, cost=cost, supply=supply)


def timed(call: Callable[[], Result], times: int) -> tuple[float, Result]:
    """Return the median seconds of a few calls, and what the last one returned."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        result = call()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken), result


def worth(problem: FlowProblem, placed: Placed) -> tuple[int, int]:
    """Return the number of tasks placed or waiting, and the total cost."""
    won = np.bincount(problem.task_job[placed.task], minlength=len(problem.most))
    waits = np.minimum(problem.most - won, problem.most - problem.least)
    cost = int(placed.price.sum()) + 2 * int((waits * problem.wait_price).sum())
    return len(placed.task) + int(waits.sum()), cost


def main() -> None:
    """Print one row per size and seed."""
    solver = NativeSolver()
    print(f"{'GPUs':>6} {'seed':>4} {'dense arcs':>10} {'ms':>8} {'dense ms':>9} ratio")
    for gpus in (30, 300, 1000, 2000):
        for seed in SEEDS:
            problem = random_problem(gpus, seed)
            mine_s, mine = timed(lambda p=problem: Flow(FullProblem(problem=p, up=p.free)), 5)
            theirs_s, theirs = timed(lambda r=problem: solver.solve(dense(r)), 3)
            optimum = theirs.sent, theirs.cost
            assert worth(problem, mine.placed(problem.task)) == optimum, "the optima differ"
            print(
                f"{gpus:>6} {seed:>4} {len(dense(problem).tail):>10} "
                f"{1e3 * mine_s:>8.2f} {1e3 * theirs_s:>9.2f} {theirs_s / mine_s:>5.1f}"
            )


if __name__ == "__main__":
    main()
