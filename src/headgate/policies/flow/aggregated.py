"""A round as a small network: tasks meet nodes, racks and the whole cluster, not every free GPU.

    job ──► task ──► (node, class) ───────────────┐         class: GPUs of one memory size;
     │       ├─────► (rack, class) ──► nodes of it ┼─► sink  from (place, k) an arc leads on to
     │       └─────► (cluster, class) ► its racks ─┘         (place, next larger class)
     └──► waiting ──────────────────────────────────► sink

A task has an arc to a node, or to a rack, only where that is nearer to its data than the place
around it; its price on a node is that of its cheapest way there, since prices grow with distance.
So the optimum is that of the network with one arc from each task to each free GPU that it fits
(flow paper, section 4), with some arcs per shard in place of one per GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from headgate.decision.costs import PRICE_LIMIT
from headgate.flow import Ints, Network, Solution, unit_paths
from headgate.model import Locality

CLASS_PRICE = 1
"""Microseconds per class that a GPU is larger than needed: breaks ties, keeps large ones free."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Round:
    """What is free, what waits, and what each thing costs; int64 arrays, prices in microseconds.

    A job (or several that are limited together, as one) places at most `most` of its tasks, and at
    least `least` where GPUs allow; one that it might place but does not costs twice `wait_price`.
    A GPU that is free later, one of `later_node` and `later_class`, costs `later_price` besides.
    `shard_price` has a column per `Locality`; the replicas of shard s are
    `replica_node[replica_first[s]:replica_first[s + 1]]`.
    """

    node_rack: Ints  # [nodes]
    free: Ints  # [nodes, classes] free GPUs, classes by growing memory
    task_job: Ints  # [tasks]
    task_class: Ints  # [tasks] smallest class that the task fits
    read_task: Ints  # [reads] who reads, one row per shard it reads
    read_shard: Ints  # [reads]
    shard_price: Ints  # [shards, 3]
    replica_first: Ints  # [shards + 1]
    replica_node: Ints  # [replicas]
    most: Ints  # [jobs]
    least: Ints  # [jobs]
    wait_price: Ints  # [jobs]
    later_node: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # [later]
    later_class: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # [later]
    later_price: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # [later]

    @property
    def slots(self) -> Ints:
        """GPUs that are free now or later, `[nodes, classes]`."""
        slots = self.free.copy()
        np.add.at(slots, (self.later_node, self.later_class), 1)
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


def _options(task: Ints, place: Ints, price: Ints) -> Options:
    return Options(task=task, place=place, price=np.minimum(price, PRICE_LIMIT))


def _savings(read_task: Ints, read: Ints, place: Ints, saved: Ints) -> tuple[Ints, Ints, Ints]:
    """Return (task, place, saved), ascending; a read saves once per place that it is near to."""
    places = int(place.max(initial=-1)) + 1
    once = np.unique(read * places + place)
    read, place = np.divmod(once, max(places, 1))
    pairs, number = np.unique(read_task[read] * places + place, return_inverse=True)
    total = _sum(saved[read], number, len(pairs))
    task, place = np.divmod(pairs, max(places, 1))
    return task, place, total


def _sum(values: Ints, group: Ints, groups: int) -> Ints:
    total = np.zeros(groups, np.int64)
    np.add.at(total, group, values)
    return total


class _Level:
    """The vertices of one level of places: one per place and class with free GPUs.

    `at[place, k]` is the vertex of exactly class k or -1; `entry[place, k]` that of the smallest
    class from k on that has free GPUs there, or -1.
    """

    def __init__(self, free: Ints, first_vertex: int) -> None:
        self.free = free
        self.place, self.kind = np.nonzero(free)
        self.vertex = first_vertex + np.arange(len(self.place))
        self.end = first_vertex + len(self.place)
        self.at = np.full(free.shape, -1, np.int64)
        self.at[self.place, self.kind] = self.vertex
        self.entry = np.full((free.shape[0], free.shape[1] + 1), -1, np.int64)
        for k in reversed(range(free.shape[1])):
            self.entry[:, k] = np.where(self.at[:, k] >= 0, self.at[:, k], self.entry[:, k + 1])

    def kind_of(self, vertex: Ints) -> Ints:
        """Return the classes of vertices of this level."""
        return self.kind[vertex - self.vertex[0]] if len(vertex) else vertex


