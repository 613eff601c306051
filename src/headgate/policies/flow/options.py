"""The options of tasks: nodes, racks and the whole cluster, not every free GPU.

A task has a node, or a rack, as an option only if that is nearer to its data than the place around
it; its price on a node is that of its cheapest path there, since prices grow with distance.
So the optimum is that of the network with one arc from each task to each free GPU that it fits
(flow paper, section 4), with some options per shard in place of one arc per GPU.
"""

from __future__ import annotations

import numpy as np

from headgate.base.arrays import Ints
from headgate.base.order import least_of_each
from headgate.flow import fetch_options
from headgate.planning.units.costs import PRICE_LIMIT
from headgate.policies.flow.problem import FlowProblem

Options = tuple[Ints, Ints, Ints]
"""Offsets, `[units + 1]`, places and costs of the options of units."""


def task_options(
    problem: FlowProblem, places: Ints, dearer: int, own_place: Ints, own_cost: Ints
) -> Options:
    """Return the options of each task.

    `places` numbers those of nodes, racks and the whole cluster, in this order, by kind, negative
    if there is none. Each of the classes that a task accepts costs `dearer` more than the one
    below, and so does a window: what is not reserved is preferred. Nodes and racks are options only
    if they are cheaper than the place around them. A task also has the options `own_place` for
    `own_cost`, `[tasks, own options]`.
    O(replicas read x log(replicas that a task reads) + options).
    """
    return fetch_options(
        first=problem.read_first,
        size=problem.read_bytes,
        price=problem.per_byte.tolist(),
        most=PRICE_LIMIT,
        copy_first=problem.replica_first,
        copies=problem.replica_node,
        region=problem.node_rack,
        unit_type=problem.task_type,
        accepts=problem.accepts,
        shortest=problem.task_window,
        windows=problem.windows,
        places=places,
        dearer=dearer,
        own_place=own_place,
        own_cost=own_cost,
    )


def around(by_node: Ints, node_rack: Ints) -> Ints:
    """Return the sums of nodes, racks and the whole cluster, in this order, by class."""
    in_rack = np.zeros((int(node_rack.max(initial=-1)) + 1, by_node.shape[1]), np.int64)
    np.add.at(in_rack, node_rack, by_node)
    return np.concatenate([by_node, in_rack, in_rack.sum(axis=0, keepdims=True)])


def cheapest_free(problem: FlowProblem, free: Ints) -> Ints:
    """Return each group's cheapest price of a task on a free GPU, `[groups]`, in microseconds.

    `free` is `[nodes, classes]`; the largest int64 stands for no such GPU. O(options).
    """
    places = np.where(around(free, problem.node_rack) > 0, 0, -1)
    nothing = np.zeros((len(problem.task_job), 0), np.int64)
    offsets, _, cost = task_options(problem, places, 0, nothing, nothing)
    job = np.repeat(problem.task_job, np.diff(offsets))
    return least_of_each(job, cost, len(problem.most), np.iinfo(np.int64).max)
