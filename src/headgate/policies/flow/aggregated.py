"""A round in arrays: tasks meet nodes, racks and the whole cluster, not every free GPU.

A task is offered a node, or a rack, only where that is nearer to its data than the place around it;
its price on a node is that of its cheapest way there, since prices grow with distance. So the
optimum is that of the network with one arc from each task to each free GPU that it fits (flow
paper, section 4), with some options per shard in place of one arc per GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.base.order import least_of_each
from headgate.flow import Ints, fetch_options
from headgate.planning.costs import PRICE_LIMIT
from headgate.planning.shares import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Round:
    """What is free, what waits, and what each thing costs; int64 arrays, prices in microseconds.

    A job (or several that are limited together, as one) places at most `most` of its tasks, and at
    least `least` where GPUs allow (always `most` unless `may_wait`); one that it might place but
    does not costs twice `wait_price`. A GPU that is free later, one of `later_node` and
    `later_class`, costs `later_price` besides. A byte that is read costs `per_byte`, by `Locality`
    (`planning.costs.shard_prices`); of what read r reads there are replicas on
    `replica_node[replica_first[r]:replica_first[r + 1]]`.

    Rows name tasks, jobs and GPUs from round to round. A round that follows another one has only
    those of the tasks that are new to it or have other prices; of all else it has everything.
    """

    node_rack: Ints  # [nodes]
    free: Ints  # [nodes, classes] free GPUs, classes by growing memory
    task: Ints  # [tasks] rows, ascending
    task_job: Ints  # [tasks]
    task_class: Ints  # [tasks] smallest class that the task fits
    read_first: Ints  # [tasks + 1] where what each task reads begins: one row per shard
    read_bytes: Ints  # [reads]
    per_byte: Floats  # [3]
    replica_first: Ints  # [reads + 1]
    replica_node: Ints  # [replicas]
    job: Ints  # [jobs] rows
    most: Ints  # [jobs]
    least: Ints  # [jobs]
    wait_price: Ints  # [jobs]
    may_wait: bool
    later_gpu: Ints  # [later] rows, growing
    later_node: Ints  # [later]
    later_class: Ints  # [later]
    later_price: Ints  # [later]

    @property
    def slots(self) -> Ints:
        """GPUs that are free now or later, `[nodes, classes]`."""
        cells, classes = self.free.size, self.free.shape[1]
        later = np.bincount(self.later_node * classes + self.later_class, minlength=cells)
        slots: Ints = self.free + later.reshape(self.free.shape)
        return slots


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placed:
    """Tasks (ascending), the node and class of the GPU that each one won, and what its way costs.

    `price` is that of reading, and of a GPU larger than needed; not of a GPU that is free later.
    """

    task: Ints
    node: Ints
    kind: Ints
    price: Ints

    def only(self, chosen: Ints) -> Placed:
        """Return those at these places, ascending."""
        return Placed(
            task=self.task[chosen],
            node=self.node[chosen],
            kind=self.kind[chosen],
            price=self.price[chosen],
        )


def options(
    round_: Round, at: Ints, dearer: int, own_place: Ints, own_cost: Ints
) -> tuple[Ints, Ints, Ints]:
    """Return what each task may take: offsets `[tasks + 1]`, and places and costs.

    `at` numbers the places of nodes, racks and the whole cluster, in this order, by class, negative
    where there is none. Each class above the smallest that a task fits costs `dearer` more. Nodes
    and racks are offered only where they are cheaper than the place around them. Besides, a task
    has the options `own_place` for `own_cost`, `[tasks, so many]`.
    O(replicas read x log(replicas that a task reads) + options).
    """
    return fetch_options(
        first=round_.read_first,
        size=round_.read_bytes,
        price=round_.per_byte.tolist(),
        most=PRICE_LIMIT,
        copy_first=round_.replica_first,
        copies=round_.replica_node,
        region=round_.node_rack,
        smallest=round_.task_class,
        at=at,
        dearer=dearer,
        own_place=own_place,
        own_cost=own_cost,
    )


def around(by_node: Ints, node_rack: Ints) -> Ints:
    """Return what nodes, racks and the whole cluster have of each class, in this order."""
    in_rack = np.zeros((int(node_rack.max(initial=-1)) + 1, by_node.shape[1]), np.int64)
    np.add.at(in_rack, node_rack, by_node)
    return np.concatenate([by_node, in_rack, in_rack.sum(axis=0, keepdims=True)])


def cheapest_free(round_: Round, free: Ints) -> Ints:
    """Return each job's cheapest price of a task of the round on a GPU that is free.

    `free` is by node and class; the largest number there is stands for none. O(options).
    """
    at = np.where(around(free, round_.node_rack) > 0, 0, -1)
    nothing = np.zeros((len(round_.task_job), 0), np.int64)
    offsets, _, cost = options(round_, at, 0, nothing, nothing)
    job = np.repeat(round_.task_job, np.diff(offsets))
    return least_of_each(job, cost, len(round_.most), np.iinfo(np.int64).max)