class _Arcs:
    """Arcs gathered in blocks."""

    def __init__(self) -> None:
        self._blocks: list[tuple[Ints, ...]] = []
        self._count = 0

    def add(self, tail: Ints, head: Ints, capacity: Ints | int, cost: Ints | int) -> slice:
        """Add arcs where `head` is a vertex (not -1) and return where they stand."""
        keep = head >= 0
        block = np.broadcast_arrays(tail, head, capacity, cost)
        self._blocks.append(tuple(column[keep] for column in block))
        start, self._count = self._count, self._count + int(keep.sum())
        return slice(start, self._count)

    def network(self, supply: Ints) -> Network:
        """Return them as a network."""
        tail, head, capacity, cost = (np.concatenate(c) for c in zip(*self._blocks, strict=True))
        return Network(tail=tail, head=head, capacity=capacity, cost=cost, supply=supply)


class Aggregated:
    """The network of a round, and the way back from its flow to placements.

    Vertices: tasks, jobs, one to wait at per job, (node, class), (rack, class), (cluster, class),
    sink. Flow enters at the jobs, `most` units each, so no source is needed.
    """

    def __init__(self, round_: Round) -> None:
        self.round = round_
        self.options = options(round_)
        tasks, jobs = len(round_.task_job), len(round_.most)
        racks = int(round_.node_rack.max(initial=-1)) + 1
        slots = round_.slots
        in_rack = np.zeros((racks, slots.shape[1]), np.int64)
        np.add.at(in_rack, round_.node_rack, slots)
        self._nodes = _Level(slots, tasks + 2 * jobs)
        racks_level = _Level(in_rack, self._nodes.end)
        cluster = _Level(in_rack.sum(axis=0, keepdims=True), racks_level.end)
        levels = (self._nodes, racks_level, cluster)
        sink = np.array(cluster.end)
        arcs = _Arcs()

        job = tasks + np.arange(jobs)
        self._offered = arcs.add(job[round_.task_job], np.arange(tasks), 1, 0)
        may_wait = round_.most - round_.least
        arcs.add(job, job + jobs, may_wait, round_.wait_price)
        arcs.add(job + jobs, np.full(jobs, sink), may_wait, round_.wait_price)
        for level, option in zip(levels, self.options, strict=True):
            kind = round_.task_class[option.task]
            entry = level.entry[option.place, kind]
            larger = level.kind_of(entry[entry >= 0])
            price = option.price.copy()
            price[entry >= 0] += CLASS_PRICE * (larger - kind[entry >= 0])
            arcs.add(option.task, entry, 1, price)
        for level in levels:
            after = level.entry[level.place, level.kind + 1]
            steps = np.zeros_like(after)
            steps[after >= 0] = level.kind_of(after[after >= 0]) - level.kind[after >= 0]
            arcs.add(level.vertex, after, int(slots.sum()), CLASS_PRICE * steps)
        node, kind = self._nodes.place, self._nodes.kind
        arcs.add(self._nodes.vertex, np.full(len(node), sink), round_.free[node, kind], 0)
        later = self._nodes.at[round_.later_node, round_.later_class]
        arcs.add(later, np.full(len(later), sink), 1, round_.later_price)
        into = slots[node, kind]
        arcs.add(racks_level.at[round_.node_rack[node], kind], self._nodes.vertex, into, 0)
        rack, kind = racks_level.place, racks_level.kind
        arcs.add(cluster.at[0, kind], racks_level.vertex, in_rack[rack, kind], 0)

        supply = np.zeros(int(sink) + 1, np.int64)
        supply[job], supply[sink] = round_.most, -round_.most.sum()
        self.network = arcs.network(supply)

    def placed(self, solution: Solution) -> Placed:
        """Return the placements that a flow stands for."""
        network = self.network
        task = network.head[self._offered][solution.flow[self._offered] > 0]
        paths = unit_paths(network, solution.flow, task)
        last = paths[np.arange(len(task)), (paths >= 0).sum(axis=1) - 1] if len(task) else task
        index = network.tail[last] - (self._nodes.end - len(self._nodes.vertex))
        price = np.where(paths >= 0, network.cost[paths], 0).sum(axis=1) - network.cost[last]
        return Placed(
            task=task, node=self._nodes.place[index], kind=self._nodes.kind[index], price=price
        )
