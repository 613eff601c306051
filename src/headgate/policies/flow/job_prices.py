"""Shares and prices of a flow round, by job and by GPU, for explanations."""

from __future__ import annotations

import numpy as np

from headgate.planning.shares.queue_tree import NO_CEILING
from headgate.planning.shares.standing import Standing
from headgate.planning.units.costs import PRICE_LIMIT, shard_prices
from headgate.policies.flow.eligible import Round
from headgate.policies.flow.prices import Prices
from headgate.policies.flow.problem import FlowProblem
from headgate.policies.flow.solve import Flow
from headgate.ports.capabilities import JobPrices
from headgate.state import Snapshot


def prices_by_job(round_: Round, problem: FlowProblem) -> dict[int, JobPrices]:
    """Return the share and prices of each job, by its row."""
    target, group = round_.entitled.target, round_.entitled.group
    wait = 2 * problem.wait_price[group]
    # A job without an offered task has no price of waiting.
    may_wait = (problem.most > problem.least)[group] & np.isin(group, problem.task_job)
    return {
        int(job): JobPrices(
            share_gpus=None if target[i] >= NO_CEILING else int(target[i]),
            may_win_gpus=int(problem.most[group[i]]),
            wait_s=int(wait[i]) / 1e6 if may_wait[i] else None,
        )
        for i, job in enumerate(round_.standing.jobs)
    }


def run_price_s(snapshot: Snapshot, task: int, node: int, prices: Prices) -> float:
    """Return the price, in seconds, of running a task on a node: flow paper, section 3."""
    per_byte = prices.per_byte(snapshot.bandwidth)
    reads = snapshot.planned_reads(task, node)
    sizes = np.array([r.shard.size_bytes for r in reads], np.int64)
    where = np.array([r.locality for r in reads], np.int64)
    price = int(shard_prices(sizes, per_byte)[np.arange(len(reads)), where].sum())
    return min(price, PRICE_LIMIT) / 1e6


def free_gpu_price_s(standing: Standing, flow: Flow, node: int, gpu: int) -> float | None:
    """Return the shadow price, in seconds, of a free GPU; None if one task less would start."""
    row = standing.snapshot.nodes.first_gpu[node] + gpu
    price = flow.price_of_slot(node, int(standing.hardware.gpu_class[row]))
    return None if price is None else price / 1e6
