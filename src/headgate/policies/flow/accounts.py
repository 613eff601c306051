"""Shares and prices of a flow round, told job by job and GPU by GPU."""

from __future__ import annotations

import numpy as np

from headgate.decision.account import Account
from headgate.decision.costs import PRICE_LIMIT, prices_per_byte, shard_prices
from headgate.decision.shares import NO_CEILING
from headgate.decision.standing import Standing
from headgate.flow import UNREACHABLE, Ints, Solution, potentials
from headgate.policies.flow.aggregated import Aggregated, Round
from headgate.state import Snapshot


def job_accounts(now: Standing, target: Ints, group: Ints, round_: Round) -> dict[int, Account]:
    """Return how each job stands, by its row."""
    wait = 2 * round_.wait_price[group]
    # Where no task of a job is offered, there is nothing yet to say what waiting is worth.
    may_wait = (round_.most > round_.least)[group] & np.isin(group, round_.task_job)
    return {
        int(job): Account(
            share_gpus=None if target[i] >= NO_CEILING else int(target[i]),
            may_win_gpus=int(round_.most[group[i]]),
            wait_s=int(wait[i]) / 1e6 if may_wait[i] else None,
        )
        for i, job in enumerate(now.jobs)
    }


def run_price_s(snapshot: Snapshot, task: int, node: int, *, alpha1: float, alpha2: float) -> float:
    """Return the price of running a task on a node: flow paper, section 3, with its penalties."""
    per_byte = prices_per_byte(snapshot.bandwidth, alpha1=alpha1, alpha2=alpha2)
    reads = snapshot.planned_reads(task, node)
    sizes = np.array([r.shard.size_bytes for r in reads], np.int64)
    where = np.array([r.locality for r in reads], np.int64)
    price = int(shard_prices(sizes, per_byte)[np.arange(len(reads)), where].sum())
    return min(price, PRICE_LIMIT) / 1e6


def free_gpu_price_s(
    now: Standing, aggregated: Aggregated, solution: Solution, node: int, memory_bytes: int
) -> float | None:
    """Return the dual price of a free GPU: what is lost with one less; None for a task's run.

    The vertex of (node, class) gives its flow to the sink alone, so what is lost is the cheapest
    other way from it to the sink, if all its GPUs are taken, and nothing otherwise.
    """
    round_, network = aggregated.round, aggregated.network
    kind = int(np.searchsorted(now.class_bytes, memory_bytes))
    slots = np.flatnonzero(round_.slots)  # by node, then class
    slot = int(np.searchsorted(slots, node * round_.free.shape[1] + kind))
    # Vertices are tasks, jobs, one to wait at per job, then the slots.
    vertex = len(round_.task_job) + 2 * len(round_.most) + slot
    price = int(potentials(network, solution.flow, network.vertices - 1)[vertex])
    return None if price > UNREACHABLE // 2 else price / 1e6
