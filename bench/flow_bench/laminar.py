"""A structure as a laminar forest: nested places, and options of units.

With one GPU class: hub -> rack -> node. With more: root -> hub of a class -> the nodes of that
class in a rack -> node. Pools are beside the tree, one per job. A unit that accepts all classes
has one option at the root, any other one at the hub of each class it accepts; all have one for each
accepted class in a rack with their data, and those at nodes of accepted classes. So every unit can
reach the nodes it accepts, at the same costs as if it had an option for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from flow_bench.classes import Classes, Wants
from flow_bench.structure import Structure, Tasks
from headgate.base.arrays import Ints
from headgate.flow import AnyInts, OptionsPart, joined_options


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forest:
    """Places: nodes (as in the structure), racks, hubs of classes, the root, pools, in this order.

    `parent, capacity` have shape `[places]`; only places without children have a capacity. With
    one class, `hubs` is `root`: it has no hub of its own.
    """

    parent: Ints
    capacity: Ints
    racks: int
    hubs: int
    root: int
    pools: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Options:
    """Options of units in CSR form: `place` at `cost`, from `offsets[u]` up to `offsets[u + 1]`."""

    offsets: Ints
    place: Ints
    cost: Ints


def forest(structure: Structure, classes: Classes, unscheduled_capacity: AnyInts) -> Forest:
    """Return the places of a structure. O(places)."""
    nodes, count = structure.nodes, classes.count
    hubs = nodes + structure.racks * count
    root = hubs if count == 1 else hubs + count
    parent = np.full(root + 1 + structure.jobs, -1, np.int64)
    if count == 1:
        parent[:nodes] = nodes + structure.rack
        parent[nodes:root] = root
    else:
        parent[:nodes] = nodes + structure.rack.astype(np.int64) * count + classes.of_node
        parent[nodes:hubs] = hubs + np.arange(hubs - nodes) % count
        parent[hubs:root] = root
    capacity = np.zeros(len(parent), np.int64)
    capacity[:nodes] = structure.free
    capacity[root + 1 :] = unscheduled_capacity
    return Forest(
        parent=parent, capacity=capacity, racks=nodes, hubs=hubs, root=root, pools=root + 1
    )


def options(places: Forest, classes: Classes, tasks: Tasks, wants: Wants) -> Options:
    """Return the options of tasks in such a forest. O(options x classes)."""
    pool = OptionsPart(None, places.pools + tasks.job, tasks.unscheduled_cost)
    if classes.count == 1:
        data = OptionsPart(np.diff(tasks.option_offsets), tasks.option_vertex, tasks.option_cost)
        hub = OptionsPart(None, places.root, tasks.cluster_cost)
    else:
        data = _data_by_class(places, classes, tasks, wants)
        hub = _hubs(places, classes, tasks, wants)
    offsets, place, cost = joined_options(len(tasks), [data, hub, pool])
    return Options(offsets=offsets, place=place, cost=cost)


# ---------------------------------------------------------------- classes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sets:
    """The members of every set of classes, by its bits, one set after the other."""

    first: Ints
    size: Ints
    member: Ints

    def spread(self, bits: Ints) -> tuple[Ints, Ints]:
        """Return the number of members of each of these sets, and all members, set by set."""
        counts = self.size[bits]
        ahead = np.cumsum(counts) - counts
        which = np.repeat(self.first[bits] - ahead, counts)
        which += np.arange(len(which))
        return counts, self.member[which]


@cache
def _sets(count: int, *, whole: bool) -> _Sets:
    """Return the sets of `count` classes; with `whole`, the full set has the one member `count`."""
    members = [[c for c in range(count) if bits >> c & 1] for bits in range(1 << count)]
    if whole:
        members[-1] = [count]
    size = np.array([len(one) for one in members])
    flat = np.array([c for one in members for c in one])
    return _Sets(first=np.cumsum(size) - size, size=size, member=flat)


def _data_by_class(places: Forest, classes: Classes, tasks: Tasks, wants: Wants) -> OptionsPart:
    """Return the options at nodes and racks with a task's data, as far as it accepts them."""
    nodes, count = places.racks, classes.count
    racks = (places.hubs - nodes) // count
    # The classes of each place as a set; and the place that class 0 has, or would have.
    there = np.zeros(nodes + racks, np.int64)
    there[:nodes] = 1 << classes.of_node
    np.bitwise_or.at(there, nodes + (places.parent[:nodes] - nodes) // count, there[:nodes])
    first = np.arange(nodes + racks)
    first[:nodes] -= classes.of_node
    first[nodes:] = nodes + count * np.arange(racks)

    vertex, lengths = tasks.option_vertex, np.diff(tasks.option_offsets)
    bits = np.repeat(wants.accepts, lengths) & there[vertex]
    counts, of_class = _sets(count, whole=False).spread(bits)
    before = np.concatenate([[0], np.cumsum(counts)])[tasks.option_offsets]
    return OptionsPart(
        np.diff(before),
        np.repeat(first[vertex], counts) + of_class,
        np.repeat(tasks.option_cost, counts),
    )


def _hubs(places: Forest, classes: Classes, tasks: Tasks, wants: Wants) -> OptionsPart:
    """Return the options at the root, or at the hubs of accepted classes."""
    # The root follows the hubs, as if it were the hub of one class more.
    counts, of_class = _sets(classes.count, whole=True).spread(wants.accepts)
    return OptionsPart(counts, places.hubs + of_class, np.repeat(tasks.cluster_cost, counts))
