"""The scaling decision: which nodes to order, and which idle ones to drain. Pure.

Spillover paper, section 5: N = max(N1, N2) nodes, of which vertical scaling makes those for tasks
that no node could hold, and horizontal scaling the others. Deviations: a shape is ordered as often
as parked demand needs it, less what is on its way, and N2 counts capacity, not nodes, as nodes
differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from headgate.model import UNLIMITED, WHOLE, Demand, Node
from headgate.model.scaling import Scaling, Shape
from headgate.planning.units.fit import by_size, demand_text, gpus_that_fit, runs_that_fit
from headgate.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Equal units that wait: `count` times the demands of tasks that start together.

    A single task is a unit of one demand. With `distinct_nodes`, each is for another node.
    """

    demands: tuple[Demand, ...]
    count: int = 1
    distinct_nodes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node that is up and not draining: the shape that it was ordered as, "" if it was not.

    `idle_since` is None while a run holds any of it, or it is reserved; `held` is what runs hold.
    """

    node: Node
    shape: str = ""
    idle_since: float | None = None
    held: tuple[Demand, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Names of shapes to order, ids of nodes to drain, and when time alone changes the answer.

    `unmet` says for each parked unit that gets no node why not, by its place in the input.
    """

    orders: tuple[str, ...] = ()
    drains: tuple[str, ...] = ()
    again_at: float | None = None
    unmet: dict[int, str] = field(default_factory=dict)


def wanted(
    scaling: Scaling,
    *,
    now: float,
    parked: Sequence[Pending],
    waiting: Sequence[Pending],
    nodes: Sequence[Member],
    ordered: Sequence[str],
) -> Wanted:
    """Return the nodes to order and to drain.

    `parked` could run on none of the nodes, even idle; `waiting` could, and does not; `ordered` are
    the shapes of nodes on their way. Each parked unit goes to the first node on its way, or ordered
    in this round, that still holds it (largest units first), else to a new one of the smallest
    shape that holds it. O(distinct demands x shapes + nodes ordered x demands + nodes).
    """
    round_ = _Round(scaling, nodes, ordered)
    unmet = round_.vertical(parked)
    round_.horizontal(waiting)
    idle = sorted(
        (member.idle_since, number)
        for number, member in enumerate(nodes)
        if member.shape and member.idle_since is not None
    )
    drains: list[str] = []
    again_at = None
    for since, number in idle:
        if not round_.can_lose(nodes[number], waiting, len(drains)):
            continue
        at = since + scaling.idle_after_s
        if at > now:
            again_at = at
            break
        drains.append(nodes[number].node.id)
        round_.lose(nodes[number])
    return Wanted(orders=tuple(round_.orders), drains=tuple(drains), again_at=again_at, unmet=unmet)


def holds(shape: Shape, demand: Demand) -> bool:
    """Return whether a node of a shape, idle, could hold a run of a demand."""
    return runs_that_fit(shape.node("", ""), demand) > 0


def by_cost(scaling: Scaling) -> list[Shape]:
    """Return the shapes, the smallest first: by cost, GPUs, CPUs, memory, and place in the file."""
    return sorted(scaling.shapes, key=_size)


def nearest_shape(scaling: Scaling, demand: Demand) -> Shape | None:
    """Return the shape that has the largest part of what it lacks of a demand; None without any."""
    shapes = by_cost(scaling)
    return max(shapes, key=lambda shape: _covered(shape, demand), default=None)


def _size(shape: Shape) -> tuple[float, int, int, int]:
    memory = UNLIMITED if shape.memory_bytes is None else shape.memory_bytes
    return shape.cost_per_h, len(shape.gpus), shape.cpus, memory


def _covered(shape: Shape, demand: Demand) -> float:
    """Return the least part of what a demand needs that a shape has, over all kinds, at most 1."""
    custom = dict(shape.custom)
    large = gpus_that_fit(shape.node("", ""), demand)
    memory = math.inf if shape.memory_bytes is None else shape.memory_bytes
    pairs: list[tuple[float, int]] = [(large, demand.gpus), (WHOLE * shape.cpus, demand.cpus_milli)]
    pairs += [(memory, demand.memory_bytes)]
    pairs += [(custom.get(name, 0), milli) for name, milli in demand.custom]
    return min([1.0, *(has / needs for has, needs in pairs if needs)])


