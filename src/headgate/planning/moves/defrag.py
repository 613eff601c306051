"""Defragmentation by migration: the moves of least cost after which a need is placed well.

Leaves of a tree (GPUs) are idle, held by units, or unusable. A need of `count` leaves is placed at
full bandwidth in a subtree of the best rank of `count` (`planning.moves.ranked_tree`). If in each
too few leaves are idle, units move: each to leaves that are as near to each other as those that it
left, each at most once, and in an order in which its leaves are idle when its turn comes.

`least_moves` finds the moves of least total cost; of these the fewest, and of these always the
same. Whether units fit is decided by counting: when each unit that moves has been given a subtree,
its leaves exist if and only if no subtree has to hold more than it has (Hall's condition, which for
nested intervals of leaves is that alone). So the search is over subtrees, not leaves: branch and
bound, a unit that moves at a time, the largest first; a subtree without room for it evicts units,
one by one, and a unit once passed over never moves in what follows, so that no set of moves is met
twice. The bound is the cheapest way to free, leaf by leaf, what the unit lacks in its best subtree.

A problem with arbitrary sizes contains bin packing, so the time is exponential at worst; the search
ends after `work` steps, each O(leaves + subtrees), and returns the best moves found by then: valid
ones, but `proven` is false as cheaper ones may exist. It begins with greedy descents: units evict
smaller ones only, which finds moves where sizes and subtrees are powers of two.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.planning.moves.defrag_order import Goal, Relocation, Schedule, in_order
from headgate.planning.moves.ranked_tree import RankedTree
from headgate.planning.moves.symmetry import Symmetry

WORK = 2_000
"""Steps of a search by default."""

_DESCENTS = 4  # each from another subtree for the need

Branch: TypeAlias = Iterator["Branch"]


@dataclass(frozen=True, eq=False)
class Held:
    """The leaves that a unit holds, and what it costs to move it.

    `cost` is an integer, so that sums are exact: thousandths of GPU seconds, say. One that is not
    `movable` stays.
    """

    leaves: Ints
    cost: int
    movable: bool = True


@dataclass(frozen=True)
class Relocations:
    """Moves that make room, in order, and the leaves that are then idle for the need.

    The leaves of a move are idle once the moves of earlier phases have been made; none is its own.
    `proven` is whether no moves cost less, or as much and are fewer.
    """

    moves: tuple[Relocation, ...]
    leaves: tuple[int, ...]
    cost: int
    proven: bool

    @property
    def phases(self) -> int:
        """The number of phases."""
        return max((move.phase for move in self.moves), default=0)


@dataclass(frozen=True)
class NoMoves:
    """Why there are no moves.

    `too_few`: fewer leaves are idle than needed, or no subtree has so many. `blocked`: units would
    fit, but only by exchanging their leaves, for which none is idle. `proven` is false if the
    search ended at its limit of work: then there may be moves.
    """

    too_few: bool = False
    blocked: bool = False
    proven: bool = True


def least_moves(
    tree: RankedTree, held: Sequence[Held], idle: Bools, count: int, *, work: int = WORK
) -> Relocations | NoMoves:
    """Return the moves of least cost after which `count` leaves are idle at full bandwidth.

    `idle [leaves]` are free; leaves that are neither idle nor held are unusable. At most `work`
    steps of O(leaves + subtrees), after descents of as many as units move.
    """
    best_rank = tree.best_rank(count)
    if best_rank is None or int(idle.sum()) < count:
        return NoMoves(too_few=True)
    search = _Search(tree, held, idle, count, best_rank)
    return search.run(work)


class _Search:
    """One search. Units are numbers, the need is the number after the last.

    `slack` of a subtree: its leaves that are idle or were left by units that move, less those that
    units placed in it take. A unit is `free` while it may yet move.
    """

    def __init__(
        self, tree: RankedTree, held: Sequence[Held], idle: Bools, count: int, best_rank: int
    ) -> None:
        self._tree, self._held, self._idle = tree, held, idle
        self._need = len(held)
        self._size = [len(unit.leaves) for unit in held] + [count]
        self._weight = [unit.cost * (len(held) + 1) + 1 for unit in held] + [0]
        ends = np.array([(unit.leaves.min(), unit.leaves.max()) for unit in held]).reshape(-1, 2)
        ranks = [*tree.rank[tree.around(*ends.astype(np.int64).T)].tolist(), best_rank]
        top = int(tree.rank[0])  # a single leaf may be anywhere
        self._sizes = np.array(self._size)
        self._rank = [
            top if size == 1 else rank for size, rank in zip(self._size, ranks, strict=True)
        ]
        self._owner = np.full(tree.leaves, -1, np.int64)
        for number, unit in enumerate(held):
            self._owner[unit.leaves] = number
        self._free = np.array([unit.movable for unit in held] + [False])
        self._slack = tree.counts(idle)
        self._placed: dict[int, int] = {}  # where units that move go: subtrees
        self._pending: tuple[int, ...] = (self._need,)  # units without a place, the largest first
        self._spent = 0
        self._best: Schedule | None = None
        self._limit = 1 + sum(self._weight)  # only what costs less is looked for
        self._blocked, self._all_orders = False, True
        self._work = 0
        self._prices: dict[int, _Prices] = {}
        self._above: dict[int, tuple[Ints, Ints]] = {}
        self._touched = np.zeros(len(tree.parent), np.int64)  # how much differs from the start
        kinds = [(self._weight[n], self._size[n], self._rank[n]) for n in range(len(held))]
        numbers = {kind: number for number, kind in enumerate(sorted(set(kinds)))}
        self._kind = [
            numbers[kind] if unit.movable else -1 for kind, unit in zip(kinds, held, strict=True)
        ]
        self._symmetry = Symmetry(tree, self._owner, self._kind, idle)

    def run(self, work: int) -> Relocations | NoMoves:
        """Return the best moves found: greedily, then by a search of at most `work` steps."""
        bound = self._bound()
        for passed in range(_DESCENTS):
            if self._limit > bound:
                self._descend(passed)
        proven = self._limit <= bound or self._explore(work)
        if self._best is None:
            return NoMoves(blocked=self._blocked, proven=proven)
        moves = self._best.moves
        cost = sum(self._held[move.unit].cost for move in moves)
        return Relocations(moves, tuple(self._best.leaves.tolist()), cost, proven)

    def _bound(self) -> int:
        """Return a weight that no moves are below."""
        least = float(
            self._prices_of(self._need).least(self._slack, self._size[self._need], self._free).min()
        )
        return self._limit if math.isinf(least) else math.ceil(least)

    def _explore(self, work: int) -> bool:
        """Search; return whether all was searched."""
        self._work = work
        stack: list[Branch] = [self._place()]
        while stack and self._work > 0:
            branch = next(stack[-1], None)
            if branch is None:
                stack.pop()
            else:
                stack.append(branch)
                self._work -= 1
        return not stack and self._all_orders

    # --- the greedy start -----------------------------------------------------------------------

    def _descend(self, passed: int) -> None:
        """Keep moves in which each unit evicts only smaller ones, if these cost less than others.

        The need gets the cheapest subtree to make room in, of those after the first `passed`.
        What a unit leaves is used by the unit that it was evicted for alone, so the moves can be
        made, the smallest units first. O(units that move x subtrees of a rank x leaves) at worst.
        """
        free, room = self._free.copy(), self._slack.copy()
        pending, placed = [self._need], dict[int, int]()
        while pending:
            unit = pending.pop(0)
            smaller = free & (self._sizes < self._size[unit])
            first = passed if unit == self._need else 0
            for _, vertex in self._candidates(unit, room, smaller)[first:]:
                evicted = self._evictions(unit, vertex, room, smaller)
                if evicted is not None:
                    break
            else:
                return
            placed[unit] = vertex
            chain, credit = self._tree.chain(vertex), np.zeros(len(room), np.int64)
            for number in evicted:
                vertices, count = self._above_of(number)
                credit[vertices] += count
            room[chain] -= np.maximum(self._size[unit] - credit[chain], 0)
            free[evicted] = False
            pending = sorted((*pending, *evicted), key=self._by_size)
        self._spent = sum(self._weight[unit] for unit in placed)
        self._placed = placed
        if self._spent < self._limit:
            self._keep()
        self._spent, self._placed = 0, {}

    def _evictions(self, unit: int, vertex: int, room: Ints, movable: Bools) -> list[int] | None:
        """Return units whose leaves make room for one in a subtree, none needlessly; or None."""
        chain = self._tree.chain(vertex)
        lack = self._size[unit] - room[chain]
        who = self._evictable(vertex, movable)[0] if (lack > 0).any() else []
        chosen, freed = list[int](), dict[int, Ints]()
        for number in who:
            if (lack <= 0).all():
                break
            vertices, count = self._above_of(number)
            freed[number] = _at(chain, vertices, count)
            lack = lack - freed[number]
            chosen.append(number)
        if (lack > 0).any():
            return None
        for number in sorted(chosen, key=lambda n: (-self._weight[n], n)):
            if (lack + freed[number] <= 0).all():
                lack = lack + freed[number]
                chosen.remove(number)
        return chosen

    # --- the branches ---------------------------------------------------------------------------

    def _place(self) -> Branch:
        """Try the subtrees for the first pending unit, the cheapest to make room in first."""
        if not self._pending:
            yield self._complete()
            return
        pending, unit = self._pending, self._pending[0]
        self._pending = pending[1:]
        tried = set[Hashable]()
        for bound, vertex in self._candidates(unit, self._slack, self._free):
            alike = self._symmetry.key(vertex, self._touched)
            if self._spent + bound >= self._limit:
                break
            if alike in tried or self._is_home(unit, vertex):
                continue
            tried.add(alike)
            self._take(unit, vertex, 1)
            yield self._make_room(unit, vertex)
            self._take(unit, vertex, -1)
        self._pending = pending

    def _is_home(self, unit: int, vertex: int) -> bool:
        """Return whether a unit has its leaves in a subtree where it could as well stay."""
        home = unit != self._need and bool(self._tree.flat[vertex])
        return home and vertex in self._above_of(unit)[0]

    def _make_room(self, unit: int, vertex: int) -> Branch:
        """Evict units until each subtree around `vertex` holds what is placed in it."""
        chain = self._tree.chain(vertex)
        short = chain[self._slack[chain] < 0]
        if not len(short):
            yield self._place()
            return
        lowest = int(short[0])
        lack, passed = -int(self._slack[lowest]), list[int]()
        who, have = self._evictable(lowest, self._free)
        for index, number in enumerate(who):
            if not self._free[number]:
                continue  # like one that was passed over
            if self._spent + self._least(who[index:], have[index:], lack) >= self._limit:
                break
            yield from self._evict(number, self._make_room(unit, vertex))
            alike = self._alike(number, who, have, lowest)
            passed += alike
            self._pass(alike, -1)
        self._pass(passed, 1)

    def _complete(self) -> Branch:
        """Keep the moves if they can be made in an order; else let another unit move, too."""
        if self._spent >= self._limit:
            return
        if self._keep():
            return
        passed = list[int]()
        others = np.flatnonzero(self._free).tolist()
        for number in sorted(others, key=lambda n: (self._weight[n], n)):
            if self._spent + self._weight[number] >= self._limit:
                break
            yield from self._evict(number, self._place())
            passed.append(number)
            self._pass([number], -1)
        self._pass(passed, 1)

    def _keep(self) -> bool:
        """Keep the moves to where units are placed as the best if they can be made in an order."""
        goals = [
            Goal(unit, self._held[unit].leaves, self._size[unit], vertex)
            for unit, vertex in sorted(self._placed.items())
            if unit != self._need
        ]
        none = np.zeros(0, np.int64)
        need = Goal(self._need, none, self._size[self._need], self._placed[self._need])
        moves, tries, all_tried = in_order(self._tree, self._idle, goals, need)
        self._work -= tries // 16
        if moves is not None:
            self._best, self._limit = moves, self._spent
            return True
        self._blocked, self._all_orders = True, self._all_orders and all_tried
        return False

    # --- steps, and back ------------------------------------------------------------------------

    def _take(self, unit: int, vertex: int, sign: int) -> None:
        """Place a unit in a subtree, or take it out (`sign` is -1)."""
        chain = self._tree.chain(vertex)
        self._slack[chain] -= sign * self._size[unit]
        self._touched[chain] += sign
        if sign > 0:
            self._placed[unit] = vertex
        else:
            del self._placed[unit]

    def _evict(self, number: int, then: Branch) -> Branch:
        """Let a unit move, continue, and undo it."""
        vertices, count = self._above_of(number)
        pending = self._pending
        self._free[number] = False
        self._slack[vertices] += count
        self._touched[vertices] += 1
        self._spent += self._weight[number]
        self._pending = tuple(sorted((*pending, number), key=self._by_size))
        yield then
        self._pending = pending
        self._spent -= self._weight[number]
        self._touched[vertices] -= 1
        self._slack[vertices] -= count
        self._free[number] = True

    def _pass(self, units: Sequence[int], sign: int) -> None:
        """Let units never move in what follows (`sign` is -1), or end that."""
        for number in units:
            self._free[number] = sign > 0
            self._touched[self._above_of(number)[0]] -= sign

    # --- what there is to choose from -----------------------------------------------------------

    def _by_size(self, number: int) -> tuple[int, int]:
        return -self._size[number], number

    def _candidates(self, unit: int, slack: Ints, movable: Bools) -> list[tuple[int, int]]:
        """Return bounds of the weight of room for a unit, and in which subtrees, ascending."""
        prices = self._prices_of(unit)
        bounds = prices.least(slack, self._size[unit], movable)
        order = np.lexsort((slack[prices.vertices], bounds))  # which is stable
        order = order[bounds[order] < self._limit - self._spent]
        least = np.ceil(bounds[order]).astype(np.int64).tolist()
        return list(zip(least, prices.vertices[order].tolist(), strict=True))

    def _evictable(self, vertex: int, movable: Bools) -> tuple[list[int], list[int]]:
        """Return units with leaves below a vertex, and how many; the cheap for these first."""
        owner = self._owner[self._tree.first_leaf[vertex] : self._tree.end_leaf[vertex]]
        units, count = np.unique(owner[owner >= 0], return_counts=True)
        free = movable[units]
        have = dict(zip(units[free].tolist(), count[free].tolist(), strict=True))
        who = sorted(have, key=lambda n: (self._weight[n] / have[n], self._size[n], n))
        return who, [have[number] for number in who]

    def _least(self, who: Sequence[int], have: Sequence[int], lack: int) -> int:
        """Return a bound of the weight of units that free `lack` leaves; the limit if none do."""
        weight = 0.0
        for number, count in zip(who, have, strict=True):
            if lack <= 0:
                break
            if self._free[number]:
                weight += self._weight[number] * min(count, lack) / count
                lack -= count
        return math.ceil(weight * (1 - 1e-12)) if lack <= 0 else self._limit

    def _alike(
        self, number: int, who: Sequence[int], have: Sequence[int], vertex: int
    ) -> list[int]:
        """Return a unit and those with leaves below a vertex that could change places with it."""
        alike = [number]
        if self._tree.flat[vertex] and have[who.index(number)] == self._size[number]:
            alike += [
                other
                for other, count in zip(who, have, strict=True)
                if other != number
                and self._free[other]
                and count == self._size[other]
                and self._kind[other] == self._kind[number]
            ]
        return alike

    def _above_of(self, number: int) -> tuple[Ints, Ints]:
        if number not in self._above:
            self._above[number] = self._tree.held_by(self._held[number].leaves)
        return self._above[number]

    def _prices_of(self, unit: int) -> _Prices:
        rank = self._rank[unit]
        if rank not in self._prices:
            weight = np.array(self._weight, np.float64)
            self._prices[rank] = _Prices(self._tree, rank, self._owner, weight, self._free)
        return self._prices[rank]


def _at(chain: Ints, vertices: Ints, count: Ints) -> Ints:
    """Return the counts of vertices, ascending, at those of a chain; 0 for others."""
    index = np.minimum(np.searchsorted(vertices, chain), len(vertices) - 1)
    found: Ints = np.where(vertices[index] == chain, count[index], 0)
    return found


class _Prices:
    """What leaves cost to free in each subtree of a rank: a unit's weight, by leaf it has there."""

    def __init__(
        self, tree: RankedTree, rank: int, owner: Ints, weight: Floats, movable: Bools
    ) -> None:
        self.vertices = tree.containers(rank)
        leaves = np.flatnonzero((owner >= 0) & movable[owner])
        where = np.searchsorted(tree.first_leaf[self.vertices], leaves, side="right") - 1
        units = owner[leaves]
        _, which, count = np.unique(
            where * len(weight) + units, return_inverse=True, return_counts=True
        )
        price = weight[units] / count[which]
        order = np.lexsort((price, where))
        self._unit, self._price = units[order], price[order]
        bounds = np.arange(len(self.vertices) + 1)
        self._begin = np.searchsorted(where[order], bounds)

    def least(self, slack: Ints, size: int, movable: Bools) -> Floats:
        """Return a bound of the weight of room for `size` leaves in each subtree; inf for none."""
        lack = np.maximum(size - slack[self.vertices], 0)
        if not lack.any():
            return np.zeros(len(lack))
        counted = movable[self._unit]
        count: Ints = np.zeros(len(counted) + 1, np.int64)
        np.cumsum(counted, out=count[1:])
        total: Floats = np.zeros(len(counted) + 1)
        np.cumsum(np.where(counted, self._price, 0.0), out=total[1:])
        begin, end = self._begin[:-1], self._begin[1:]
        target = count[begin] + lack
        last = np.minimum(np.searchsorted(count, target), len(self._unit))
        error = total[-1] * 4e-15  # of the sums
        least = np.maximum(total[last] - total[begin] - error, 0.0)
        enough: Bools = target <= count[end]
        bound: Floats = np.where(enough, least, math.inf)
        return bound
