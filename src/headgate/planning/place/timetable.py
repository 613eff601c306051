"""The timetable of a round: until when each GPU may be used, what starts now, what starts earliest.

A GPU is free from `free_at` to `reserved_from`, and again after its reservations. A reservation is
on the GPUs with which a unit starts earliest; of those that are free by then, it takes the ones
that become free last, so that what is free now stays usable without limit. On a pool of equal GPUs
these are the shadow time and the extra GPUs of EASY backfilling (Lifka, The ANL/IBM SP scheduling
system, JSSPP 1995).

Starts are placed on the scratch of the round, whose ledger checks all resources. Reservations are
of whole GPUs, of parts of them (`part_book`), and of amounts of their nodes: CPUs, memory and
custom kinds (`node_book`). To a task on a whole GPU, one of which a part is reserved is reserved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.base.column import Array
from headgate.base.order import nth_of_equals
from headgate.base.units import SAME_INSTANT_S
from headgate.model import WHOLE, Demand
from headgate.planning.place.node_book import NodeBook
from headgate.planning.place.part_book import PartBook, parts_held, runs_on_parts
from headgate.planning.times.estimates import Estimates
from headgate.planning.times.reservations import UNKNOWN_AT, Reservation
from headgate.planning.units.unit import hardened_tasks
from headgate.protocol import Hardened, Start
from headgate.state import Scratch, Snapshot
from headgate.state.hardened import kept_gpus
from headgate.state.ledger import room_in
from headgate.state.moves import gpus_of, grants_of_moves
from headgate.state.tables import GPU_FREE, GPU_GONE, GPU_IN_PART

EndAt = Callable[[Ints], Floats]
"""Expected ends of tasks that hold a grant (rows), in the world's clock; `inf` where unknown."""

ClaimOrder = Callable[[Ints, Floats], Ints]
"""The order (indices) in which GPUs (rows), available at some times, are claimed."""

SOONEST_S = 0.001
"""A held GPU is expected to be free after this many seconds at the earliest."""


@dataclass(frozen=True, slots=True, eq=False)
class GpuCosts:
    """What it costs to take GPUs from those that hold them, which a chooser compares as times.

    0 for GPUs that are free, inf for those out of reach.
    """

    gpu: Floats  # [GPU rows]
    of_tasks: EndAt
    """The same of what else tasks (rows) hold of nodes: their CPUs, memory and custom kinds."""


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What places are looked for: from when on, for how long, or at which costs."""

    at: float
    run_s: float
    costs: GpuCosts | None = None
    taken: dict[int, dict[int, int]] = field(default_factory=dict)
    """By node and kind, what other tasks of the unit take of nodes."""
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By GPU (row), the share and memory that other tasks of the unit take of it."""
    whole: list[Ints] = field(default_factory=list)
    """GPUs (indices of `Timetable.row`) that other tasks of the unit take whole."""

    def take(self, node: int, needs: Sequence[tuple[int, int]], count: int) -> None:
        """Count what so many tasks with these needs take of a node."""
        if needs:
            taken = self.taken.setdefault(node, {})
            for kind, amount in needs:
                taken[kind] = taken.get(kind, 0) + amount * count

    def take_parts(self, spec: Demand, gpus: Ints, memory: Ints) -> None:
        """Count a part of each of some GPUs (rows), which have so much memory, as taken."""
        for gpu, memory_bytes in zip(gpus.tolist(), memory.tolist(), strict=True):
            milli, taken_bytes = self.parts.get(gpu, (0, 0))
            taken_bytes += spec.part_bytes(memory_bytes)
            self.parts[gpu] = milli + spec.gpu_milli, taken_bytes