class _Round:
    """One decision: nodes on their way and ordered as bins, and what the limits leave."""

    def __init__(self, scaling: Scaling, nodes: Sequence[Member], ordered: Sequence[str]) -> None:
        self._scaling, self._shapes = scaling, by_cost(scaling)
        self._nodes, self._coming = nodes, list(ordered)
        self._named = {shape.name: shape for shape in scaling.shapes}
        self._count = len(nodes) + len(ordered)
        self._of_shape: dict[str, int] = {}
        self._cost_per_h = 0.0
        self._bins = State()
        self._first: dict[Demand, int] = {}  # bins before it are too full for a demand
        self._capacity: dict[str, float] = {}
        self._demanded: dict[str, float] = {}
        self.orders: list[str] = []
        for name in (*(member.shape for member in nodes if member.shape), *ordered):
            self._of_shape[name] = self._of_shape.get(name, 0) + 1
            self._cost_per_h += self._named[name].cost_per_h if name in self._named else 0.0
        for name in ordered:
            if name in self._named:
                self._add_bin(self._named[name])

    # --- vertical ------------------------------------------------------------------------------

    def vertical(self, parked: Sequence[Pending]) -> dict[int, str]:
        """Order nodes for parked units; return by the place of a unit why it gets none."""
        largest = sorted(range(len(parked)), key=lambda n: sorted(map(_weight, parked[n].demands)))
        unmet: dict[int, str] = {}
        for number in largest:
            why = self._order_for(parked[number])
            if why:
                unmet[number] = why
        return unmet

    def _order_for(self, unit: Pending) -> str:
        """Place equal units, all of one before the next; return why one cannot be, or ""."""
        left = unit.count
        if len(unit.demands) == 1:
            left -= self._fill_nodes(unit.demands[0], unit.count)
        for _ in range(left):
            before, used = len(self.orders), set[int]()
            for demand in sorted(unit.demands, key=by_size):
                row = self._place(demand, used if unit.distinct_nodes else set())
                if isinstance(row, str):
                    self._undo(before)
                    return row
                used.add(row)
        return ""

    def _fill_nodes(self, demand: Demand, count: int) -> int:
        """Order nodes that equal tasks fill, beyond what bins hold; return how many tasks that is.

        So that many equal tasks are one decision for each node, not for each task.
        """
        shape = next((each for each in self._shapes if holds(each, demand)), None)
        together = 0 if shape is None else runs_that_fit(shape.node("", ""), demand)
        room = sum(
            min(count, runs_that_fit(self._bins.node(row), demand))
            for row in range(len(self._bins.nodes.spec))
        )
        filled = 0
        while shape is not None and count - room - filled >= together > 0:
            if self._limit(shape):
                break
            self._order(shape)
            filled += together
        return filled

    def _place(self, demand: Demand, without: set[int]) -> int | str:
        """Put a task on the first bin that holds it, or a new one; return which, or why none."""
        known = self._bins.names.demand(demand)
        ledger = self._bins.ledger
        for row in range(self._first.get(demand, 0), len(self._bins.nodes.spec)):
            gpus = None if row in without else ledger.best_gpus(known, row)
            if gpus is not None:
                if not without:
                    self._first[demand] = row
                ledger.take(0, known, row, gpus)
                return row
        fitting = [shape for shape in self._shapes if holds(shape, demand)]
        shape = next((shape for shape in fitting if not self._limit(shape)), None)
        if shape is None:
            if not fitting:
                near = nearest_shape(self._scaling, demand)
                nearest = "" if near is None else f"; the nearest is {near.name}"
                return f"no shape has {demand_text(demand)}{nearest}"
            return self._limit(fitting[0])
        self._order(shape)
        row = self._add_bin(shape)
        gpus = ledger.best_gpus(known, row)
        assert gpus is not None, "the shape holds it"
        ledger.take(0, known, row, gpus)
        return row

    def _add_bin(self, shape: Shape) -> int:
        return self._bins.add_node(shape.node(f"{len(self._bins.nodes.spec)}", ""))

    def _order(self, shape: Shape) -> None:
        self.orders.append(shape.name)
        self._count += 1
        self._of_shape[shape.name] = self._of_shape.get(shape.name, 0) + 1
        self._cost_per_h += shape.cost_per_h

    def _undo(self, orders: int) -> None:
        """Withdraw the orders for a unit that cannot be placed as a whole; their bins stay full."""
        for name in self.orders[orders:]:
            self._count -= 1
            self._of_shape[name] -= 1
            self._cost_per_h -= self._named[name].cost_per_h
        del self.orders[orders:]

    def _limit(self, shape: Shape) -> str:
        """Return the limit that one more node of a shape would exceed, "" for none."""
        scaling = self._scaling
        if scaling.max_nodes is not None and self._count >= scaling.max_nodes:
            return f"max_nodes is {scaling.max_nodes}"
        if shape.most is not None and self._of_shape.get(shape.name, 0) >= shape.most:
            return f"max of shape {shape.name} is {shape.most}"
        ceiling = scaling.max_cost_per_h
        if ceiling is not None and self._cost_per_h + shape.cost_per_h > ceiling * (1 + 1e-9):
            return f"max_cost_per_h is {ceiling:g}"
        return ""

    # --- horizontal ----------------------------------------------------------------------------

    def horizontal(self, waiting: Sequence[Pending]) -> None:
        """Order nodes of the first shape of the catalogue: for utilisation, demand and floor."""
        if not self._scaling.shapes:
            return
        default = self._scaling.shapes[0]
        self._capacity = _sums((m.node, 1) for m in self._nodes)
        for name in self._coming + self.orders:
            if name in self._named:
                node = self._named[name].node("", "")
                for kind, amount in _amounts(node):
                    self._capacity[kind] = self._capacity.get(kind, 0) + amount
        held = [(demand, 1) for member in self._nodes for demand in member.held]
        asked = [(demand, unit.count) for unit in waiting for demand in unit.demands]
        self._demanded = _needs([*held, *asked])
        while self._short(default, 0) and not self._limit(default):
            self._order(default)
            for kind, amount in _amounts(default.node("", "")):
                self._capacity[kind] = self._capacity.get(kind, 0) + amount

    def _short(self, default: Shape, lost: int) -> bool:
        """Return whether fewer nodes are there or on their way than N1, N2 and the floor want."""
        scaling, count = self._scaling, self._count - lost
        in_use = sum(member.idle_since is None for member in self._nodes)
        if count < max(scaling.floor, math.ceil(in_use / scaling.utilisation - 1e-9)):
            return True
        offered = dict(_amounts(default.node("", "")))
        return any(
            needs > self._capacity.get(kind, 0) and offered.get(kind, 0)
            for kind, needs in self._demanded.items()
        )

    # --- drains --------------------------------------------------------------------------------

    def can_lose(self, member: Member, waiting: Sequence[Pending], drained: int) -> bool:
        """Return whether a round without an idle node would order nothing, nor use it."""
        if self.orders or self._coming or len(self._nodes) - drained <= self._scaling.floor:
            return False
        demands = {demand for unit in waiting for demand in unit.demands}
        if any(runs_that_fit(member.node, demand) for demand in demands):
            return False
        self._book(member, -1)
        short = self._short(self._scaling.shapes[0], 1) if self._scaling.shapes else False
        self._book(member, 1)
        return not short

    def lose(self, member: Member) -> None:
        """Count a node as drained."""
        self._count -= 1
        self._book(member, -1)

    def _book(self, member: Member, sign: int) -> None:
        for kind, amount in _amounts(member.node):
            self._capacity[kind] = self._capacity.get(kind, 0) + sign * amount


def _weight(demand: Demand) -> tuple[int, int, int, int]:
    return (*by_size(demand), -demand.cpus_milli, -demand.memory_bytes)


def _amounts(node: Node) -> Iterator[tuple[str, float]]:
    """Yield what a node has, by kind; memory that is not limited is left out."""
    yield "gpus", WHOLE * len(node.gpus)
    yield "cpus", WHOLE * node.cpus
    if node.memory_bytes is not None:
        yield "memory", node.memory_bytes
    yield from node.custom


def _sums(nodes: Iterable[tuple[Node, int]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for node, sign in nodes:
        for kind, amount in _amounts(node):
            sums[kind] = sums.get(kind, 0) + sign * amount
    return sums


def _needs(demands: Iterable[tuple[Demand, int]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for demand, count in demands:
        kinds = [("gpus", demand.gpus_milli), ("cpus", demand.cpus_milli), *demand.custom]
        for kind, amount in kinds:
            sums[kind] = sums.get(kind, 0) + count * amount
    return sums
