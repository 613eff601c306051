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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.base.column import Array
from headgate.base.order import nth_of_equals
from headgate.base.units import SAME_INSTANT_S
from headgate.model import Demand
from headgate.planning.census import Bools
from headgate.planning.shares import Floats, Ints
from headgate.planning.units import FirstFit, Unit
from headgate.protocol import Memo, Reserved
from headgate.state import Scratch, Snapshot
from headgate.state.tables import GPU_FREE, GPU_GONE, GPU_IN_PART

EndAt = Callable[[Ints], Floats]
"""Expected ends of tasks that hold a grant (rows), in the world's clock; `inf` where unknown."""

SOONEST_S = 0.001
"""A held GPU is expected to be free after this many seconds at the earliest."""

UNKNOWN_AT = 1e300
"""The end of a run of unknown length, for those who want a reservation for what waits for it.

It is later than every known end, so that runs of known length may use its GPUs before.
"""

RESERVED_AT = "reserved_at"
"""Column of the memo of policies that reserve: the time of the first reservation of each job."""


def gpus_free_at(snapshot: Snapshot, end_at: EndAt) -> Floats:
    """Return when each GPU is expected to be wholly free, `[GPU rows]`, in the world's clock.

    One whose node is lost never is. O(GPUs), and O(grants) if any GPU is held in part.
    """
    holder, soonest = snapshot.gpus.task.array().astype(np.int64), snapshot.now + SOONEST_S
    free_at = np.where(holder == GPU_GONE, math.inf, snapshot.now)
    held = np.flatnonzero(holder >= 0)
    if len(held):
        tasks, which = np.unique(holder[held], return_inverse=True)
        free_at[held] = np.maximum(end_at(tasks), soonest)[which]
    if (holder == GPU_IN_PART).any():
        grants, demands = snapshot.grants, snapshot.names.demands
        task = grants.task.array().astype(np.int64)
        rows = [r for r in np.flatnonzero(task >= 0).tolist() if demands[grants.demand[r]].in_part]
        for row, end in zip(rows, end_at(task[rows]).tolist(), strict=True):
            first = snapshot.nodes.first_gpu[grants.node[row]]
            for index in grants.gpus[row]:
                free_at[first + index] = max(free_at[first + index], end, soonest)
    return free_at


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reservation:
    """GPUs (rows) that are kept free for a unit from a time on."""

    unit: Unit
    at: float
    gpus: Ints

    def planned(self, run_s: float) -> Reserved:
        """Return it as part of a plan, given how long the unit runs, inf or NaN if unknown."""
        at = self.at if self.at < UNKNOWN_AT else math.inf
        until = math.inf if math.isnan(run_s) else at + run_s
        return Reserved(job=self.unit.job, at=at, gpus=tuple(self.gpus.tolist()), until=until)


def first_reservations(snapshot: Snapshot, reservations: Iterable[Reservation]) -> Memo:
    """Return the memo of reservations: their known times, of jobs that had none before."""
    known, first = snapshot.memos.get(RESERVED_AT), dict[int, float]()
    for each in reservations:
        job = each.unit.job
        if snapshot.now < each.at < UNKNOWN_AT and (known is None or math.isnan(known[job])):
            first.setdefault(job, each.at)
    return {RESERVED_AT: first} if first else {}


