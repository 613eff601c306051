"""The timetable of a round: until when each GPU may be used, what starts now, what starts earliest.

A GPU is free from `free_at` to `reserved_from`, and again after its reservations. A reservation is
on the GPUs with which a unit starts earliest; of those that are free by then, it takes the ones
that become free last, so that what is free now stays usable without limit. On a pool of equal GPUs
these are the shadow time and the extra GPUs of EASY backfilling (Lifka, The ANL/IBM SP scheduling
system, JSSPP 1995).

Starts are placed on the scratch of the round, whose ledger checks all resources. Reservations are
of whole GPUs: a part of one is booked ahead as a whole one, and CPUs, memory and custom kinds are
considered, but not booked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.base.column import Array
from headgate.base.order import nth_of_equals
from headgate.base.units import SAME_INSTANT_S
from headgate.planning.times.reservations import Reservation
from headgate.planning.units.unit import FirstFit, Unit
from headgate.state import Scratch, Snapshot
from headgate.state.moves import gpus_of, grants_of_moves
from headgate.state.tables import GPU_FREE, GPU_GONE, GPU_IN_PART

EndAt = Callable[[Ints], Floats]
"""Expected ends of tasks that hold a grant (rows), in the world's clock; `inf` where unknown."""

SOONEST_S = 0.001
"""A held GPU is expected to be free after this many seconds at the earliest."""


def gpus_free_at(snapshot: Snapshot, end_at: EndAt) -> Floats:
    """Return when each GPU is expected to be wholly free, `[GPU rows]`, in the world's clock.

    One whose node is lost never is; one that a task leaves to move is soon. O(GPUs), and O(grants)
    if any GPU is held in part.
    """
    holder, soonest = snapshot.gpus.task.array().astype(np.int64), snapshot.now + SOONEST_S
    free_at = np.where(holder == GPU_GONE, math.inf, snapshot.now)
    held = np.flatnonzero(holder >= 0)
    if len(held):
        tasks, which = np.unique(holder[held], return_inverse=True)
        free_at[held] = np.maximum(end_at(tasks), soonest)[which]
    left = grants_of_moves(snapshot)[1]
    whole = gpus_of(snapshot, left)
    free_at[whole[holder[whole] >= 0]] = soonest
    if (holder == GPU_IN_PART).any():
        grants, demands = snapshot.grants, snapshot.names.demands
        task = grants.task.array().astype(np.int64)
        rows = [r for r in np.flatnonzero(task >= 0).tolist() if demands[grants.demand[r]].in_part]
        for row, end in zip(rows, end_at(task[rows]).tolist(), strict=True):
            if row in left:
                continue
            first = snapshot.nodes.first_gpu[grants.node[row]]
            for index in grants.gpus[row]:
                free_at[first + index] = max(free_at[first + index], end, soonest)
    return free_at


