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
            fits = standing.accepts[kind[mine]][:, placed.gpu_class[theirs]]
            fits &= standing.accepts[kind[theirs]][:, placed.gpu_class[mine]].T
            placed = _swapped(standing, placed, mine, theirs, fits, price)
            continue
        left = np.setdiff1d(np.flatnonzero(standing.task_job == winner), placed.task)
        left = left[standing.task_type[left] < len(standing.accepts)]
        theirs = theirs[_same_ceiling(standing, winner, job[theirs])]
        fits = standing.accepts[standing.task_type[left]][:, placed.gpu_class[theirs]]
        placed = _replaced(standing, placed, left, theirs, fits, price)
    return placed


def _swapped(
    standing: Standing, placed: Placed, mine: Ints, theirs: Ints, fits: Bools, price: Price
) -> Placed:
    """Return the tasks after one of `mine` and the first possible of `theirs` (indices) swap."""
    if not fits.any():
        return placed
    column = int(fits.any(axis=0).argmax())
    rows = mine[fits[:, column]]
    other = theirs[column]
    row = rows[_cheapest(standing, placed.task[rows], int(placed.node[other]), price)]
    order = np.arange(len(placed.task))
    order[[row, other]] = order[[other, row]]
    prices = placed.price.copy()
    for each in (row, other):
        task, node = standing.task[placed.task[each]], placed.node[order[each]]
        prices[each] = price(int(task), int(node))
    return replace(
        placed,
        node=placed.node[order],
        gpu_class=placed.gpu_class[order],
        window=placed.window[order],
        price=prices,
    )


def _replaced(
    standing: Standing, placed: Placed, left: Ints, theirs: Ints, fits: Bools, price: Price
) -> Placed:
    """Return the tasks after one of `left` (tasks) takes the first possible place of `theirs`."""
    if not fits.any():
        return placed
    column = int(fits.any(axis=0).argmax())
    tasks, other = left[fits[:, column]], theirs[column]
    node = int(placed.node[other])
    task, prices = placed.task.copy(), placed.price.copy()
    task[other] = tasks[_cheapest(standing, tasks, node, price)]
    prices[other] = price(int(standing.task[task[other]]), node)
    return replace(placed, task=task, price=prices).only(np.argsort(task, kind="stable"))


def _same_ceiling(standing: Standing, winner: int, jobs: Ints) -> Bools:
    """Return whose GPUs a job may take as far as the ceilings of queues go."""
    queue = standing.queue[winner]
    unbound = bool(standing.ceiling[queue] >= standing.gpus.sum())
    same: Bools = unbound | (standing.queue[jobs] == queue)
    return same


def _cheapest(standing: Standing, tasks: Ints, node: int, price: Price) -> int:
    """Return which of some tasks reads at the least price on a node."""
    return int(np.argmin([price(row, node) for row in standing.task[tasks].tolist()]))
