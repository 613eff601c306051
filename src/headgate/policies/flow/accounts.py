"""Shares and prices of a flow round, told job by job and GPU by GPU."""

from __future__ import annotations

import numpy as np

from headgate.flow import Ints
from headgate.planning.account import Account
from headgate.planning.costs import PRICE_LIMIT, prices_per_byte, shard_prices
from headgate.planning.shares import NO_CEILING
from headgate.planning.standing import Standing
from headgate.policies.flow.aggregated import Round
from headgate.policies.flow.laminar import LaminarRound
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
    now: Standing, solved: LaminarRound, node: int, memory_bytes: int
) -> float | None:
    """Return the price of a free GPU: what is lost with one less; None for a task's run."""
    kind = int(np.searchsorted(now.class_bytes, memory_bytes))
    price = solved.price_of_slot(node, kind)
    return None if price is None else price / 1e6