class Timetable:
    """When GPUs are free; made for one round. Queries cost O(GPUs x log)."""

    def __init__(self, scratch: Scratch, end_at: EndAt) -> None:
        """Start from the runs of the scratch's snapshot, and what is placed on the scratch."""
        snapshot = scratch.snapshot
        self._scratch, self._end_at, self.now = scratch, end_at, snapshot.now
        self._demands = snapshot.names.demands
        gone = snapshot.gpus.task.array() == GPU_GONE
        self._free_at = np.where(gone, math.inf, self.now)
        self._has_ends = False  # whether these are also right for GPUs that are held
        self._use_starts()
        self._kept, self._claimed = False, np.zeros(len(gone), bool)
        self.reserved_from = np.full(len(gone), math.inf)
        self._reserved = False  # whether any GPU is booked ahead
        self._free_again_at = np.full(len(gone), -math.inf)
        row = np.flatnonzero(~gone)
        node = snapshot.gpus.node.take(row).astype(np.int64)
        order = np.argsort(node, kind="stable")
        self._row, self._node = row[order], node[order]
        in_order = len(row) == len(snapshot.gpus.task) and (np.diff(self._row) == 1).all()
        self._every = slice(None) if in_order else self._row  # a slice costs no copies
        self._memory = snapshot.gpus.memory_bytes.take(self._row).astype(np.int64)
        self._suitable: dict[int, Bools] = {}  # by demand, `[GPU rows]`
        self._nth = nth_of_equals(self._node)  # GPU of its node
        self._width = _width(self._nth)
        self._last: dict[tuple[int, int], tuple[Bools, Ints, Ints]] = {}  # of each place
        self._among: Bools | None = None  # the only nodes to use, `[nodes]`

    @property
    def free_at(self) -> Floats:
        """When each GPU is expected to be free, `[GPU rows]`, in the world's clock.

        The runs are estimated when this is first needed: what starts now does not depend on it.
        """
        if not self._has_ends:
            ends = gpus_free_at(self._scratch.snapshot, self._end_at)
            np.maximum(self._free_at, ends, out=self._free_at)
            self._has_ends = True
        return self._free_at

    def _use_starts(self) -> None:
        """Count the GPUs of the tasks that are placed already as held."""
        starts, first = self._scratch.starts, self._scratch.snapshot.nodes.first_gpu
        if starts:
            ends = self._end_at(np.array([start.task for start in starts]))
            for (_, node, gpus), end in zip(starts, ends.tolist(), strict=True):
                rows = [first[node] + gpu for gpu in gpus]
                self.free_at[rows] = np.maximum(self.free_at[rows], max(end, self.now + SOONEST_S))

    def windows_now(self) -> Floats:
        """Return for how long each of the free GPUs may be used from now on, ascending."""
        free = self._scratch.ledger.gpus.task.array()[self._row] == GPU_FREE
        rows = self._row[free & (self._free_at[self._row] <= self.now)]
        return np.sort(self.reserved_from[rows] - self.now)

    # --- starts --------------------------------------------------------------------------------

    def start(self, unit: Unit, run_s: float, *, kept: bool = False) -> bool:
        """Place a unit now if it fits on GPUs that no reservation needs within `run_s` seconds.

        All its tasks, as one group of steps, or none; only on GPUs `kept` for reservations if so
        required. `run_s` is inf for a run of unknown length.
        """
        self._kept = kept
        for place in (self._place, self._place_by_first_fit):
            with self._scratch.trial() as trial:
                rows = place(unit, run_s)
                if rows is not None:
                    trial.keep()
                    self._free_at[rows] = np.maximum(self._free_at[rows], self.now + run_s)
                    return True
            if len(set(unit.demands)) == 1:
                break
        return False

    def start_among(self, unit: Unit, nodes: Sequence[int] | None) -> bool:
        """Place a unit now if it fits on these nodes, on all by default."""
        if nodes is None:
            return self.start(unit, math.inf)
        among = np.zeros(len(self._scratch.snapshot.nodes.alive), bool)
        among[list(nodes)] = True
        with self.only(among):
            if self.start(unit, math.inf):
                return True
        several = len(set(unit.demands)) > 1  # the nodes are those that hold it by first fit
        return several and FirstFit(self._scratch).place(unit, nodes)

    @contextmanager
    def only(self, among: Bools) -> Iterator[None]:
        """Use no other nodes than these, `[nodes]`, in a block."""
        before = self._among
        self._among = among if before is None else among & before
        try:
            yield
        finally:
            self._among = before

    def _place_by_first_fit(self, unit: Unit, run_s: float) -> list[int] | None:
        """Place a unit of several demands by first fit, if that is on usable GPUs.

        So one that fits the idle cluster, as the submission check tests, starts there.
        """
        before = len(self._scratch.starts)
        if self._among is not None or not FirstFit(self._scratch).place(unit):
            return None
        first, rows = self._scratch.snapshot.nodes.first_gpu, list[int]()
        for start in self._scratch.starts[before:]:
            rows += [first[start.node] + gpu for gpu in start.gpus]
        holder = self._scratch.snapshot.gpus.task.array()  # before they were placed
        usable = self._are_usable(np.array(rows, np.int64), holder, run_s)
        return rows if usable and not self._kept else None

    def _place(self, unit: Unit, run_s: float) -> list[int] | None:
        """Place the tasks of a unit; return the rows of their GPUs, or None if one does not fit."""
        rows: list[int] = []
        used: set[int] = set()
        first = self._scratch.snapshot.nodes.first_gpu
        for demand, tasks in unit.by_demand(self._scratch.snapshot):
            before = len(self._scratch.starts)
            if not self._place_tasks(demand, tasks, run_s, used, distinct=unit.distinct_nodes):
                return None
            for _, node, gpus in self._scratch.starts[before:]:
                rows += [first[node] + gpu for gpu in gpus]
                if unit.distinct_nodes:
                    used.add(node)
        return rows

    def _place_tasks(
        self, demand: int, tasks: list[int], run_s: float, used: set[int], *, distinct: bool
    ) -> bool:
        """Place tasks of one demand, none on nodes `used`; return whether all are placed."""
        nodes = self._nodes_now(demand, len(tasks), run_s, used, distinct=distinct)
        return self._place_on(nodes, demand, tasks, run_s)

    def _place_on(self, nodes: list[int], demand: int, tasks: list[int], run_s: float) -> bool:
        """Place tasks on nodes, one entry per task; return whether all are placed."""
        if len(nodes) < len(tasks):
            return False
        left = iter(tasks)
        for node, places in Counter(nodes[: len(tasks)]).items():
            for gpus in self._gpus_now(demand, node, run_s, places):
                if not self._scratch.place(next(left), node, gpus):
                    return False
        return next(left, None) is None

    def suits(self, demand: int) -> Bools:
        """Return which GPUs tasks of a demand could hold, free or not, `[GPU rows]`."""
        if demand not in self._suitable:
            self._suitable[demand] = self._scratch.ledger.suits(demand)
        return self._suitable[demand]

    def _usable_now(self, demand: int, rows: Ints, run_s: float) -> Bools:
        """Return which GPUs are free, suit a demand and may be used for `run_s` seconds."""
        free = self._scratch.ledger.gpus.task.array()[rows] == GPU_FREE
        usable: Bools = (
            free
            & (self._free_at[rows] <= self.now)
            & self.suits(demand)[rows]
            & self._in_time(rows, self.now, run_s)
        )
        if self._kept:
            usable &= self.is_kept(rows)
        return usable

    def _nodes_now(
        self, demand: int, count: int, run_s: float, used: set[int], *, distinct: bool
    ) -> list[int]:
        """Return the nodes on which `count` tasks of a demand start, one entry per task."""
        room = self._room_now(demand, count, run_s, used, distinct=distinct)
        if self._demands[demand].in_part:
            return self._nodes_for_parts(demand, run_s, room)
        return self._pick(room, count)

    def _pick(self, room: Ints, count: int) -> list[int]:
        """Return the nodes of `count` tasks, given how many fit each; fewer if too few fit."""
        return _compact(room, count)

    def _room_now(
        self, demand: int, count: int, run_s: float, used: set[int], *, distinct: bool
    ) -> Ints:
        """Return how many of `count` tasks of a demand may start on each node, parts of GPUs aside.

        None on those `used`.
        """
        spec, ledger = self._demands[demand], self._scratch.ledger
        room = np.minimum(ledger.room(demand), 1 if distinct else count)
        room[sorted(used)] = 0
        if self._among is not None:
            room[~self._among] = 0
        if spec.gpus and not spec.in_part:
            usable = self._usable_now(demand, self._row, run_s)
            gpus = np.bincount(self._node[usable], minlength=len(room))
            room = np.minimum(room, gpus // spec.gpus)
        return room

    def _nodes_for_parts(self, demand: int, run_s: float, room: Ints) -> list[int]:
        """Return nodes for parts of GPUs, as many as fit each; O(nodes)."""
        return [
            node
            for node in np.flatnonzero(room > 0).tolist()
            if next(self._gpus_now(demand, node, run_s, 1), None) is not None
            for _ in range(int(room[node]))
        ]

    def _gpus_now(
        self, demand: int, node: int, run_s: float, places: int
    ) -> Iterator[tuple[int, ...]]:
        """Yield the best GPUs of a node for one task, and for the next once that is placed.

        For so many tasks, or as many as fit. Of whole GPUs the smallest, then those with the
        tightest window.
        """
        spec, first = self._demands[demand], self._scratch.snapshot.nodes.first_gpu[node]
        if not spec.gpus:
            yield from repeat((), places)
        elif spec.in_part:
            for _ in range(places):
                gpus = self._scratch.ledger.best_gpus(demand, node)
                rows = first + np.array(gpus or (), np.int64)
                holder = self._scratch.ledger.gpus.task.array()
                if gpus is None or not self._are_usable(rows, holder, run_s):
                    return
                yield gpus
        else:
            low, high = np.searchsorted(self._node, (node, node + 1))
            rows, memory = self._row[low:high], self._memory[low:high]
            usable = np.flatnonzero(self._usable_now(demand, rows, run_s))
            order = np.lexsort((rows[usable], self.reserved_from[rows[usable]], memory[usable]))
            chosen = (rows[usable[order]] - first).tolist()
            for end in range(spec.gpus, min(len(chosen), places * spec.gpus) + 1, spec.gpus):
                yield tuple(chosen[end - spec.gpus : end])

    def _are_usable(self, rows: Ints, holder: Array, run_s: float) -> bool:
        """Return whether no reservation or claim needs these GPUs within `run_s` seconds."""
        unclaimed = (holder[rows] == GPU_IN_PART) | (self._free_at[rows] <= self.now)
        return bool((unclaimed & self._in_time(rows, self.now, run_s)).all())

    def _in_time(self, rows: Ints | slice, at: float | Floats, run_s: float) -> Bools:
        """Return whether a run of `run_s` from a time on ends before GPUs are reserved."""
        in_time: Bools = at + run_s <= self.reserved_from[rows] + SAME_INSTANT_S
        return in_time

    # --- reservations --------------------------------------------------------------------------

    def reserve(self, unit: Unit, run_s: float) -> Reservation | None:
        """Keep the GPUs with which a unit starts earliest free for it, and return them.

        `run_s` is inf for a run of unknown length. None if, as far as is known, the unit never
        fits.
        """
        found = self.earliest(unit, run_s)
        if found is not None:
            self.keep(found, run_s)
        return found

    def keep(self, found: Reservation, run_s: float) -> None:
        """Keep the GPUs of a reservation free for a run of `run_s` seconds."""
        rows = found.gpus
        self._reserved = True
        self.reserved_from[rows] = np.minimum(self.reserved_from[rows], found.at)
        self._free_again_at[rows] = np.maximum(self._free_again_at[rows], found.at + run_s)

    def earliest(self, unit: Unit, run_s: float) -> Reservation | None:
        """Return the reservation that `reserve` would make, without making it."""
        at, demands = self.now, unit.by_demand(self._scratch.snapshot)
        while True:
            rows, soonest = self._chosen(demands, at, run_s, distinct=unit.distinct_nodes)
            if math.isinf(soonest):
                return None
            if soonest <= at or not self._reserved:
                return Reservation(unit=unit, at=max(at, soonest), gpus=rows)
            at = soonest

    def better(self, unit: Unit, run_s: float, expected_s: float) -> Reservation | None:
        """Return the later set that a unit waits for though it fits now; here none does."""
        del unit, run_s, expected_s
        return None

    def run_s_on(self, found: Reservation, run_s: float) -> float:
        """Return how long a run of `run_s` seconds takes as reserved; here, as anywhere."""
        del found
        return run_s

    def hold(self, rows: Ints, until: float) -> None:
        """Change when GPUs become free."""
        self.free_at[rows] = until

    def cheapest(self, unit: Unit, price: Floats) -> Ints | None:
        """Return the GPUs (rows) with which the dearest one of a unit costs least, or None.

        `price`, `[GPU rows]`, is at least 0, and inf for GPUs that it may not have.
        """
        demands = unit.by_demand(self._scratch.snapshot)
        rows, dearest = self._chosen(
            demands, 0.0, 0.0, distinct=unit.distinct_nodes, price=price[self._row]
        )
        return None if math.isinf(dearest) else rows

    def _is_open(self) -> Bools:
        """Return which GPUs are free now, without a claim or reservation, `[GPU rows]`."""
        free = self._scratch.ledger.gpus.task.array() == GPU_FREE
        is_open: Bools = free & np.isinf(self.reserved_from) & (self._free_at <= self.now)
        return is_open

    def price_of_open(self) -> Floats:
        """Return 0 for each GPU that is free now, without a claim or reservation, else inf."""
        return np.where(self._is_open(), 0.0, math.inf)

    def has_open(self) -> bool:
        """Return whether a GPU, or a part of one, is free now, without a claim or reservation."""
        ledger = self._scratch.ledger
        in_part = ledger.open_gpus() & (ledger.gpus.task.array() == GPU_IN_PART)
        return bool(in_part.any() or self._is_open().any())

    def claim(self, memory_bytes: int, run_s: Floats, sought: Ints | None = None) -> None:
        """Count the GPUs that are free soonest as used by tasks of one GPU, for `run_s` each.

        Of equals those first that the fewest demands seek (`sought`, `[GPU rows]`), as these tasks
        may use any. Not before reservations of these GPUs. For tasks that are placed after the
        units, on whichever of the free GPUs then suit them.
        """
        fits = self._row[self._memory >= memory_bytes]
        at = self._available(fits, self.now, math.inf)
        if sought is not None:
            order = np.lexsort((sought[fits], at))
            fits, at = fits[order], at[order]
        soonest = self._claimed_first(fits, at)[: len(run_s)]
        rows, at, run_s = fits[soonest], at[soonest], run_s[: len(soonest)]
        self._reserved = True
        early = at <= self.free_at[rows]
        self._claimed[rows[early]] = True
        self.free_at[rows[early]] = (at + run_s)[early]
        self._free_again_at[rows[~early]] = (at + run_s)[~early]

    def _claimed_first(self, rows: Ints, at: Floats) -> Ints:
        """Return the order in which GPUs (rows), available at some times, are claimed (indices)."""
        del rows
        return np.argsort(at, kind="stable")

    def free_soon(self, rows: Ints) -> None:
        """Count GPUs as free as soon as runs that are preempted now have stopped."""
        self.free_at[rows] = self.now + SOONEST_S
        self.reserved_from[rows], self._free_again_at[rows] = math.inf, -math.inf

    def unclaim(self) -> bool:
        """Count all GPUs that are free now as unused again; claims end. Return if any was."""
        free = self._row[self._scratch.ledger.gpus.task.array()[self._row] == GPU_FREE]
        was_claimed = bool(self._claimed[free].any())
        self.free_at[free] = self.now
        self._claimed[:] = False
        return was_claimed

    def release(self) -> None:
        """Keep no GPU free any more; all reservations end."""
        self.reserved_from[:], self._free_again_at[:] = math.inf, -math.inf

    def is_kept(self, rows: Ints) -> Bools:
        """Return which GPUs (rows) are reserved for units, and not claimed before that."""
        kept: Bools = np.isfinite(self.reserved_from[rows]) & ~self._claimed[rows]
        return kept

    def has_kept(self) -> bool:
        """Return whether a GPU that is free now is reserved for later, and not claimed."""
        free = self._scratch.ledger.gpus.task.array()[self._row] == GPU_FREE
        return bool(self.is_kept(self._row[free]).any())

    def _available(self, rows: Ints | slice, at: float, run_s: float) -> Floats:
        """Return when GPUs are free for a run that starts at `at` or later, and ends in time."""
        free_at = self.free_at[rows]
        in_time = self._in_time(rows, np.maximum(free_at, at), run_s)
        later = np.maximum(free_at, self._free_again_at[rows])
        available: Floats = np.where(in_time, free_at, later)
        return available

    def _chosen(
        self,
        demands: Sequence[tuple[int, list[int]]],
        at: float,
        run_s: float,
        *,
        distinct: bool,
        price: Floats | None = None,
    ) -> tuple[Ints, float]:
        """Return GPUs for tasks by demand, and when all of them are free, inf if they never are.

        If that is after `at` and there are reservations, which may then be in the way, there is no
        choice. With a `price` for each GPU, that is used in place of times, and the cheapest are
        chosen.
        """
        available = self._available(self._every, at, run_s) if price is None else price.copy()
        if self._among is not None:
            available = np.where(self._among[self._node], available, math.inf)
        void = self._reserved and price is None
        chosen, soonest = [np.zeros(0, np.int64)], at
        on_gpus = [(demand, len(tasks)) for demand, tasks in demands if self._demands[demand].gpus]
        for left, (demand, count) in zip(range(len(on_gpus))[::-1], on_gpus, strict=True):
            spec = self._demands[demand]
            fits = available
            if not (suits := self.suits(demand)[self._every]).all():
                fits = np.where(suits, available, math.inf)
            if distinct and len(chosen) > 1:
                fits = fits.copy()
                fits[np.isin(self._node, self._node[np.concatenate(chosen)])] = math.inf
            node, free_at = self._places(demand, fits, 1 if distinct else count)
            if len(free_at) < count:
                return chosen[0], math.inf
            soonest = max(soonest, float(np.partition(free_at, count - 1)[count - 1]))
            if math.isinf(soonest) or (void and soonest > at and not left):
                return chosen[0], soonest
            nodes = self._pick(np.bincount(node[free_at <= soonest]), count)
            chosen.append(self._latest(nodes, fits, soonest, spec.gpus, first=price is not None))
            available[chosen[-1]] = math.inf
        return self._row[np.concatenate(chosen)], soonest

    def _places(self, demand: int, free_at: Floats, most: int) -> tuple[Ints, Floats]:
        """Return places for a task each, at most `most` on a node: their nodes, and when free.

        The n-th place of a node is the n-th group of its GPUs in the order in which they are free.
        """
        gpus = self._demands[demand].gpus
        if (gpus, most) not in self._last:
            last = (self._nth % gpus == gpus - 1) & (self._nth < most * gpus)
            self._last[gpus, most] = last, self._node[last], self._nth[last] // gpus
        last, node, ordinal = self._last[gpus, most]
        place = self._by_node(free_at)[last]
        return node, self.with_room(demand, node, ordinal, free_at[place])

    def _by_node(self, free_at: Floats) -> Ints:
        """Return the indices of the GPUs by node, those of a node in the order they are free."""
        if not self._width:
            return np.lexsort((free_at, self._node))
        order = free_at.reshape(-1, self._width).argsort(axis=1, kind="stable")
        order += np.arange(0, len(free_at), self._width)[:, None]
        return order.ravel()

    def _latest(
        self, nodes: list[int], free_at: Floats, by: float, count: int, *, first: bool = False
    ) -> Ints:
        """Return the indices of `count` GPUs for each entry of `nodes`, node by node.

        Of those free by a time the ones free last, or the `first`, if so required.
        """
        places = dict.fromkeys(nodes, 0)
        for node in nodes:
            places[node] += count
        rank = np.full(int(self._node.max(initial=0)) + 1, -1)
        rank[[*places]] = np.arange(len(places))
        here = (free_at <= by).nonzero()[0]
        which = rank[self._node[here]]
        here, which = here[which >= 0], which[which >= 0]
        when = free_at[here] if first else -free_at[here]
        order = np.lexsort((when, self._memory[here], which))
        here, which = here[order], which[order]
        chosen: Ints = here[nth_of_equals(which) < np.array([*places.values()])[which]]
        return chosen

    def with_room(self, demand: int, node: Ints, ordinal: Ints, free_at: Floats) -> Floats:
        """Delay places to when the node also has CPUs, memory and custom kinds for them."""
        needs = self._scratch.snapshot.names.needs[demand]
        if not needs:
            return free_at
        free = self._scratch.ledger.nodes.free
        room = np.min([free.kind(kind) // amount for kind, amount in needs], axis=0)
        lacking = ((ordinal >= room[node]) & np.isfinite(free_at)).nonzero()[0]
        for row in np.unique(node[lacking]).tolist():
            here = lacking[node[lacking] == row]
            room_at = self._room_at(demand, row, ordinal[here])
            free_at[here] = np.maximum(free_at[here], room_at)
        return free_at

    def _room_at(self, demand: int, node: int, ordinal: Ints) -> Floats:
        """Return when a node has room for its n-th task of a demand, GPUs aside, as runs end."""
        snapshot = self._scratch.snapshot
        grants, needs = snapshot.grants, snapshot.names.needs
        task = grants.task.array().astype(np.int64)
        here = np.flatnonzero((grants.node.array() == node) & (task >= 0))
        end_at = np.maximum(self._end_at(task[here]), self.now + SOONEST_S)
        end_at[np.isin(here, grants_of_moves(snapshot)[1])] = self.now + SOONEST_S
        order = np.argsort(end_at, kind="stable")
        released = [dict(needs[grants.demand[int(row)]]) for row in here[order]]
        counts = np.min(
            [
                (
                    self._scratch.ledger.nodes.free.at(node, kind)
                    + np.cumsum([amounts.get(kind, 0) for amounts in released])
                )
                // amount
                for kind, amount in needs[demand]
            ],
            axis=0,
        )
        times = np.append(end_at[order], math.inf)
        room_at: Floats = times[np.searchsorted(counts, ordinal, side="right")]
        return room_at


def _width(nth: Ints) -> int:
    """Return how many GPUs each node has, given the number of each GPU there; 0 if they differ."""
    width = int(nth.max(initial=0)) + 1
    equal = len(nth) % width == 0 and (nth[width - 1 :: width] == width - 1).all()
    return width if equal else 0


def _compact(room: Ints, count: int) -> list[int]:
    """Return the nodes of `count` tasks on few nodes, given how many fit each; fewer if too few.

    The roomiest nodes first; the last one is that with the least room that suffices.
    """
    some = (room > 0).nonzero()[0]
    order = some[np.argsort(-room[some], kind="stable")]
    most = np.minimum(room[order], count)
    missing = count - (np.cumsum(most) - most)  # when it is the turn of each
    enough = (room[order] >= missing).nonzero()[0]
    if not len(enough):
        return np.repeat(order, most).tolist()
    turn = enough[0]
    left = int(missing[turn])
    last = order[turn:][room[order[turn:]] >= left]
    node = int(last[room[last].argmin()])
    return [*np.repeat(order[:turn], most[:turn]).tolist(), *[node] * left]