class Timetable:
    """When GPUs are free; made for one round. Queries cost O(GPUs x log)."""

    def __init__(self, scratch: Scratch, end_at: EndAt) -> None:
        """Start from the runs of the scratch's snapshot, and what is placed on the scratch."""
        snapshot = scratch.snapshot
        self._scratch, self._end_at, self.now = scratch, end_at, snapshot.now
        self._demands = snapshot.names.demands
        self.free_at = gpus_free_at(snapshot, end_at)
        self._use_starts()
        self._kept, self._claimed = False, np.zeros(len(self.free_at), bool)
        self.reserved_from = np.full(len(self.free_at), math.inf)
        self._reserved = False  # whether any GPU is booked ahead
        self._free_again_at = np.full(len(self.free_at), -math.inf)
        row = np.flatnonzero(snapshot.gpus.task.array() != GPU_GONE)
        node = snapshot.gpus.node.take(row).astype(np.int64)
        order = np.argsort(node, kind="stable")
        self._row, self._node = row[order], node[order]
        self._memory = snapshot.gpus.memory_bytes.take(self._row).astype(np.int64)

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
        rows = self._row[free & (self.free_at[self._row] <= self.now)]
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
                    self.free_at[rows] = np.maximum(self.free_at[rows], self.now + run_s)
                    return True
            if len(set(unit.demands)) == 1:
                break
        return False

    def _place_by_first_fit(self, unit: Unit, run_s: float) -> list[int] | None:
        """Place a unit of several demands by first fit, if that is on usable GPUs.

        So one that fits the idle cluster, as the submission check tests, starts there.
        """
        before = len(self._scratch.starts)
        if not FirstFit(self._scratch).place(unit):
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
        for demand, tasks in self._by_demand(unit):
            nodes = self._nodes_now(demand, len(tasks), run_s, used, distinct=unit.distinct_nodes)
            if len(nodes) < len(tasks):
                return None
            for task, node in zip(tasks, nodes, strict=False):
                gpus = self._gpus_now(demand, node, run_s)
                if gpus is None or not self._scratch.place(task, node, gpus):
                    return None
                rows += [first[node] + gpu for gpu in gpus]
                if unit.distinct_nodes:
                    used.add(node)
        return rows

    def _by_demand(self, unit: Unit) -> list[tuple[int, list[int]]]:
        """Return the tasks of a unit by demand, those with most GPUs first."""
        tasks: dict[int, list[int]] = {}
        for task, demand in zip(unit.tasks, unit.demands, strict=True):
            tasks.setdefault(demand, []).append(task)
        return sorted(tasks.items(), key=lambda each: (-self._demands[each[0]].gpus_milli, each[0]))

    def _usable_now(self, spec: Demand, rows: Ints, memory: Ints, run_s: float) -> Bools:
        """Return which GPUs are free and may be used for `run_s` seconds."""
        free = self._scratch.ledger.gpus.task.array()[rows] == GPU_FREE
        usable: Bools = (
            free
            & (self.free_at[rows] <= self.now)
            & (memory >= spec.gpu_memory_bytes)
            & self._in_time(rows, self.now, run_s)
        )
        if self._kept:
            usable &= self.is_kept(rows)
        return usable

    def _nodes_now(
        self, demand: int, count: int, run_s: float, used: set[int], *, distinct: bool
    ) -> list[int]:
        """Return the nodes on which `count` tasks of a demand start, one entry per task."""
        spec, ledger = self._demands[demand], self._scratch.ledger
        room = np.where(ledger.nodes_with_room(demand), 1 if distinct else count, 0)
        room[sorted(used)] = 0
        for kind, amount in self._scratch.snapshot.names.needs[demand]:
            room = np.minimum(room, ledger.nodes.free.kind(kind) // amount)
        if spec.in_part:
            return self._nodes_for_parts(demand, run_s, room)
        if spec.gpus:
            usable = self._usable_now(spec, self._row, self._memory, run_s)
            gpus = np.bincount(self._node[usable], minlength=len(room))
            room = np.minimum(room, gpus // spec.gpus)
        return _compact(room, count)

    def _nodes_for_parts(self, demand: int, run_s: float, room: Ints) -> list[int]:
        """Return nodes for parts of GPUs, as many as fit each; O(nodes)."""
        return [
            node
            for node in np.flatnonzero(room > 0).tolist()
            if self._gpus_now(demand, node, run_s) is not None
            for _ in range(int(room[node]))
        ]

    def _gpus_now(self, demand: int, node: int, run_s: float) -> tuple[int, ...] | None:
        """Return the best GPUs of a node for one task, or None.

        Of whole ones the smallest, then those with the tightest window.
        """
        spec, first = self._demands[demand], self._scratch.snapshot.nodes.first_gpu[node]
        if not spec.gpus:
            return ()
        if spec.in_part:
            gpus = self._scratch.ledger.best_gpus(demand, node)
            rows = first + np.array(gpus or (), np.int64)
            holder = self._scratch.ledger.gpus.task.array()
            return gpus if self._are_usable(rows, holder, run_s) else None
        low, high = np.searchsorted(self._node, (node, node + 1))
        rows, memory = self._row[low:high], self._memory[low:high]
        usable = np.flatnonzero(self._usable_now(spec, rows, memory, run_s))
        order = np.lexsort((rows[usable], self.reserved_from[rows[usable]], memory[usable]))
        chosen = rows[usable[order[: spec.gpus]]]
        return tuple((chosen - first).tolist()) if len(chosen) == spec.gpus else None

    def _are_usable(self, rows: Ints, holder: Array, run_s: float) -> bool:
        """Return whether no reservation or claim needs these GPUs within `run_s` seconds."""
        unclaimed = (holder[rows] == GPU_IN_PART) | (self.free_at[rows] <= self.now)
        return bool((unclaimed & self._in_time(rows, self.now, run_s)).all())

    def _in_time(self, rows: Ints, at: float | Floats, run_s: float) -> Bools:
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
        at, demands = self.now, self._by_demand(unit)
        while True:
            rows, soonest = self._chosen(demands, at, run_s, distinct=unit.distinct_nodes)
            if math.isinf(soonest):
                return None
            if soonest <= at or not self._reserved:
                return Reservation(unit=unit, at=max(at, soonest), gpus=rows)
            at = soonest

    def soonest(self, unit: Unit) -> Reservation | None:
        """Return the earliest start of a unit, as `earliest`, on the GPUs that become free first.

        Reservations are not considered.
        """
        available, chosen, at = self.free_at[self._row], [np.zeros(0, np.int64)], self.now
        for demand, tasks in self._by_demand(unit):
            spec, count = self._demands[demand], len(tasks)
            if not spec.gpus:
                continue
            fits = np.where(self._memory >= spec.gpu_memory_bytes, available, math.inf)
            node, free_at = self._places(demand, fits, 1 if unit.distinct_nodes else count)
            first = np.argsort(free_at, kind="stable")[:count]
            if len(first) < count or math.isinf(free_at[first[-1]]):
                return None
            at = max(at, float(free_at[first[-1]]))
            for here, places in enumerate(np.bincount(node[first]).tolist()):
                if places:
                    low, high = np.searchsorted(self._node, (here, here + 1))
                    order = low + np.argsort(fits[low:high], kind="stable")
                    chosen.append(order[: places * spec.gpus])
                    available[low:high] = np.inf if unit.distinct_nodes else available[low:high]
            available[np.concatenate(chosen)] = math.inf
        return Reservation(unit=unit, at=at, gpus=self._row[np.concatenate(chosen)])

    def hold(self, rows: Ints, until: float) -> None:
        """Change when GPUs become free."""
        self.free_at[rows] = until

    def cheapest(self, unit: Unit, price: Floats) -> Ints | None:
        """Return the GPUs (rows) with which the dearest one of a unit costs least, or None.

        `price`, `[GPU rows]`, is at least 0, and inf for GPUs that it may not have.
        """
        demands = self._by_demand(unit)
        rows, dearest = self._chosen(
            demands, 0.0, 0.0, distinct=unit.distinct_nodes, price=price[self._row]
        )
        return None if math.isinf(dearest) else rows

    def _is_open(self) -> Bools:
        """Return which GPUs are free now, without a claim or reservation, `[GPU rows]`."""
        free = self._scratch.ledger.gpus.task.array() == GPU_FREE
        is_open: Bools = free & np.isinf(self.reserved_from) & (self.free_at <= self.now)
        return is_open

    def price_of_open(self) -> Floats:
        """Return 0 for each GPU that is free now, without a claim or reservation, else inf."""
        return np.where(self._is_open(), 0.0, math.inf)

    def has_open(self) -> bool:
        """Return whether a GPU, or a part of one, is free now, without a claim or reservation."""
        in_part = (self._scratch.ledger.gpus.task.array() == GPU_IN_PART).any()
        return bool(in_part or self._is_open().any())

    def claim(self, memory_bytes: int, run_s: Floats) -> None:
        """Count the GPUs that are free soonest as used by tasks of one GPU, for `run_s` each.

        Not before reservations of these GPUs. For tasks that are placed after the units, on
        whichever of the free GPUs then suit them.
        """
        fits = self._row[self._memory >= memory_bytes]
        at = self._available(fits, self.now, math.inf)
        soonest = np.argsort(at, kind="stable")[: len(run_s)]
        rows, at, run_s = fits[soonest], at[soonest], run_s[: len(soonest)]
        self._reserved = True
        early = at <= self.free_at[rows]
        self._claimed[rows[early]] = True
        self.free_at[rows[early]] = (at + run_s)[early]
        self._free_again_at[rows[~early]] = (at + run_s)[~early]

    def free_soon(self, rows: Ints) -> None:
        """Count GPUs as free as soon as runs that are preempted now have stopped."""
        self.free_at[rows] = self.now + SOONEST_S
        self.reserved_from[rows], self._free_again_at[rows] = math.inf, -math.inf

    def unclaim(self) -> None:
        """Count all GPUs that are free now as unused again; claims end."""
        free = self._scratch.ledger.gpus.task.array()[self._row] == GPU_FREE
        self.free_at[self._row[free]] = self.now
        self._claimed[:] = False

    def is_kept(self, rows: Ints) -> Bools:
        """Return which GPUs (rows) are reserved for units, and not claimed before that."""
        kept: Bools = np.isfinite(self.reserved_from[rows]) & ~self._claimed[rows]
        return kept

    def has_kept(self) -> bool:
        """Return whether a GPU that is free now is reserved for later, and not claimed."""
        free = self._scratch.ledger.gpus.task.array()[self._row] == GPU_FREE
        return bool(self.is_kept(self._row[free]).any())

    def _available(self, rows: Ints, at: float, run_s: float) -> Floats:
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

        If that is after `at`, the choice may be void: reservations may then be in the way. With a
        `price` for each GPU, that is used in place of times, and the cheapest are chosen.
        """
        available = self._available(self._row, at, run_s) if price is None else price.copy()
        chosen, soonest = [np.zeros(0, np.int64)], at
        for demand, tasks in demands:
            spec, count = self._demands[demand], len(tasks)
            if not spec.gpus:
                continue
            fits = np.where(self._memory >= spec.gpu_memory_bytes, available, math.inf)
            if distinct:
                fits[np.isin(self._node, self._node[np.concatenate(chosen)])] = math.inf
            node, free_at = self._places(demand, fits, 1 if distinct else count)
            if len(free_at) < count:
                return chosen[0], math.inf
            soonest = max(soonest, float(np.partition(free_at, count - 1)[count - 1]))
            if math.isinf(soonest):
                return chosen[0], math.inf
            room = np.bincount(node[free_at <= soonest])
            for here in _compact(room, count):
                chosen.append(self._latest(here, fits, soonest, spec.gpus, first=price is not None))
                available[chosen[-1]] = fits[chosen[-1]] = math.inf
        return self._row[np.concatenate(chosen)], soonest

    def _places(self, demand: int, free_at: Floats, most: int) -> tuple[Ints, Floats]:
        """Return places for a task each, at most `most` on a node: their nodes, and when free.

        The n-th place of a node is the n-th group of its GPUs in the order in which they are free.
        """
        gpus = self._demands[demand].gpus
        order = np.lexsort((free_at, self._node))
        nth = nth_of_equals(self._node)
        last = (nth % gpus == gpus - 1) & (nth // gpus < most)
        place, ordinal = order[last], nth[last] // gpus
        return self._node[place], self._with_room(
            demand, self._node[place], ordinal, free_at[place]
        )

    def _latest(
        self, node: int, free_at: Floats, by: float, count: int, *, first: bool = False
    ) -> Ints:
        """Return the indices of GPUs of a node: of those free by a time, the ones free last.

        Or the `first`, if so required.
        """
        low, high = np.searchsorted(self._node, (node, node + 1))
        here = np.arange(low, high)[free_at[low:high] <= by]
        when = free_at[here] if first else -free_at[here]
        order = np.lexsort((here, when, self._memory[here]))
        return here[order[:count]]

    def _with_room(self, demand: int, node: Ints, ordinal: Ints, free_at: Floats) -> Floats:
        """Delay places to when the node also has CPUs, memory and custom kinds for them."""
        needs = self._scratch.snapshot.names.needs[demand]
        if not needs:
            return free_at
        free = self._scratch.ledger.nodes.free
        room = np.min([free.kind(kind)[node] // amount for kind, amount in needs], axis=0)
        lacking = np.flatnonzero((ordinal >= room) & np.isfinite(free_at))
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


def _compact(room: Ints, count: int) -> list[int]:
    """Return the nodes of `count` tasks on few nodes, given how many fit each; fewer if too few.

    The roomiest nodes first; the last one is that with the least room that suffices.
    """
    nodes: list[int] = []
    left = np.minimum(room, count)
    while count > len(nodes):
        missing = count - len(nodes)
        enough = np.flatnonzero(room >= missing)
        enough = enough[left[enough] > 0]
        node = int(enough[np.argmin(room[enough])]) if len(enough) else int(np.argmax(left))
        if not left[node]:
            break
        nodes += [node] * min(missing, int(left[node]))
        left[node] = 0
        room = np.where(left > 0, room, 0)
    return nodes
