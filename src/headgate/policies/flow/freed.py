"""GPUs that runs left which were stopped for a job: its tasks go there, not others'.

A flow that is solved again, with these GPUs free, may send other tasks there at the same cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.planning.shares.standing import Standing
from headgate.planning.shares.stopped_for import nodes_freed
from headgate.policies.flow.placed import Placed

Price = Callable[[int, int], int]
"""The price of reading of a task on a node (rows), in microseconds."""


def to_freed(standing: Standing, placed: Placed, rank: Ints, price: Price) -> Placed:
    """Return the placed tasks, where jobs for which runs were stopped have tasks at their nodes.

    A task of such a job changes places with the last one, by the `rank` of jobs, that is sent to
    the node, or else to any free GPU, or takes its place if none of the job is placed.
    O(stopped runs x tasks).
    """
    freed = list(nodes_freed(standing))
    if not freed or not len(placed.task):
        return placed
    is_free = standing.free > 0
    for winner, node in freed:
        job, kind = standing.task_job[placed.task], standing.task_type[placed.task]
        at_free = is_free[placed.node, placed.gpu_class]
        here = at_free & (placed.node == node)
        at_free = here if here.any() else at_free  # a unit may have got the GPU
        if (at_free & (job == winner)).any() or not at_free.any():
            continue
        theirs = np.flatnonzero(at_free)
        theirs = theirs[np.argsort(-rank[job[theirs]], kind="stable")]  # the last job first
        mine = np.flatnonzero(job == winner)
        if len(mine):
            tasks = placed.task[mine]
            fits = standing.accepts[kind[theirs]][:, placed.gpu_class[mine]].T
        else:
            tasks = np.setdiff1d(np.flatnonzero(standing.task_job == winner), placed.task)
            tasks = tasks[standing.task_type[tasks] < len(standing.accepts)]
            theirs = theirs[_same_ceiling(standing, winner, job[theirs])]
            fits = np.ones((len(tasks), len(theirs)), bool)
        fits &= standing.accepts[standing.task_type[tasks]][:, placed.gpu_class[theirs]]
        if not fits.any():
            continue
        column = int(fits.any(axis=0).argmax())
        some, other = np.flatnonzero(fits[:, column]), int(theirs[column])
        at = int(placed.node[other])
        best = some[np.argmin([price(row, at) for row in standing.task[tasks[some]].tolist()])]
        if len(mine):
            placed = _swapped(standing, placed, int(mine[best]), other, price)
        else:
            placed = _replaced(standing, placed, int(tasks[best]), other, price)
    return placed


def _swapped(standing: Standing, placed: Placed, one: int, other: int, price: Price) -> Placed:
    """Return the tasks after two of them (indices) swap their places."""
    order, prices = np.arange(len(placed.task)), placed.price.copy()
    order[[one, other]] = other, one
    for each in (one, other):
        task, node = standing.task[placed.task[each]], placed.node[order[each]]
        prices[each] = price(int(task), int(node))
    return replace(
        placed,
        node=placed.node[order],
        gpu_class=placed.gpu_class[order],
        window=placed.window[order],
        price=prices,
    )


def _replaced(standing: Standing, placed: Placed, task: int, other: int, price: Price) -> Placed:
    """Return the tasks after one that is not placed takes the place of another (index)."""
    tasks, prices = placed.task.copy(), placed.price.copy()
    tasks[other] = task
    prices[other] = price(int(standing.task[task]), int(placed.node[other]))
    return replace(placed, task=tasks, price=prices).only(np.argsort(tasks, kind="stable"))


def _same_ceiling(standing: Standing, winner: int, jobs: Ints) -> Bools:
    """Return whose GPUs a job may take as far as the ceilings of queues go."""
    tree, queue = standing.tree, int(standing.queue[winner])
    same = np.ones(len(jobs), bool)
    while queue >= 0:
        if tree.most[queue] < standing.gpus.sum():
            below: Bools = tree.or_above(np.arange(len(tree.most)) == queue)
            same &= below[standing.queue[jobs]]
        queue = int(tree.parent[queue])
    return same
