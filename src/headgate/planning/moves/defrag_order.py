"""An order for moves in which each one's leaves are idle when its turn comes, and those leaves.

Given are the subtrees that units move to. Units that move one after the other leave their leaves at
known times, so each unit may take the leaves of its subtree that are idle in its turn, which its
own are not yet. Subtrees are nested, so giving the units of smaller subtrees their leaves first,
always those idle last, finds leaves for all whenever there are any: what it leaves over is best for
every unit that follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.planning.moves.ranked_tree import RankedTree

_MOST_TRIES = 2_000  # extensions of orders, and moves given leaves: all orders of five moves

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Relocation:
    """A unit (its index), the leaves that it moves to, and the phase (from 1) in which it does."""

    unit: int
    leaves: tuple[int, ...]
    phase: int


@dataclass(frozen=True, eq=False)
class Goal:
    """A unit, the leaves that it holds, how many it needs, and the subtree in which it gets them.

    A need is a goal that holds none.
    """

    unit: int
    held: Ints
    size: int
    vertex: int


@dataclass(frozen=True, eq=False)
class Schedule:
    """The moves in order, and the leaves of the need."""

    moves: tuple[Relocation, ...]
    leaves: Ints


def in_order(
    tree: RankedTree, idle: Bools, goals: Sequence[Goal], need: Goal
) -> tuple[Schedule | None, int, bool]:
    """Return moves to `goals`, and then the leaves of `need`; the tries; whether these were all.

    None if no order was found: O(moves + leaves) for each of at most 2,000 tries.
    """
    orders = _Orders(tree, idle, goals)
    for order in orders:
        times = _times(idle, [goals[index] for index in order])
        turns = [(turn, goals[index]) for turn, index in enumerate(order, start=1)]
        turns.append((len(order) + 1, need))
        # First those idle longest, as each move then waits for few others.
        chosen = _leaves(tree, times, turns, 1) or _leaves(tree, times, turns, -1)
        if chosen is not None:
            moves = _phased([goals[index] for index in order], chosen, times)
            return Schedule(moves, chosen[need.unit]), orders.tries, True
    return None, orders.tries, orders.tries < _MOST_TRIES


class _Orders:
    """The orders in which each goal, by counting, has room in its turn; smaller ones first."""

    def __init__(self, tree: RankedTree, idle: Bools, goals: Sequence[Goal]) -> None:
        self._tree, self._goals = tree, goals
        self._room = tree.counts(idle)
        self._vacated = [tree.held_by(goal.held) for goal in goals]
        sizes = [(goal.size, goal.unit, index) for index, goal in enumerate(goals)]
        self._by_size = [index for *_, index in sorted(sizes)]
        self.tries = 0

    def __iter__(self) -> Iterator[list[int]]:
        order = list[int]()
        stack = [self._ready(order)]
        while stack and self.tries < _MOST_TRIES:
            index = next(stack[-1], None)
            if index is None:
                stack.pop()
                if order:
                    self._move(order.pop(), -1)
                continue
            self.tries += 1
            self._move(index, 1)
            order.append(index)
            stack.append(self._ready(order))
            if len(order) == len(self._goals):
                self.tries += len(order)
                yield order
        if not self._goals:
            yield order

    def _ready(self, order: list[int]) -> Iterator[int]:
        moved = set(order)
        return (index for index in self._by_size if index not in moved and self._fits(index))

    def _fits(self, index: int) -> bool:
        goal = self._goals[index]
        return bool((self._room[self._tree.chain(goal.vertex)] >= goal.size).all())

    def _move(self, index: int, sign: int) -> None:
        goal, (vertices, count) = self._goals[index], self._vacated[index]
        self._room[vertices] += sign * count
        self._room[self._tree.chain(goal.vertex)] -= sign * goal.size


def _times(idle: Bools, order: Sequence[Goal]) -> Ints:
    """Return the turn after which each leaf is idle: 0 if it is now, else that of its unit."""
    times = np.where(idle, 0, _NEVER)
    for turn, goal in enumerate(order, start=1):
        times[goal.held] = turn
    return times


def _leaves(
    tree: RankedTree, times: Ints, turns: Sequence[tuple[int, Goal]], prefer: int
) -> dict[int, Ints] | None:
    """Return the leaves of each unit; None if one has too few by its turn.

    `prefer` is 1 for those idle first, -1 for those idle last.
    """
    left, chosen = times.copy(), dict[int, Ints]()
    capacity, rank = tree.capacity, tree.rank
    for turn, goal in sorted(turns, key=lambda t: (capacity[t[1].vertex], rank[t[1].vertex], t[0])):
        span = slice(int(tree.first_leaf[goal.vertex]), int(tree.end_leaf[goal.vertex]))
        usable = left[span] < turn
        price = prefer * left[span]
        prices = np.sort(price[usable])
        if len(prices) < goal.size:
            return None
        last = prices[goal.size - 1]
        takes, some = np.zeros(len(left), bool), np.zeros(len(left), bool)
        takes[span], some[span] = usable & (price < last), usable & (price == last)
        takes[_compact(tree, goal.vertex, some, goal.size - int(takes.sum()))] = True
        chosen[goal.unit] = np.flatnonzero(takes)
        left[takes] = _NEVER
    return chosen


def _compact(tree: RankedTree, vertex: int, usable: Bools, count: int) -> Ints:
    """Return `count` of the usable leaves below a vertex: the best fit, of few subtrees."""
    chosen = list[Ints]()
    counts = tree.counts(usable)
    while count:
        children = tree.children(vertex)
        if counts[vertex] == count or not len(children):
            span = np.arange(tree.first_leaf[vertex], tree.end_leaf[vertex])
            chosen.append(span[usable[span]][:count])
            break
        fits = children[counts[children] >= count]
        if len(fits):
            vertex = int(fits[counts[fits].argmin()])
            continue
        largest = int(children[counts[children].argmax()])
        span = np.arange(tree.first_leaf[largest], tree.end_leaf[largest])
        chosen.append(span[usable[span]])
        count -= int(counts[largest])
        usable = usable.copy()
        usable[span] = False
        counts = tree.counts(usable)
    return np.concatenate(chosen) if chosen else np.zeros(0, np.int64)


def _phased(order: Sequence[Goal], chosen: dict[int, Ints], times: Ints) -> tuple[Relocation, ...]:
    """Return the moves by phase."""
    phase, moves = dict[int, int](), list[Relocation]()
    for turn, goal in enumerate(order, start=1):
        leaves = chosen[goal.unit]
        after = np.unique(times[leaves]).tolist()
        phase[turn] = 1 + max((phase[t] for t in after if t), default=0)
        moves.append(Relocation(goal.unit, tuple(leaves.tolist()), phase[turn]))
    return tuple(sorted(moves, key=lambda move: (move.phase, move.unit)))
