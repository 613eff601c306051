"""The ledger: what is free on every node and GPU, and the grants that hold the rest.

The only class that decides what fits. The state has one; admission, policies and what-if use
tentative ones, made from a snapshot, in which attempts can be rolled back.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from headgate.base.column import Array, Column
from headgate.base.errors import InvariantBroken
from headgate.model import CPUS, MEMORY, UNLIMITED, WHOLE, Demand, Node
from headgate.model.labels import selects
from headgate.protocol import NO_OUTSIDE, GpuOutside, Outside
from headgate.state.tables import (
    DRAINING,
    FOR_RUN,
    GPU_FREE,
    GPU_GONE,
    GPU_IN_PART,
    OTHERS,
    GpuTable,
    GrantTable,
    NodeTable,
    frozen,
    grow,
    thawed,
)
from headgate.state.trial import Trial
from headgate.state.view import Names, View

NOTHING: Mapping[int, int] = MappingProxyType({})
"""No amounts, by kind of resource."""

Gpus = tuple[int, ...]
"""Indices of GPUs on their node; empty for a grant without GPUs."""

_Booked = tuple[int, int, int, Gpus, int]  # task, demand, node, GPUs, sign


def capacity(names: Names, node: Node) -> list[int]:
    """Return the amounts that a node has, by kind of resource."""
    amounts = {names.resource(name): milli for name, milli in node.custom}
    amounts[CPUS] = WHOLE * node.cpus
    amounts[MEMORY] = UNLIMITED if node.memory_bytes is None else node.memory_bytes
    return [amounts.get(kind, 0) for kind in range(len(names.resources))]


def runs_in(free: Any, needed: int) -> Any:
    """Return how many runs that need so much each fit what is free of one kind together.

    Of a number, or of an array of them. UNLIMITED where nothing is needed.
    """
    return free // needed if needed else UNLIMITED


def room_in(
    needs: Iterable[tuple[int, int]], free: Callable[[int], Array], most: Any = UNLIMITED
) -> Any:
    """Return how many runs with these needs fit free amounts together, at most `most`.

    `free` returns the amounts of a kind, as arrays alike: of nodes while idle, at other times, or
    once runs have ended. What nodes have free now is `Ledger.room`.
    """
    room = most
    for kind, amount in needs:
        room = np.minimum(room, runs_in(free(kind), amount))
    return room


def parts_in(spec: Demand, free_milli: Any, free_bytes: Array, memory_bytes: Array) -> Any:
    """Return how many runs on parts of GPUs fit each GPU together, given what it has free.

    Of its share, and of its memory, which has `memory_bytes` in all.
    """
    part_bytes = spec.part_bytes(memory_bytes)
    if np.any(part_bytes == 0):  # GPUs of unknown memory
        free_bytes = np.where(part_bytes == 0, UNLIMITED, free_bytes)
        part_bytes = np.maximum(part_bytes, 1)
    return np.minimum(runs_in(free_milli, spec.gpu_milli), free_bytes // part_bytes)


class Ledger:
    """Free amounts by node, GPUs by holder, and grants; a grant is what a task holds on one node.

    Rows of released grants are used again, the lowest first.
    """

    __slots__ = ("_names", "_shared", "_spare", "_taken", "closed", "gpus", "grants", "nodes")

    def __init__(
        self,
        names: Names,
        nodes: NodeTable[Any, Any],
        gpus: GpuTable[Any],
        grants: GrantTable[Any],
    ) -> None:
        """Book in these tables, which may contain grants already."""
        self._names = names
        self.nodes, self.gpus, self.grants = nodes, gpus, grants
        self._spare: list[int] = []
        self._shared = False  # its tables are still a snapshot's, to be copied before a write
        self._taken: list[_Booked] | None = None  # in order, if tentative
        self.closed: list[int] = []
        """Nodes excluded from those that have room, if tentative."""
        if isinstance(grants.task, Column):
            self._spare = np.flatnonzero(grants.task.array() < 0).tolist()

    @classmethod
    def tentative(cls, view: View) -> Ledger:
        """Return a separate ledger that starts as a view's; O(pages), copied on write.

        What is taken in it, or freed, can be rolled back; it has no row in `grants`.
        """
        ledger = cls(view.names, frozen(view.nodes), frozen(view.gpus), view.grants)
        ledger._shared, ledger._taken = True, []
        return ledger

    # --- reading -------------------------------------------------------------------------------

    def lacks(self, demand: int, node: int) -> str:
        """Return the first kind of which a node has too little free for a demand, "" for none."""
        free = self.nodes.free
        if self.nodes.draining[node]:
            return "room (it is draining)"
        if not self._accepts(demand, node):
            return "room (the task is for other nodes)"
        for kind, amount in self._names.needs[demand]:
            if free.at(node, kind) < amount:
                return self._names.resources[kind]
        return ""

    def room(
        self,
        demand: int,
        beside: Mapping[int, Array | int] = NOTHING,
        gpus: Array | None = None,
    ) -> Array:
        """Return how many runs of a demand fit each node together, `[nodes]`.

        Beside amounts that are no longer free, by kind, and on `gpus` GPUs, or parts of GPUs, of
        each node. UNLIMITED where they need nothing else than GPUs, and these are not given; 0 on
        nodes that are closed, draining, down or not accepted.
        """
        room: Array = np.where(self.usable_nodes(demand), UNLIMITED, 0)
        if gpus is not None:
            room = np.minimum(room, runs_in(gpus, self._names.demands[demand].gpus))
        needs, free = self._names.needs[demand], self.nodes.free
        runs: Array = room_in(
            needs, lambda kind: np.maximum(free.kind(kind) - beside.get(kind, 0), 0), room
        )
        return runs

    def usable_nodes(self, demand: int) -> Array:
        """Return which nodes may take runs of a demand, whatever they have free, `[nodes]`.

        Not those that are closed, draining, down or not accepted.
        """
        up: Array = self.nodes.alive.array() > self.nodes.draining.array()
        up[self.closed] = False
        if self._names.demands[demand].restricted:
            up = up & self.accepted_nodes(demand)
        return up

    def nodes_with_room(self, demand: int) -> Array:
        """Return which nodes fit a run of a demand, GPUs aside, `[nodes]`; see `room`."""
        found: Array = self.room(demand) > 0
        return found

    def _accepts(self, demand: int, node: int) -> bool:
        """Return whether a demand is for a node, whatever it has."""
        spec = self._names.demands[demand]
        return not spec.restricted or spec.accepts_node(self.nodes.spec[node])

    def accepted_nodes(self, demand: int) -> Array:
        """Return which nodes a demand is for, whatever they have, `[nodes]`."""
        spec, rows, count = self._names.demands[demand], self._names.node_rows, len(self.nodes.spec)
        accepted: Array = np.full(count, not spec.nodes)
        for names, value in ((spec.nodes, True), (spec.exclude, False)):
            known = [rows.get(name, count) for name in names]
            accepted[[row for row in known if row < count]] = value
        if spec.selector:
            fit = np.array([selects(spec.selector, held) for held in self._names.label_sets])
            accepted &= fit[self.nodes.label_set.array()]
        return accepted

    def suits(self, demand: int, first: int = 0, end: int | None = None) -> Array:
        """Return which GPUs (rows) a run of a demand could hold: by memory, model and node.

        One that processes outside Headgate use suits no run that needs it whole. Whether they are
        free, up, or held is another matter.
        """
        spec, gpus = self._names.demands[demand], self.gpus
        end = len(gpus.task) if end is None else end
        outside = gpus.outside_bytes.span(first, end)
        left = gpus.memory_bytes.span(first, end) - outside
        fitting: Array = left >= spec.gpu_memory_bytes
        if not spec.in_part:
            fitting &= outside == 0
        if spec.gpu_models:
            models = np.array([spec.accepts_model(name) for name in self._names.models])
            fitting = fitting & models[gpus.model.span(first, end)]
        if spec.for_nodes or spec.selector:
            fitting = fitting & self.accepted_nodes(demand)[gpus.node.span(first, end)]
        return fitting

    def gpu_room(self, demand: int, first: int = 0, end: int | None = None) -> Array:
        """Return how many runs of a demand fit each GPU (rows) together, GPUs alone.

        At most one run holds a GPU whole, of which no other run may hold any part.
        """
        spec, gpus = self._names.demands[demand], self.gpus
        end = len(gpus.task) if end is None else end
        suits = self.suits(demand, first, end)
        if not spec.in_part:
            whole: Array = (gpus.task.span(first, end) == GPU_FREE) & suits
            return whole.astype(np.int64)
        parts = parts_in(
            spec,
            gpus.free_milli.span(first, end),
            np.maximum(gpus.free_bytes.span(first, end), 0),
            gpus.memory_bytes.span(first, end),
        )
        fitting: Array = np.where(self.open_gpus(first, end) & suits, parts, 0)
        return fitting

    def open_gpus(self, first: int = 0, end: int | None = None) -> Array:
        """Return which GPUs (rows) are free, or are held in part and not withheld."""
        end = len(self.gpus.task) if end is None else end
        holder, withheld = self.gpus.task.span(first, end), self.gpus.withheld.span(first, end)
        found: Array = (holder == GPU_FREE) | ((holder == GPU_IN_PART) & (withheld == 0))
        return found

    def exceeds_capacity(self, demand: int, node: int) -> bool:
        """Return whether a node, even idle, has too little, GPUs aside, or is not accepted."""
        total = self.nodes.total
        if self.nodes.draining[node] or not self._accepts(demand, node):
            return True
        return any(total.at(node, kind) < amount for kind, amount in self._names.needs[demand])

    def free_gpus(self, node: int) -> Array:
        """Return the indices of a node's wholly free GPUs, smallest memory first, then by index."""
        first, end = self._gpus_of(node)
        free: Array = (self.gpus.task.span(first, end) == GPU_FREE).nonzero()[0]
        return free[np.argsort(self.gpus.memory_bytes.span(first, end)[free], kind="stable")]

    def _gpus_of(self, node: int) -> tuple[int, int]:
        """Return the first row of a node's GPUs, and the one after its last."""
        first: int = self.nodes.first_gpu[node]
        return first, first + self.nodes.gpu_count[node]

    def tightest(self, node: int) -> Array:
        """Return the indices of a node's GPUs in the order in which parts of them are taken.

        A GPU held in part before a free one, so that others stay whole; then that with the least
        left, the smallest, the first.
        """
        first, end = self._gpus_of(node)
        gpus = self.gpus
        keys = (gpus.free_bytes, gpus.free_milli, gpus.task)  # GPU_FREE is above GPU_IN_PART
        order: Array = np.lexsort([key.span(first, end) for key in keys])
        return order

    def best_gpus(self, demand: int, node: int) -> Gpus | None:
        """Return the best GPUs of a node for a demand, or None where it does not fit.

        Whole ones: the smallest that suffice; in part: the tightest.
        """
        spec = self._names.demands[demand]
        if self.lacks(demand, node):
            return None
        if not spec.gpus:
            return ()
        if not spec.in_part and self.nodes.free_gpus[node] < spec.gpus:
            return None
        first, end = self._gpus_of(node)
        room = self.gpu_room(demand, first, end)
        fits = room.nonzero()[0]
        if len(fits) < spec.gpus:
            return None
        if spec.in_part:
            order = self.tightest(node)
            fits = order[room[order] > 0]
        elif len(fits) > 1:
            memory_bytes = self.gpus.memory_bytes.span(first, end)
            fits = fits[np.argsort(memory_bytes[fits], kind="stable")]
        return tuple(fits[: spec.gpus].tolist())

    def infeasibility(self, demand: int, node: int, gpus: Sequence[int]) -> str:
        """Return why a demand cannot hold exactly these GPUs of a node, "" if it can."""
        spec, name = self._names.demands[demand], self.nodes.spec[node].id
        if len(gpus) != spec.gpus:
            return f"needs {spec.gpus} GPUs, not {len(gpus)}"
        if len(set(gpus)) < len(gpus):
            return "a GPU is named twice"
        first, end = self._gpus_of(node)
        room = self.gpu_room(demand, first, end) if gpus else ()
        for index in gpus:
            there = 0 <= index < end - first
            if there and room[index]:
                continue
            if there and not spec.accepts_model(self._names.models[self.gpus.model[first + index]]):
                return f"GPU {index} of {name} is of another model"
            if spec.in_part:
                return f"GPU {index} of {name} has too little left"
            if there and self.gpus.outside_bytes[first + index]:
                return f"GPU {index} of {name} is in use outside Headgate"
            if not there or self.gpus.task[first + index] != GPU_FREE:
                return f"GPU {index} of {name} is not free"
            return f"GPU {index} of {name} is too small"
        lacking = self.lacks(demand, node)
        return f"too little free {lacking} on {name}" if lacking else ""

    # --- writing -------------------------------------------------------------------------------

    def take(self, task: int, demand: int, node: int, gpus: Gpus, purpose: int = FOR_RUN) -> int:
        """Grant a task what it demands, on these GPUs; return the grant's row, -1 if tentative.

        Raises InvariantBroken for what does not fit.
        """
        problem = self.infeasibility(demand, node, gpus)
        if problem:
            raise InvariantBroken(problem)
        self._book(task, demand, node, gpus, -1)
        if self._taken is not None:
            self._taken.append((task, demand, node, gpus, -1))
            return -1
        grants = self.grants
        if self._spare:
            row = heapq.heappop(self._spare)
        else:
            row = len(grants.task)
            grow(grants)
        grants.task[row], grants.node[row] = task, node
        grants.demand[row], grants.gpus[row] = demand, gpus
        if purpose != FOR_RUN:
            grants.purpose[row] = purpose
        return row

    def release(self, grant: int) -> None:
        """Free all that a grant holds; its row may be reused."""
        grants = self.grants
        task = grants.task[grant]
        if task < 0:
            raise InvariantBroken(f"grant {grant} is released already")
        self._book(task, grants.demand[grant], grants.node[grant], grants.gpus[grant], 1)
        grants.task[grant] = -1
        if grants.purpose[grant] != FOR_RUN:
            grants.purpose[grant] = FOR_RUN
        heapq.heappush(self._spare, grant)

    def _book(self, task: int, demand: int, node: int, gpus: Gpus, sign: int) -> None:
        """Take what a demand holds from what is free (`sign` -1), or return it (1)."""
        if self._shared:
            self._own()
        needs = self._names.needs[demand]
        if needs and not self.nodes.draining[node]:
            self.nodes.free.add(node, needs, sign)
        if not gpus:
            return
        spec, first = self._names.demands[demand], self.nodes.first_gpu[node]
        if spec.in_part:
            for index in gpus:
                self._book_part(spec, node, first + index, sign)
            return
        holder, expected = (task, GPU_FREE) if sign < 0 else (GPU_FREE, task)
        for index in gpus:
            gpu = first + index
            if self.gpus.task[gpu] != expected:
                raise InvariantBroken(
                    f"GPU {index} of {self.nodes.spec[node].id} is held by another run"
                )
            self.gpus.task[gpu] = holder
        self.nodes.free_gpus[node] += sign * len(gpus)
        if sign > 0:
            self._settle_free(node, [first + index for index in gpus])

    def _own(self, *more: str) -> None:
        """Replace the columns of a snapshot by others that can be written: those of bookings."""
        self._shared = False
        self.nodes = thawed(self.nodes, ("free", "free_gpus", *more))
        self.gpus = thawed(self.gpus, ("task", "free_milli", "free_bytes", *more))

    def _book_part(self, spec: Demand, node: int, gpu: int, sign: int) -> None:
        gpus = self.gpus
        was_free = gpus.task[gpu] == GPU_FREE
        memory_bytes = gpus.memory_bytes[gpu]
        gpus.free_milli[gpu] += sign * spec.gpu_milli
        gpus.free_bytes[gpu] += sign * spec.part_bytes(memory_bytes)
        unheld = self._is_unheld(gpu)
        if unheld and not was_free:
            self._free_gpu(node, gpu)
            self._settle_free(node, (gpu,))
        elif was_free and not unheld:
            gpus.task[gpu] = GPU_IN_PART
            self.nodes.free_gpus[node] -= 1

    def _is_unheld(self, gpu: int) -> bool:
        """Return whether no run holds any of a GPU (row) that is not gone, or held whole."""
        gpus = self.gpus
        left: int = gpus.memory_bytes[gpu] - gpus.outside_bytes[gpu]
        return bool(gpus.free_milli[gpu] == WHOLE and gpus.free_bytes[gpu] == left)

    def _free_gpu(self, node: int, gpu: int) -> None:
        """Make a GPU (row) free that no run holds; `_settle_free` says whether it stays so."""
        gpus = self.gpus
        gpus.task[gpu], gpus.free_milli[gpu] = GPU_FREE, WHOLE
        gpus.free_bytes[gpu] = gpus.memory_bytes[gpu]
        self.nodes.free_gpus[node] += 1

    def _settle_free(self, node: int, gpus: Sequence[int]) -> None:
        """Take those of these GPUs (rows) out of the capacity that are free and withheld.

        Of those that are free and used outside, runs may hold parts of the rest.
        """
        table = self.gpus
        for gpu in gpus:
            if table.task[gpu] != GPU_FREE:
                continue
            if table.withheld[gpu]:
                table.task[gpu] = GPU_GONE
                table.free_milli[gpu] = table.free_bytes[gpu] = 0
                self.nodes.free_gpus[node] -= 1
            elif table.outside_bytes[gpu]:
                table.task[gpu] = GPU_IN_PART
                table.free_bytes[gpu] = table.memory_bytes[gpu] - table.outside_bytes[gpu]
                self.nodes.free_gpus[node] -= 1

    def withhold(self, row: int, gpus: Collection[int], why: int = OTHERS) -> bool:
        """Withhold these GPUs of a node, by index, and no others; return whether any has changed.

        `why` is OTHERS or DRAINING. One that a run holds, at least in part, stays capacity until
        nothing holds any of it.
        """
        first, count = self.nodes.first_gpu[row], self.nodes.gpu_count[row]
        held_back = self.gpus.withheld.span(first, first + count) & why
        changed = [index for index in range(count) if bool(held_back[index]) != (index in gpus)]
        for gpu in (first + index for index in changed):
            self.gpus.withheld[gpu] ^= why
            holder = self.gpus.task[gpu]
            if (not self.gpus.withheld[gpu] and holder == GPU_GONE) or (
                holder == GPU_IN_PART and self._is_unheld(gpu)
            ):
                self._free_gpu(row, gpu)
        self._settle_free(row, [first + index for index in changed])
        return bool(changed)

    def set_outside(self, row: int, outside: Outside) -> bool:
        """Record what processes outside Headgate use of a node; return whether that changed.

        What runs hold of it stays theirs; the rest of it is not free.
        """
        nodes, first = self.nodes, self.nodes.first_gpu[row]
        changed = False
        for kind, amount in ((CPUS, outside.cpus_milli), (MEMORY, outside.memory_bytes)):
            more = amount - nodes.outside.at(row, kind)
            changed |= bool(more)
            nodes.outside.add(row, ((kind, more),), 1)
            if not nodes.draining[row]:
                nodes.free.add(row, ((kind, more),), -1)
        used = {each.gpu: each for each in outside.gpus}
        for index in range(nodes.gpu_count[row]):
            each = used.get(index, GpuOutside(index, 0, 0))
            changed |= self._set_gpu_outside(row, first + index, each)
        return changed

    def _set_gpu_outside(self, node: int, gpu: int, outside: GpuOutside) -> bool:
        gpus = self.gpus
        more = outside.memory_bytes - gpus.outside_bytes[gpu]
        gpus.outside_bytes[gpu], gpus.outside_pid[gpu] = outside.memory_bytes, outside.pid
        if more and gpus.task[gpu] == GPU_IN_PART:
            gpus.free_bytes[gpu] -= more
            if self._is_unheld(gpu):
                self._free_gpu(node, gpu)
        self._settle_free(node, (gpu,))
        return bool(more)

    def forget_outside(self) -> None:
        """Assume that no process outside Headgate uses anything."""
        assert self._taken == [], "only a new tentative ledger assumes anything"
        some = np.flatnonzero(self.nodes.outside.array().any(axis=1))
        of_gpus = self.gpus.node.array()[self.gpus.outside_bytes.array() > 0]
        if len(used := np.union1d(some, of_gpus)):
            self._own("outside", "outside_bytes", "outside_pid")
        for row in used.tolist():
            self.set_outside(row, NO_OUTSIDE)

    def drain(self, row: int, *, draining: bool) -> None:
        """Take all that is free on a node, now and later, out of the capacity; or give it back."""
        self.withhold(row, range(self.nodes.gpu_count[row] if draining else 0), DRAINING)
        amounts = capacity(self._names, self.nodes.spec[row])
        self.nodes.draining[row] = int(draining)
        self.nodes.total[row] = self.nodes.free[row] = () if draining else amounts
        if not draining:
            self.nodes.free.add(row, enumerate(self.nodes.outside[row]), -1)
            for grant in self.grants_on(row):
                self.nodes.free.add(row, self._names.needs[self.grants.demand[grant]], -1)

    def grants_on(self, row: int) -> list[int]:
        """Return the grants (rows) on a node; O(grants)."""
        here = (self.grants.node.array() == row) & (self.grants.task.array() >= 0)
        return np.flatnonzero(here).tolist()

    def is_idle(self, row: int) -> bool:
        """Return whether no grant holds anything of a node that is up."""
        nodes, first = self.nodes, self.nodes.first_gpu[row]
        if nodes.draining[row]:
            return not self.grants_on(row)
        holders = self.gpus.task.span(first, first + nodes.gpu_count[row])
        some = np.flatnonzero((holders != GPU_FREE) & (holders != GPU_GONE))
        if (holders[some] >= 0).any() or not all(map(self._is_unheld, (first + some).tolist())):
            return False
        left = [*nodes.free[row]]
        for kind, amount in enumerate(nodes.outside[row]):
            left[kind] += amount
        return bool(tuple(left) == nodes.total[row])

    def set_labels(self, row: int, labels: tuple[str, ...]) -> None:
        """Give a node these labels; what it holds stays."""
        self.nodes.spec[row] = replace(self.nodes.spec[row], labels=labels)
        self.nodes.label_set[row] = self._names.label_set(labels)

    def add_node(self, row: int, node: Node) -> None:
        """Add a node's capacity, all of it free; its GPUs get new rows."""
        amounts = capacity(self._names, node)
        self.nodes.total[row] = amounts
        self.nodes.free[row] = amounts
        count = len(node.gpus)
        first = self.nodes.first_gpu[row] = len(self.gpus.node)
        self.nodes.gpu_count[row] = self.nodes.free_gpus[row] = count
        memory = np.array([gpu.memory_bytes for gpu in node.gpus], np.int64)
        models = {gpu.model: self._names.model(gpu.model) for gpu in node.gpus}
        grow(self.gpus, count)
        for column, values in (
            (self.gpus.node, row),
            (self.gpus.memory_bytes, memory),
            (self.gpus.model, np.array([models[gpu.model] for gpu in node.gpus], np.int64)),
            (self.gpus.free_bytes, memory),
            (self.gpus.free_milli, WHOLE),
        ):
            column.write(first, values, count)

    def remove_node(self, row: int) -> None:
        """Remove a node's capacity; InvariantBroken while a grant holds any of it."""
        first, count = self.nodes.first_gpu[row], self.nodes.gpu_count[row]
        if not self.is_idle(row):
            raise InvariantBroken(
                f"node {self.nodes.spec[row].id} is removed while runs hold some of it"
            )
        for gpu in range(first, first + count):
            self.gpus.task[gpu], self.gpus.withheld[gpu] = GPU_GONE, 0
            self.gpus.free_milli[gpu] = self.gpus.free_bytes[gpu] = 0
            self.gpus.actual_bytes[gpu] = self.gpus.utilisation_milli[gpu] = -1
            self.gpus.outside_bytes[gpu] = self.gpus.outside_pid[gpu] = 0
        self.nodes.total[row] = self.nodes.free[row] = self.nodes.outside[row] = ()
        self.nodes.free_gpus[row] = self.nodes.draining[row] = 0

    # --- tentative -----------------------------------------------------------------------------

    def trial(self) -> Trial:
        """Return an attempt that releases all grants taken inside, unless it is kept."""
        assert self._taken is not None, "only a tentative ledger has trials"
        return Trial(partial(self._end_trial, len(self._taken)))

    def free(self, task: int, demand: int, node: int, gpus: Gpus) -> None:
        """Free what a task holds, none of it withheld; undone like what is taken."""
        assert self._taken is not None, "only a tentative ledger frees what others hold"
        self._book(task, demand, node, gpus, 1)
        self._taken.append((task, demand, node, gpus, 1))

    def close(self, nodes: list[int]) -> None:
        """Exclude these nodes, and no others, from those that have room."""
        assert self._taken is not None, "only a tentative ledger closes nodes"
        self.closed = nodes

    def _end_trial(self, before: int, kept: bool) -> None:  # called by Trial alone
        """Undo all but the first `before` bookings, unless the attempt is kept."""
        assert self._taken is not None, "only a tentative ledger has trials"
        while not kept and len(self._taken) > before:
            task, demand, node, gpus, sign = self._taken.pop()
            self._book(task, demand, node, gpus, -sign)