def latest_holders(snapshot: Snapshot, of_tasks: EndAt, *, free: float, left: float) -> Floats:
    """Return for each GPU the greatest value of the tasks that hold it, `[GPU rows]`.

    `free` for one that no task holds, `left` for one that a task leaves to move, and at least that
    for those held; inf if its node is lost. O(GPUs), and O(grants) if any GPU is held in part.
    """
    holder = snapshot.gpus.task.array().astype(np.int64)
    value = np.where(holder == GPU_GONE, math.inf, free)
    held = np.flatnonzero(holder >= 0)
    if len(held):
        tasks, which = np.unique(holder[held], return_inverse=True)
        value[held] = np.maximum(of_tasks(tasks), left)[which]
    whole = gpus_of(snapshot, grants_of_moves(snapshot)[1])
    value[whole[holder[whole] >= 0]] = left
    if (holder == GPU_IN_PART).any():
        held_in_part = parts_held(snapshot)
        each = np.maximum(of_tasks(held_in_part.task), left)
        stays = ~held_in_part.is_left
        np.maximum.at(value, held_in_part.gpu[stays], each[stays])
    return value


class Timetable:
    """When GPUs are free; made for one round. Queries cost O(GPUs x log)."""

    def __init__(self, scratch: Scratch, end_at: EndAt) -> None:
        """Start from the runs of the scratch's snapshot, and what is placed on the scratch."""
        snapshot = scratch.snapshot
        self.scratch, self.end_at, self.now = scratch, end_at, snapshot.now
        self.demands = snapshot.names.demands
        gone = snapshot.gpus.task.array() == GPU_GONE
        self._free_at = np.where(gone, math.inf, self.now)
        self.has_ends = False  # whether these are also right for GPUs that are held
        self.book = NodeBook(scratch, end_at, self.now + SOONEST_S)
        self.parts = PartBook(scratch, end_at, self.now + SOONEST_S)
        self._use_starts()
        self.kept_only, self._claimed = False, np.zeros(len(gone), bool)
        self.reserved_from = np.full(len(gone), math.inf)
        self.has_reservations = False  # whether any GPU is booked ahead
        self._free_again_at = np.full(len(gone), -math.inf)
        self._spans = _Spans(len(gone))
        row = np.flatnonzero(~gone)
        node = snapshot.gpus.node.take(row).astype(np.int64)
        order = np.argsort(node, kind="stable")
        self.row, self.node = row[order], node[order]
        in_order = len(row) == len(snapshot.gpus.task) and (np.diff(self.row) == 1).all()
        self.every = slice(None) if in_order else self.row  # a slice costs no copies
        self.memory = snapshot.gpus.memory_bytes.take(self.row).astype(np.int64)
        self._suitable: dict[int, Bools] = {}  # by demand, `[GPU rows]`
        self._nth = nth_of_equals(self.node)  # GPU of its node
        self._width = _width(self._nth)
        self._last: dict[tuple[int, int], tuple[Bools, Ints, Ints]] = {}  # of each place
        self.among: Bools | None = None  # the only nodes to use, `[nodes]`

    @property
    def free_at(self) -> Floats:
        """When each GPU is expected to be free, `[GPU rows]`, in the world's clock.

        The runs are estimated when this is first needed: what starts now does not depend on it.
        """
        if not self.has_ends:
            ends = latest_holders(
                self.scratch.snapshot, self.end_at, free=self.now, left=self.now + SOONEST_S
            )
            np.maximum(self._free_at, ends, out=self._free_at)
            self.has_ends = True
            if self.scratch.snapshot.hardened is not None:
                self._keep_hardened(self.scratch.snapshot.hardened)
        return self._free_at

    def _keep_hardened(self, hardened: Hardened) -> None:
        """Count the GPUs that are kept for a unit as used until it has run on all of them."""
        snapshot = self.scratch.snapshot
        rows = kept_gpus(snapshot, hardened)
        known = self._free_at[rows][np.isfinite(self._free_at[rows])]
        if len(known):  # the others are free, and hidden
            tasks = hardened_tasks(snapshot, snapshot.names.job_rows[hardened.job])
            run_s = Estimates(snapshot).together_s(tasks)
            self.take(rows, min(float(known.max()) + run_s, UNKNOWN_AT))

    def _use_starts(self) -> None:
        """Count what the tasks hold that are placed already."""
        starts = self.scratch.starts
        if starts:
            ends = self.end_at(np.array([start.task for start in starts]))
            for start, end in zip(starts, ends.tolist(), strict=True):
                self.use([start], max(end, self.now + SOONEST_S))

    def windows_now(self) -> Floats:
        """Return for how long each of the free GPUs may be used from now on, ascending."""
        free = self.scratch.ledger.gpus.task.array()[self.row] == GPU_FREE
        rows = self.row[free & (self._free_at[self.row] <= self.now)]
        return np.sort(self.reserved_from[rows] - self.now)

    def beside_parts_milli(self) -> int:
        """Return a bound of the thousandths that may be used beside reserved parts of free GPUs."""
        free = self.scratch.ledger.gpus.task.array() == GPU_FREE
        rows = np.flatnonzero(free & self.parts.is_kept & self.is_unclaimed)
        return WHOLE * len(rows) - int(self.parts.milli_at_first(rows).sum()) if len(rows) else 0

    # --- what may be used now ------------------------------------------------------------------

    @property
    def is_unclaimed(self) -> Bools:
        """Which GPUs no claim, and no start of this round, holds now, `[GPU rows]`."""
        unclaimed: Bools = self._free_at <= self.now
        return unclaimed

    def use(self, starts: Sequence[Start], until: float) -> None:
        """Count what starts of this round hold as used until a time."""
        first = self.scratch.snapshot.nodes.first_gpu
        self.take([first[node] + gpu for _, node, gpus in starts for gpu in gpus], until)
        self.book.use(starts, until)
        self.parts.use(starts, until)

    def take(self, rows: Sequence[int] | Ints, until: float) -> None:
        """Count GPUs (rows) as used until a time."""
        self._free_at[rows] = np.maximum(self._free_at[rows], until)

    @contextmanager
    def only(self, among: Bools) -> Iterator[None]:
        """Use no other nodes than these, `[nodes]`, in a block."""
        before = self.among
        self.among = among if before is None else among & before
        try:
            yield
        finally:
            self.among = before

    def suits(self, demand: int) -> Bools:
        """Return which GPUs tasks of a demand could hold, free or not, `[GPU rows]`."""
        if demand not in self._suitable:
            self._suitable[demand] = self.scratch.ledger.suits(demand)
        return self._suitable[demand]

    def usable_now(self, demand: int, rows: Ints, run_s: float) -> Bools:
        """Return which GPUs are free, suit a demand and may be used for `run_s` seconds."""
        free = self.scratch.ledger.gpus.task.array()[rows] == GPU_FREE
        usable: Bools = (
            free
            & (self._free_at[rows] <= self.now)
            & self.suits(demand)[rows]
            & self.in_time(rows, self.now, run_s)
        )
        if self.kept_only:
            usable &= self.is_kept(rows)
        return usable

    def room_now(
        self, demand: int, count: int, run_s: float, used: set[int], *, distinct: bool
    ) -> Ints:
        """Return how many of `count` tasks of a demand may start on each node.

        None on those `used`.
        """
        spec, ledger = self.demands[demand], self.scratch.ledger
        gpus, nodes = None, len(ledger.nodes.alive)
        most: int | Ints = 1 if distinct else count
        if spec.in_part:
            parts = np.minimum(self.parts_now(demand, run_s)[self.row], count)
            most = np.minimum(runs_on_parts(parts, self.node, spec.gpus, nodes), most)
        elif spec.gpus:
            usable = self.usable_now(demand, self.row, run_s)
            gpus = np.bincount(self.node[usable], minlength=nodes)
        kept = self.book.left_free(self.now, run_s)
        room: Ints = np.minimum(ledger.room(demand, kept, gpus), most)
        room[sorted(used)] = 0
        if self.among is not None:
            room[~self.among] = 0
        return room

    def parts_now(self, demand: int, run_s: float, first: int = 0, end: int | None = None) -> Ints:
        """Return how many tasks on parts of GPUs (rows) may start on each now, for `run_s` seconds.

        What is only claimed of a GPU that is held in part may be used.
        """
        ledger = self.scratch.ledger
        room: Ints = ledger.gpu_room(demand, first, end)
        rows = np.arange(first, first + len(room))
        in_part = ledger.gpus.task.span(first, first + len(room)) == GPU_IN_PART
        kept, in_time = self.parts.is_kept[rows], self.in_time(rows, self.now, run_s)
        room = np.where((in_part | (self._free_at[rows] <= self.now)) & (kept | in_time), room, 0)
        some = np.flatnonzero(kept & (room > 0))
        if len(some) and run_s > SAME_INSTANT_S:
            room[some] = self.parts.room_now(demand, rows[some], self.now, run_s)
        return room

    def leaves_room(self, demand: int, node: int, run_s: float) -> bool:
        """Return whether a run of a demand leaves a node what reservations need within its time.

        GPUs aside.
        """
        if not self.book.is_kept(node):
            return True
        kept, free = self.book.kept_within(self.now, run_s), self.scratch.ledger.nodes.free
        needs = self.scratch.snapshot.names.needs[demand]
        return all(free.at(node, kind) - kept[kind][node] >= n for kind, n in needs if kind in kept)

    def are_usable(self, starts: Sequence[Start], holder: Array, run_s: float) -> bool:
        """Return whether starts leave what reservations, and claims, need within `run_s` seconds.

        They are on the scratch, but not counted yet; `holder` held the GPUs before.
        """
        first = self.scratch.snapshot.nodes.first_gpu
        rows = np.array([first[node] + gpu for _, node, gpus in starts for gpu in gpus], np.int64)
        unclaimed = (holder[rows] == GPU_IN_PART) | (self._free_at[rows] <= self.now)
        in_time = self.in_time(rows, self.now, run_s)
        if self.parts.matters and not in_time.all():
            in_part = self.scratch.ledger.gpus.task.array()[rows] == GPU_IN_PART
            late = np.flatnonzero(~in_time & in_part & self.parts.is_kept[rows])
            in_time[late] = self.parts.leaves_room(rows[late], self.now, run_s)
        kept, free = self.book.left_free(self.now, run_s), self.scratch.ledger.nodes.free
        tasks, needs = self.scratch.snapshot.tasks, self.scratch.snapshot.names.needs
        return bool((unclaimed & in_time).all()) and all(
            free.at(node, kind) >= kept[kind][node]
            for task, node, _ in starts
            for kind, _ in needs[tasks.demand[task]]
            if kind in kept
        )

    def in_time(self, rows: Ints | slice, at: float | Floats, run_s: float) -> Bools:
        """Return whether a run of `run_s` from a time on ends before GPUs are reserved."""
        in_time: Bools = at + run_s <= self.reserved_from[rows] + SAME_INSTANT_S
        return in_time

    # --- reservations --------------------------------------------------------------------------

    def keep(self, reservation: Reservation, run_s: float) -> None:
        """Keep the GPUs of a reservation free for a run of `run_s` seconds."""
        rows = reservation.gpus
        self.has_reservations = True
        if self.parts.matters:
            self.parts.keep(reservation, reservation.at + run_s)
            rows = np.unique(rows)
        self.reserved_from[rows] = np.minimum(self.reserved_from[rows], reservation.at)
        self._free_again_at[rows] = np.maximum(self._free_again_at[rows], reservation.at + run_s)
        self._spans.add(rows, reservation.at, reservation.at + run_s)
        for node, demand, count in reservation.tasks:
            self.book.keep(node, demand, count, reservation.at, reservation.at + run_s)

    def hold(self, rows: Ints, until: float) -> None:
        """Change when GPUs become free."""
        self.free_at[rows] = until

    def is_open(self) -> Bools:
        """Return which GPUs are free now, without a claim or reservation, `[GPU rows]`."""
        free = self.scratch.ledger.gpus.task.array() == GPU_FREE
        is_open: Bools = free & np.isinf(self.reserved_from) & (self._free_at <= self.now)
        return is_open

    def cost_of_open(self) -> Floats:
        """Return 0 for each GPU that is free now, without a claim or reservation, else inf."""
        return np.where(self.is_open(), 0.0, math.inf)

    def has_open(self) -> bool:
        """Return whether a GPU, or a part of one, is free now, without a claim or reservation."""
        in_part = np.zeros(0, bool)
        if self.parts.matters:
            ledger = self.scratch.ledger
            in_part = (ledger.gpus.task.array() == GPU_IN_PART) | self.parts.is_kept
            in_part &= ledger.open_gpus()
        return bool(in_part.any() or self.is_open().any())

    def claim(self, demand: int, run_s: Floats, by: ClaimOrder, sought: Ints | None = None) -> None:
        """Count the GPUs that are free soonest as used by tasks of a demand, for `run_s` each.

        With what else the tasks need of their nodes; not where a node lacks that now.
        Of equals those first that the fewest demands seek (`sought`, `[GPU rows]`), as these tasks
        may use any that suits. Not before reservations of these GPUs. For tasks that are placed
        after the units, on whichever of the free GPUs then suit them.
        """
        fits = self.row[self.suits(demand)[self.row]]
        at = self.available(fits, self.now, math.inf)
        if self.scratch.snapshot.names.needs[demand]:
            at = self._with_room_now(demand, fits, at)
        if sought is not None:
            order = np.lexsort((sought[fits], at))
            fits, at = fits[order], at[order]
        soonest = by(fits, at)[: len(run_s)]
        soonest = soonest[np.isfinite(at[soonest])]
        rows, at, run_s = fits[soonest], at[soonest], run_s[: len(soonest)]
        self.has_reservations = True
        if self.scratch.snapshot.names.needs[demand]:
            nodes = self.scratch.snapshot.gpus.node.take(rows).astype(np.int64)
            self.book.claim(nodes, demand, at, at + run_s)
        early = at <= self.free_at[rows]
        self._claimed[rows[early]] = True
        self.free_at[rows[early]] = (at + run_s)[early]
        self._free_again_at[rows[~early]] = (at + run_s)[~early]
        self._spans.add(rows[~early], at[~early], (at + run_s)[~early])
        if self.parts.matters:
            self.parts.claim(rows[~early], at[~early], (at + run_s)[~early])

    def _with_room_now(self, demand: int, rows: Ints, at: Floats) -> Floats:
        """Return when GPUs are free, inf for those of now whose nodes lack the rest of a demand.

        For a task on each of them. What nodes have later is not asked.
        """
        nodes = self.scratch.snapshot.gpus.node.take(rows).astype(np.int64)
        order = np.lexsort((at, nodes))
        ordinal = np.empty(len(rows), np.int64)
        ordinal[order] = nth_of_equals(nodes[order])
        room = room_in(self.scratch.snapshot.names.needs[demand], self.book.unclaimed)
        return np.where((at <= self.now) & (ordinal >= room[nodes]), math.inf, at)

    def free_soon(self, rows: Ints) -> None:
        """Count GPUs as free as soon as runs that are preempted now have stopped."""
        self.free_at[rows] = self.now + SOONEST_S
        self.reserved_from[rows], self._free_again_at[rows] = math.inf, -math.inf
        self._spans.remove(rows)
        self.parts.remove(rows)

    def unclaim(self) -> bool:
        """Count all GPUs that are free now as unused again; claims end. Return if any was."""
        free = self.row[self.scratch.ledger.gpus.task.array()[self.row] == GPU_FREE]
        was_claimed = bool(self._claimed[free].any())
        self.free_at[free] = self.now
        self._claimed[:] = False
        self.book.unclaim()
        return was_claimed

    def release(self) -> None:
        """Keep no GPU free any more; all reservations end."""
        self.reserved_from[:], self._free_again_at[:] = math.inf, -math.inf
        self.book.release()
        self.parts.release()
        self._spans = _Spans(len(self.reserved_from))

    def is_kept(self, rows: Ints) -> Bools:
        """Return which GPUs (rows) are reserved for units, and not claimed before that."""
        kept: Bools = np.isfinite(self.reserved_from[rows]) & ~self._claimed[rows]
        return kept

    def has_kept(self) -> bool:
        """Return whether a GPU that is free now is reserved for later, and not claimed."""
        free = self.scratch.ledger.gpus.task.array()[self.row] == GPU_FREE
        return bool(self.is_kept(self.row[free]).any())

    def available(self, rows: Ints | slice, at: float, run_s: float) -> Floats:
        """Return when GPUs are free for a run that starts at `at` or later, and ends in time."""
        free_at = self.free_at[rows]
        in_time = self.in_time(rows, np.maximum(free_at, at), run_s)
        later = np.maximum(free_at, self._free_again_at[rows])
        available: Floats = np.where(in_time, free_at, later)
        if self._spans.longest_gap_s >= run_s:
            some = np.flatnonzero(self._spans.gap_s[rows] >= run_s)
            gpus = some if isinstance(rows, slice) else rows[some]
            available[some] = self._spans.between(gpus, free_at[some], at, run_s)
        return available

    def places(self, demand: int, free_at: Floats, most: int, look: Look) -> tuple[Ints, Floats]:
        """Return places for a task each, at most `most` on a node: their nodes, and when free.

        The n-th place of a node is the n-th group of its GPUs in the order in which they are free.
        Where `look` has costs, these are in place of times.
        """
        gpus = self.demands[demand].gpus
        if (gpus, most) not in self._last:
            last = (self._nth % gpus == gpus - 1) & (self._nth < most * gpus)
            self._last[gpus, most] = last, self.node[last], self._nth[last] // gpus
        last, node, ordinal = self._last[gpus, most]
        place = self._by_node(free_at)[last]
        return node, self.with_room(demand, node, ordinal, free_at[place], look)

    def places_beside(self, demand: int, most: int, look: Look) -> tuple[Ints, Floats]:
        """Return the same for tasks without GPUs, on any node."""
        nodes = np.flatnonzero(self.scratch.ledger.usable_nodes(demand))
        if self.among is not None:
            nodes = nodes[self.among[nodes]]
        node, ordinal = np.repeat(nodes, most), np.tile(np.arange(most), len(nodes))
        return node, self.with_room(demand, node, ordinal, np.full(len(node), look.at), look)

    def _by_node(self, free_at: Floats) -> Ints:
        """Return the indices of the GPUs by node, those of a node in the order they are free."""
        if not self._width:
            return np.lexsort((free_at, self.node))
        order = free_at.reshape(-1, self._width).argsort(axis=1, kind="stable")
        order += np.arange(0, len(free_at), self._width)[:, None]
        return order.ravel()

    def latest(
        self, nodes: list[int], free_at: Floats, by: float, count: int, *, first: bool = False
    ) -> Ints:
        """Return the indices of `count` GPUs for each entry of `nodes`, node by node.

        Of those free by a time the ones free last, or the `first`, if so required.
        """
        places = dict.fromkeys(nodes, 0)
        for node in nodes:
            places[node] += count
        rank = np.full(int(self.node.max(initial=0)) + 1, -1)
        rank[[*places]] = np.arange(len(places))
        here = (free_at <= by).nonzero()[0]
        which = rank[self.node[here]]
        here, which = here[which >= 0], which[which >= 0]
        when = free_at[here] if first else -free_at[here]
        order = np.lexsort((when, self.memory[here], which))
        here, which = here[order], which[order]
        chosen: Ints = here[nth_of_equals(which) < np.array([*places.values()])[which]]
        return chosen

    def with_room(
        self, demand: int, node: Ints, ordinal: Ints, free_at: Floats, look: Look
    ) -> Floats:
        """Delay places to when the node also has CPUs, memory and custom kinds for them.

        With costs, places cost at least what it costs that the node has them.
        """
        needs = self.scratch.snapshot.names.needs[demand]
        if not needs:
            return free_at
        room = room_in(needs, self.book.unclaimed)
        lacks = ordinal >= room[node]
        if look.costs is None:
            for row in dict.fromkeys((*self.book.kept_nodes().tolist(), *look.taken)):
                lacks |= node == row
        lacking = (lacks & np.isfinite(free_at)).nonzero()[0]
        for row in np.unique(node[lacking]).tolist():
            here = lacking[node[lacking] == row]
            room_at = self._room_at(demand, row, ordinal[here], look)
            free_at[here] = np.maximum(free_at[here], room_at)
        return free_at

    def _room_at(self, demand: int, node: int, ordinal: Ints, look: Look) -> Floats:
        """Return when a node has room for its n-th task of a demand, or what that costs."""
        if look.costs is not None:
            of_tasks = look.costs.of_tasks
            return self.book.cost_of_room(demand, node, ordinal, of_tasks, SOONEST_S)
        taken = look.taken.get(node, {})
        return self.book.room_at(demand, node, ordinal, at=look.at, run_s=look.run_s, taken=taken)


