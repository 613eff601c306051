"""A round in arrays: tasks meet nodes, racks and the whole cluster, not every free GPU.

A task is offered a node, or a rack, only where that is nearer to its data than the place around it;
its price on a node is that of its cheapest way there, since prices grow with distance. So the
optimum is that of the network with one arc from each task to each free GPU that it fits (flow
paper, section 4), with some options per shard in place of one arc per GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.decision.costs import PRICE_LIMIT
from headgate.flow import Ints
from headgate.model import Locality


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Round:
    """What is free, what waits, and what each thing costs; int64 arrays, prices in microseconds.

    A job (or several that are limited together, as one) places at most `most` of its tasks, and at
    least `least` where GPUs allow (always `most` unless `may_wait`); one that it might place but
    does not costs twice `wait_price`. A GPU that is free later, one of `later_node` and
    `later_class`, costs `later_price` besides. `shard_price` has a column per `Locality`; the
    replicas of shard s are `replica_node[replica_first[s]:replica_first[s + 1]]`.

    Rows name tasks, jobs and GPUs from round to round. A round that follows another one has only
    those of the tasks that are new to it or have other prices; of all else it has everything.
    """

    node_rack: Ints  # [nodes]
    free: Ints  # [nodes, classes] free GPUs, classes by growing memory
    task: Ints  # [tasks] rows, ascending
    task_job: Ints  # [tasks]
    task_class: Ints  # [tasks] smallest class that the task fits
    read_task: Ints  # [reads] who reads, one row per shard it reads
    read_shard: Ints  # [reads]
    shard_price: Ints  # [shards, 3]
    replica_first: Ints  # [shards + 1]
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
class Options:
    """Where tasks may be cheaper than elsewhere: `task[i]` in `place[i]` for `price[i]`."""

    task: Ints
    place: Ints
    price: Ints


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


def options(round_: Round) -> tuple[Options, Options, Options]:
    """Return the tasks' prices by node, by rack and anywhere (one place, 0).

    Nodes and racks are listed only where they are cheaper than the place around them.
    O(replicas read x log).
    """
    tasks = np.arange(len(round_.task_job))
    racks = int(round_.node_rack.max(initial=-1)) + 1
    price = round_.shard_price[round_.read_shard]
    anywhere = _sum(price[:, Locality.CLUSTER], round_.read_task, len(tasks))

    copies = np.diff(round_.replica_first)[round_.read_shard]
    read = np.repeat(np.arange(len(round_.read_task)), copies)
    nth = np.arange(len(read)) - np.repeat(np.cumsum(copies) - copies, copies)
    node = round_.replica_node[round_.replica_first[round_.read_shard[read]] + nth]

    # A read saves once per rack with a replica, and once more per node with one.
    saved = price[:, Locality.CLUSTER] - price[:, Locality.RACK]
    rack_task, rack, rack_saved = _savings(round_.read_task, read, round_.node_rack[node], saved)
    in_rack = anywhere[rack_task] - rack_saved
    saved = price[:, Locality.RACK] - price[:, Locality.NODE]
    node_task, node, node_saved = _savings(round_.read_task, read, node, saved)
    around = np.searchsorted(rack_task * racks + rack, node_task * racks + round_.node_rack[node])
    on_node = in_rack[around] - node_saved

    by_node, by_rack = node_saved > 0, rack_saved > 0
    return (
        _options(node_task[by_node], node[by_node], on_node[by_node]),
        _options(rack_task[by_rack], rack[by_rack], in_rack[by_rack]),
        _options(tasks, np.zeros_like(tasks), anywhere),
    )


def cheapest_free(round_: Round, free: Ints) -> Ints:
    """Return each job's cheapest price of a task of the round on a GPU that is free.

    `free` is by node and class; the largest number there is stands for none. O(options).
    """
    in_rack = np.zeros((int(round_.node_rack.max(initial=-1)) + 1, free.shape[1]), np.int64)
    np.add.at(in_rack, round_.node_rack, free)
    price = np.full(len(round_.most), np.iinfo(np.int64).max)
    everywhere = free.sum(axis=0, keepdims=True)
    for option, left in zip(options(round_), (free, in_rack, everywhere), strict=True):
        fitting = np.cumsum(left[:, ::-1], axis=1)[:, ::-1]
        open_ = fitting[option.place, round_.task_class[option.task]] > 0
        np.minimum.at(price, round_.task_job[option.task[open_]], option.price[open_])
    return price


def in_order(values: Ints) -> Ints:
    """Return the indices of whole numbers, none negative, by growing value; of equals, as given."""
    many = len(values)
    if int(values.max(initial=0)) >= (1 << 62) // max(many, 1):
        return np.argsort(values, kind="stable")
    order: Ints = np.sort(values * many + np.arange(many)) % max(many, 1)  # several times as fast
    return order


def nth_of_equals(values: Ints) -> Ints:
    """Return how many equal values come before each one; none of them is negative."""
    order = in_order(values)
    first = np.flatnonzero(np.diff(values[order], prepend=-1))
    nth = np.empty_like(order)
    nth[order] = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
    return nth


def _options(task: Ints, place: Ints, price: Ints) -> Options:
    return Options(task=task, place=place, price=np.minimum(price, PRICE_LIMIT))


def _savings(read_task: Ints, read: Ints, place: Ints, saved: Ints) -> tuple[Ints, Ints, Ints]:
    """Return (task, place, saved), ascending; a read saves once per place that it is near to."""
    places = max(int(place.max(initial=-1)) + 1, 1)
    once = np.sort(read * places + place)
    read, place = np.divmod(once[np.diff(once, prepend=-1) > 0], places)
    pair = read_task[read] * places + place
    order = np.argsort(pair, kind="stable")
    pair, saved = pair[order], saved[read[order]]
    first = np.flatnonzero(np.diff(pair, prepend=-1))
    task, place = np.divmod(pair[first], places)
    return task, place, np.add.reduceat(saved, first) if len(first) else saved


def _sum(values: Ints, group: Ints, groups: int) -> Ints:
    total = np.zeros(groups, np.int64)
    np.add.at(total, group, values)
    return total
