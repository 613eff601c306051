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
    `later_class`, costs `later_price` besides. `read_price` has a column per `Locality`; of what
    read r reads there are replicas on `replica_node[replica_first[r]:replica_first[r + 1]]`.

    Rows name tasks, jobs and GPUs from round to round. A round that follows another one has only
    those of the tasks that are new to it or have other prices; of all else it has everything.
    """

    node_rack: Ints  # [nodes]
    free: Ints  # [nodes, classes] free GPUs, classes by growing memory
    task: Ints  # [tasks] rows, ascending
    task_job: Ints  # [tasks]
    task_class: Ints  # [tasks] smallest class that the task fits
    read_task: Ints  # [reads] who reads, ascending, one row per shard it reads
    read_price: Ints  # [reads, 3]
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
    tasks, price, node_rack = np.arange(len(round_.task_job)), round_.read_price, round_.node_rack
    node = round_.replica_node
    read = np.repeat(np.arange(len(round_.read_task)), np.diff(round_.replica_first))
    near = _Near(round_.read_task, len(tasks), read)
    anywhere = near.total(price[:, Locality.CLUSTER])

    # A read saves once per rack with a replica, and once more per node with one. Nodes are looked
    # at rack by rack, so that both go through a task's racks in the same order.
    saved = price[:, Locality.CLUSTER] - price[:, Locality.RACK]
    rack_task, rack, rack_saved = near.savings(node_rack[node], saved)
    in_rack = anywhere[rack_task] - rack_saved
    saved = price[:, Locality.RACK] - price[:, Locality.NODE]
    by_rack = np.argsort(node_rack, kind="stable")
    rank = np.empty_like(by_rack)
    rank[by_rack] = np.arange(len(by_rack))
    node_task, ranked, node_saved = near.savings(rank[node], saved)
    node = by_rack[ranked]
    other = (np.diff(node_task, prepend=-1) != 0) | (np.diff(node_rack[node], prepend=-1) != 0)
    on_node = in_rack[np.cumsum(other) - 1] - node_saved

    cheap_node, cheap_rack = np.flatnonzero(node_saved), np.flatnonzero(rack_saved)
    return (
        _options(node_task[cheap_node], node[cheap_node], on_node[cheap_node]),
        _options(rack_task[cheap_rack], rack[cheap_rack], in_rack[cheap_rack]),
        _options(tasks, np.zeros_like(tasks), anywhere),
    )


class _Near:
    """Reads and the places near to which there are replicas; `read` has one value per replica."""

    def __init__(self, read_task: Ints, tasks: int, read: Ints) -> None:
        each = np.bincount(read_task, minlength=tasks)
        self._first = np.cumsum(each) - each
        self._task = read_task[read]
        self._nth = read - self._first[self._task]  # of its task's reads
        self._nth_bits = int(each.max(initial=0)).bit_length()
        self._each = each

    def total(self, values: Ints) -> Ints:
        """Return the sum over each task's reads."""
        total = np.zeros(len(self._each), np.int64)
        some = np.flatnonzero(self._each)
        if len(some):
            total[some] = np.add.reduceat(values, self._first[some])
        return total

    def savings(self, place: Ints, saved: Ints) -> tuple[Ints, Ints, Ints]:
        """Return (task, place, saved), ascending; a read saves once per place that it is near to.

        `place` is that of each replica, `saved` what each read saves there.
        """
        place_bits, nth_bits = int(place.max(initial=0)).bit_length(), self._nth_bits
        # One number each, so that they are sorted fast: room for 2^24 tasks and places, and 2^15
        # shards that one task reads.
        key = np.sort((self._task << place_bits | place) << nth_bits | self._nth)
        key = key[np.diff(key, prepend=-1) > 0]
        pair = key >> nth_bits
        first = np.flatnonzero(np.diff(pair, prepend=-1))
        task = pair >> place_bits
        each = saved[self._first[task] + (key & ((1 << nth_bits) - 1))]
        total = np.add.reduceat(each, first) if len(first) else each
        return task[first], pair[first] & ((1 << place_bits) - 1), total


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