class _Spans:
    """When GPUs are reserved, `[GPU rows, reservations]`, in order; inf beyond their number.

    Reservations of parts of a GPU may overlap: then begins and ends in order enclose the same times
    as their own ones.
    """

    def __init__(self, gpus: int) -> None:
        self.count = np.zeros(gpus, np.int64)
        self.gap_s = np.full(gpus, -math.inf)
        """The longest time between two reservations of a GPU; -inf where there are not two."""
        self.longest_gap_s = -math.inf
        self._begins, self._ends = np.full((2, gpus, 1), math.inf)

    def add(self, rows: Ints, begin: float | Floats, end: float | Floats) -> None:
        """Reserve GPUs from a time to another."""
        if not len(rows):
            return
        place = self.count[rows]
        if place.max() >= self._begins.shape[1]:
            more = np.full((len(self.count), self._begins.shape[1]), math.inf)
            self._begins, self._ends = (
                np.hstack([each, more]) for each in (self._begins, self._ends)
            )
        self._begins[rows, place], self._ends[rows, place] = begin, end
        self.count[rows] += 1
        again = rows[place > 0]
        if len(again):
            begins = self._begins[again] = np.sort(self._begins[again], axis=1)
            ends = self._ends[again] = np.sort(self._ends[again], axis=1)
            inner = np.isfinite(begins[:, 1:])
            gap_s = np.where(inner, begins[:, 1:] - np.where(inner, ends[:, :-1], 0.0), -math.inf)
            self.gap_s[again] = gap_s.max(axis=1) + SAME_INSTANT_S
            self.longest_gap_s = max(self.longest_gap_s, float(self.gap_s[again].max()))

    def remove(self, rows: Ints) -> None:
        """End all reservations of GPUs."""
        self.count[rows], self.gap_s[rows] = 0, -math.inf
        self._begins[rows] = self._ends[rows] = math.inf

    def between(self, rows: Ints, free_at: Floats, at: float, run_s: float) -> Floats:
        """Return when GPUs are free for a run that starts at `at` or later, between reservations.

        O(GPUs x reservations of one).
        """
        soonest = np.maximum(free_at, at)
        start_at = soonest
        for nth in range(int(self.count[rows].max(initial=0))):
            begins, ends = self._begins[rows, nth], self._ends[rows, nth]
            in_the_way = (start_at + run_s > begins + SAME_INSTANT_S) & (start_at < ends)
            start_at = np.where(in_the_way, ends, start_at)
        free: Floats = np.where(start_at <= soonest, free_at, start_at)
        return free

    def of(self, row: int) -> list[tuple[float, float]]:
        """Return the spans of a GPU."""
        spans = zip(self._begins[row].tolist(), self._ends[row].tolist(), strict=True)
        return list(spans)[: int(self.count[row])]


def _width(nth: Ints) -> int:
    """Return how many GPUs each node has, given the number of each GPU there; 0 if they differ."""
    width = int(nth.max(initial=0)) + 1
    equal = len(nth) % width == 0 and (nth[width - 1 :: width] == width - 1).all()
    return width if equal else 0
