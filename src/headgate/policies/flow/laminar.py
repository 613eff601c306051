"""A round as a laminar problem: every task in one place, GPUs or a pool of those that have none.

    (cluster, class) ──► (rack, class) ──► (node, class)    class: GPUs of one memory size

    pools, per group of jobs: not asked for, waiting; for all: freed early, closed

A task may go to the cluster, to racks and to nodes (`aggregated.options`) of each class that it
fits; the larger the class, the dearer. It may also stay without a GPU, in a pool of its group; the
solver leaves as few as possible without any place. A GPU that is held now is a unit as well: it
sits on its node, and gives way for the price of the wait until it is free.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.flow import Ints, LaminarSolver, OptionsPart, joined_options
from headgate.policies.flow.aggregated import Options, Placed, Round, options

CLASS_PRICE = 1
"""Microseconds per class that a GPU is larger than needed: breaks ties, keeps large ones free."""

_NOT_ASKED = -1
"""The price of a task beyond the `most` of its group: below that of any GPU, so no GPU gets it."""

Ways = tuple[Ints, Ints, Ints]
"""Unit, place and cost of some options; units ascend."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """A laminar problem, as `LaminarSolver` and `verify_laminar` take it."""

    parent: Ints  # [places]
    capacity: Ints  # [places]
    offsets: Ints  # [units + 1]
    place: Ints  # [options]
    cost: Ints  # [options]


class LaminarRound:
    """A round, solved, and the way back from its places to placements.

    Units are the tasks of the round, then its GPUs that are free later; places are those of the
    tree, leaves first, then the pools.
    """

    def __init__(self, round_: Round) -> None:
        self.round = round_
        self.options = options(round_)
        self._tree = _Tree(round_.node_rack, round_.slots)
        gpus = int(self._tree.capacity.sum())
        self._pools = _Pools(round_, gpus, first=len(self._tree.parent))
        self.problem = self._problem()
        self.solver = LaminarSolver(self.problem.parent, self.problem.capacity)
        self.units = self.solver.add(self.problem.offsets, self.problem.place, self.problem.cost)
        self._outcome = self.solver.solve()

    def _problem(self) -> Problem:
        round_, tree, pools = self.round, self._tree, self._pools
        tasks, later = len(round_.task_job), len(round_.later_node)
        held = tasks + np.arange(later)
        own = tree.at[0][round_.later_node, round_.later_class]
        ways = [
            *(
                _to_gpus(option, at, round_.task_class[option.task])
                for option, at in zip(self.options, tree.at, strict=True)
            ),
            *pools.ways(),
        ]
        somewhere = np.zeros(tasks, bool)
        for task, _, _ in ways:
            somewhere[task] = True
        nowhere = np.flatnonzero(~somewhere)
        ways += [
            (nowhere, np.full_like(nowhere, pools.closed), np.zeros_like(nowhere)),
            (held, own, np.zeros_like(held)),
            (held, np.full_like(held, pools.freed), round_.later_price),
        ]
        units = tasks + later
        offsets, place, cost = joined_options(
            units,
            [
                OptionsPart(np.bincount(unit, minlength=units), to, price)
                for unit, to, price in ways
            ],
        )
        return Problem(
            parent=np.concatenate([tree.parent, np.full(len(pools.capacity), -1)]),
            capacity=np.concatenate([tree.capacity, pools.capacity]),
            offsets=offsets,
            place=place,
            cost=cost,
        )

    def placed(self) -> Placed:
        """Return who is placed where."""
        units = self.units[: len(self.round.task_job)]
        leaf = self.solver.leaf_of(units)
        task = np.flatnonzero((leaf >= 0) & (leaf < len(self._tree.node)))
        return Placed(
            task=task,
            node=self._tree.node[leaf[task]],
            kind=self._tree.kind[leaf[task]],
            price=self.solver.cost_of(units[task]),
        )

    def price_of_slot(self, node: int, kind: int) -> int | None:
        """Return what is lost with one GPU of a node and class less; None for a task's run.

        The price of the leaf need not be it: where the optimum is degenerate, several are true.
        """
        leaf = self._tree.at[0][node, kind, None]
        room = self.problem.capacity[leaf]
        self.solver.set_capacity(leaf, room - 1)
        without = self.solver.solve()
        self.solver.set_capacity(leaf, room)
        self.solver.solve()
        if without.unplaced > self._outcome.unplaced:
            return None
        return without.cost - self._outcome.cost


class _Tree:
    """The places that have GPUs, now or later: nodes, then racks, then the whole cluster.

    `at` has a table of numbers per level, `[places of the level, classes]`, -1 where there is no
    GPU of the class; `node` and `kind` tell what a leaf is.
    """

    def __init__(self, node_rack: Ints, slots: Ints) -> None:
        in_rack = np.zeros((int(node_rack.max(initial=-1)) + 1, slots.shape[1]), np.int64)
        np.add.at(in_rack, node_rack, slots)
        in_all = in_rack.sum(axis=0, keepdims=True)
        self.node, self.kind = np.nonzero(slots)
        _, rack_kind = np.nonzero(in_rack)
        nodes = _numbered(slots, 0)
        racks = _numbered(in_rack, len(self.node))
        hubs = _numbered(in_all, len(self.node) + len(rack_kind))
        self.at = (nodes, racks, hubs)
        self.parent = np.concatenate([
            racks[node_rack[self.node], self.kind],
            hubs[0, rack_kind],
            np.full(np.count_nonzero(in_all), -1),
        ])  # fmt: skip
        self.capacity = np.zeros(len(self.parent), np.int64)
        self.capacity[: len(self.node)] = slots[self.node, self.kind]


def _numbered(gpus: Ints, first: int) -> Ints:
    table = np.full(gpus.shape, -1, np.int64)
    table[gpus > 0] = first + np.arange(np.count_nonzero(gpus))
    return table


class _Pools:
    """Where units are that have no GPU.

    Of the tasks of a group, those beyond its `most`, or beyond the GPUs there are, are not asked
    for; of the others, all but `least` may wait. GPUs that give way are freed early. Nobody gets
    into the closed one: it stands for the places of tasks that have none.
    """

    def __init__(self, round_: Round, gpus: int, first: int) -> None:
        self._round, self._first, groups = round_, first, len(round_.most)
        offered = np.bincount(round_.task_job, minlength=groups)
        asked = np.minimum(np.minimum(round_.most, offered), gpus)
        self.freed = first + 2 * groups
        self.closed = self.freed + 1
        self.capacity = np.concatenate([
            offered - asked,
            np.maximum(asked - round_.least, 0),
            [len(round_.later_node), 0],
        ])  # fmt: skip

    def ways(self) -> tuple[Ways, Ways]:
        """Return those to the pools."""
        job, groups = self._round.task_job, len(self._round.most)
        beyond = np.flatnonzero(self.capacity[job])
        waits = np.flatnonzero(self.capacity[groups + job])
        return (
            (beyond, self._first + job[beyond], np.full(len(beyond), _NOT_ASKED)),
            (waits, self._first + groups + job[waits], 2 * self._round.wait_price[job[waits]]),
        )


def _to_gpus(option: Options, at: Ints, smallest: Ints) -> Ways:
    """Return those to every class that a task fits and that is there."""
    place = at[option.place]
    row, kind = np.nonzero((place >= 0) & (np.arange(at.shape[1]) >= smallest[:, None]))
    price = option.price[row] + CLASS_PRICE * (kind - smallest[row])
    return option.task[row], place[row, kind], price
