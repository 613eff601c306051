"""Why a unit does not start: the first cause that applies, with its numbers.

A ceiling of its queue; a reservation of others that it would run into; too few free GPUs, or too
few together; other resources. All that is computed is read from the tables of a round: nothing is
placed, so any thread may ask once the round is over. The reasons of what is short, and where, are
made here; those of ceilings, shares and turns in `planning.place.limits`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.base.units import MOST_SECONDS, SAME_INSTANT_S, format_size
from headgate.model import WHOLE, Demand, Node
from headgate.planning.place.choose import Placer
from headgate.planning.place.limits import queue_limit
from headgate.planning.place.timetable import Timetable
from headgate.planning.shares.standing import Standing
from headgate.planning.times.reservations import Reservation, Spread, superseded
from headgate.planning.units.fit import (
    accepted_text,
    demand_text,
    gpus_text,
    model_text,
    most_on_one_node,
    one_node_text,
)
from headgate.planning.units.unit import Unit
from headgate.protocol import Reason
from headgate.protocol.reasons import (
    GPU_MEMORY,
    GPU_SHARE,
    BackfillTooLong,
    Fragmented,
    GangShort,
    GangSpread,
    GpuMemory,
    NoFittingNode,
    NoFreeGpu,
    NothingFits,
    Short,
    Shortage,
)
from headgate.protocol.reserved_at import ReservedAt
from headgate.state import Scratch
from headgate.state.ledger import runs_in
from headgate.state.quotas import amounts_of
from headgate.state.tables import GPU_FREE, GPU_GONE, GPU_IN_PART

_NAMED_MOST = 3  # jobs that a reservation names
_MANY = 2**31  # tasks or parts: more than any job has


def being_stopped(scratch: Scratch, job: int) -> GangShort:
    """Return why a gang (row of its job) waits of which some tasks are being stopped."""
    waiting = len(scratch.snapshot.waiting_of(job))
    reason = gang_short(scratch, job, waiting)
    return replace(reason, stopping_tasks=reason.tasks - waiting)


def gang_short(scratch: Scratch, job: int, placeable_tasks: int) -> GangShort:
    """Return why a gang (row of its job) waits of which so many tasks fit; O(its tasks)."""
    snapshot = scratch.snapshot
    tasks = snapshot.tasks_of(job)
    return GangShort(
        placeable_tasks=placeable_tasks,
        tasks=len(tasks),
        free_gpus=int(scratch.ledger.nodes.free_gpus.array().sum()),
        needed_gpus=sum(snapshot.tasks.gpus[task] for task in tasks),
    )


def no_free_gpu(free_gpus: int, total_gpus: int) -> NoFreeGpu:
    """Return why a task waits for one whole GPU of any kind."""
    return NoFreeGpu(free_gpus=free_gpus, needed_gpus=1, total_gpus=total_gpus)


def gpu_memory(needed_bytes: int, largest_free_bytes: int) -> GpuMemory:
    """Return why a task waits although GPUs are free: these have too little memory."""
    return GpuMemory(needed_bytes=needed_bytes, largest_free_bytes=largest_free_bytes)


def no_such_gpu(memory_bytes: int, model: str = "") -> NothingFits:
    """Return why a task waits for a GPU of a model (text) that no node has with `memory_bytes`."""
    one = f"1 {model} GPU" if model else "a GPU"
    return NothingFits(need=f"{one} of {format_size(memory_bytes)}" if memory_bytes else one)


def no_gpu_of_type(standing: Standing, task_type: int, demand: Demand, free: Ints) -> Reason:
    """Return why a task that is not multi-GPU waits, since none of the free GPUs suits its type.

    `free` are these, `[classes]`; the task is of `demand`.
    """
    memory_bytes, model = demand.gpu_memory_bytes, model_text(demand)
    if task_type == len(standing.accepts):
        return no_such_gpu(memory_bytes, model)
    if not model:
        return gpu_memory(memory_bytes, int(standing.class_bytes[free > 0].max(initial=0)))
    return NoFreeGpu(
        free_gpus=int(free[standing.accepts[task_type]].sum()),
        needed_gpus=1,
        total_gpus=int(standing.gpus[standing.kinds.accepts[task_type]].sum()),
        memory_bytes=memory_bytes,
        model=model,
    )


def never_fits_a_node(demand: Demand, task: int, nodes: Sequence[Node]) -> NothingFits:
    """Return why a job never runs: no idle node holds its task of this number and demand."""
    return replace(_no_such_node(demand), task=task, most=most_on_one_node(demand, nodes))


def never_fits_together(need: str, largest: int) -> NothingFits:
    """Return why a gang never runs: at most `largest` members fit the idle cluster."""
    return NothingFits(need=need, largest=largest)


def _no_such_node(demand: Demand) -> NothingFits:
    return NothingFits(need=f"{demand_text(demand)} on {one_node_text(demand)}")


def no_room(scratch: Scratch, task: int) -> Reason:
    """Return why a task fits no node of a scratch, though its GPUs, if any, would fit.

    Or which limit of its queue leaves no room. O(nodes x resources).
    """
    view, demand = scratch.snapshot, scratch.snapshot.tasks.demand[task]
    job, amounts = view.tasks.job[task], amounts_of(view.names, demand)
    if not scratch.may_hold(job, amounts):
        return queue_limit(view, scratch.quotas, scratch.quotas.row_of(job), amounts)
    nodes = np.array(view.live_nodes(), np.int64)
    spec, free_gpus = view.names.demands[demand], scratch.ledger.nodes.free_gpus.array()[nodes]
    beside = nodes if spec.in_part else nodes[free_gpus >= spec.gpus]
    return lacking_resource(scratch, demand, beside if len(beside) else nodes, nodes)


def lacking_resource(
    scratch: Scratch, demand: int, beside: Ints, nodes: Ints
) -> Shortage | NoFittingNode | NothingFits:
    """Return what the nodes of `beside`, those of `nodes` with GPUs for a demand, lack for it."""
    names, free = scratch.snapshot.names, scratch.ledger.nodes.free
    spec = names.demands[demand]
    if spec.restricted:
        accepted = scratch.ledger.accepted_nodes(demand)
        beside, nodes = beside[accepted[beside]], nodes[accepted[nodes]]
        if not len(nodes):
            return _no_such_node(spec)
    for kind, amount in names.needs[demand]:
        most = max(0, int(free.kind(kind)[beside].max(initial=0)))
        if most < amount:
            elsewhere = bool((free.kind(kind)[nodes] >= amount).any())
            with_gpus = gpus_text(spec) if elsewhere else ""
            name = names.resources[kind]
            return Shortage(resource=name, needed=amount, most_free=most, beside=with_gpus)
    return NoFittingNode(need=demand_text(spec))


class WhyWaits:
    """The reasons of units that wait after a round; O(GPUs) once, and per shape of a unit."""

    def __init__(
        self,
        scratch: Scratch,
        timetable: Timetable | None = None,
        reservations: Sequence[Reservation] = (),
        placer: Placer | None = None,
    ) -> None:
        """Explain by the starts of a round and, where it has them, its timetable and reservations.

        Without a timetable, every free GPU may be used without limit. What fits waits for a better
        set, if a placer may let it wait.
        """
        self._may_wait = placer is not None and placer.may_wait
        self._scratch, self._snapshot = scratch, scratch.snapshot
        self._reservations, self._timetable = reservations, timetable
        gpus = scratch.ledger.gpus
        self._holder = gpus.task.array().astype(np.int64)
        self._memory = gpus.memory_bytes.array().astype(np.int64)
        self._node = gpus.node.array().astype(np.int64)
        self._free_milli = gpus.free_milli.array()
        self._free_bytes = np.maximum(gpus.free_bytes.array(), 0)
        self._nodes = np.array(self._snapshot.live_nodes(), np.int64)
        now, count = self._snapshot.now, len(self._holder)
        self._free_at = np.full(count, now) if timetable is None else timetable.free_at
        self._window_s: Floats = np.full(count, math.inf)
        if timetable is not None:
            self._window_s = np.maximum(timetable.reserved_from - now, 0.0)
        self._unclaimed: Bools = (self._holder == GPU_IN_PART) | (self._free_at <= now)
        self._reservation = {each.unit.tasks: each for each in reservations}
        self._known: dict[tuple[object, int], Reason | float] = {}

    def reason(self, unit: Unit, run_s: float = math.inf) -> Reason | None:
        """Return why a unit waits, or None if it fits for `run_s` seconds and the policy holds it.

        `run_s` is the bound of its run time that the round used, inf if unknown.
        """
        key = unit.shape, self._scratch.quotas.row_of(unit.job)
        if key not in self._known:
            self._known[key] = self._short(unit)
        known, mine = self._known[key], self._reservation.get(unit.tasks)
        reserved = None if mine is None else self._reserved(mine)
        if mine is not None and mine.spread is not None:
            return self._waits_for_links(mine, mine.spread, reserved)
        if isinstance(known, Reason):
            return replace(known, reserved=reserved) if isinstance(known, Short) else known
        if run_s <= known + SAME_INSTANT_S:
            gpus = -(-unit.gpus_milli(self._snapshot) // WHOLE)
            spread = GangSpread(tasks=len(unit.tasks), gpus=gpus, reserved=reserved)
            return spread if self._may_wait else None
        return BackfillTooLong(
            needs_s=None if math.isinf(run_s) else run_s,
            hole_s=known,
            ahead=self._ahead(known),
            reserved=reserved,
        )

    def _waits_for_links(
        self, mine: Reservation, spread: Spread, reserved: ReservedAt | None
    ) -> GangSpread:
        """Return why a unit waits that fits now, but would end later there."""
        return GangSpread(
            tasks=len(mine.unit.tasks),
            gpus=-(-mine.unit.gpus_milli(self._snapshot) // WHOLE),
            spans=spread.spans,
            level=spread.level,
            slowdown=spread.slowdown,
            wait_s=mine.at - self._snapshot.now,
            better_spans=spread.better_spans,
            reserved=reserved,
        )

    def _short(self, unit: Unit) -> Reason | float:
        """Return what is short for a unit, or for how long it fits now."""
        quotas, amounts = self._scratch.quotas, unit.amounts(self._snapshot)
        if not self._scratch.may_hold(unit.job, amounts):
            return queue_limit(self._snapshot, quotas, quotas.row_of(unit.job), amounts)
        if self.tasks_that_fit(unit) == len(unit.tasks):
            return self._hole_s(unit)
        if len(unit.tasks) == 1:
            return self._short_task(unit.demands[0])
        return self._short_gang(unit)

    # --- what fits -----------------------------------------------------------------------------

    def tasks_that_fit(self, unit: Unit, run_s: float = 0.0) -> int:
        """Return how many tasks of a unit fit now, together, for `run_s` seconds.

        Exact for tasks of equal demand, on whole GPUs or on one; else a lower bound.
        """
        fit = 0
        taken = np.zeros(len(self._snapshot.nodes.alive), np.int64)  # GPUs, by node
        used = np.zeros(len(taken), bool)
        needs: dict[int, Ints | int] = {}  # amounts taken, by kind and node
        for demand in sorted(set(unit.demands), key=self._largest_first):
            count = unit.demands.count(demand)
            room = self._room(demand, run_s, taken, needs)
            if unit.distinct_nodes:
                room = np.where(used, 0, np.minimum(room, 1))
            before = np.cumsum(room) - room
            here = np.clip(count - before, 0, room)
            fit += int(here.sum())
            used |= here > 0
            taken += here * self._snapshot.names.demands[demand].gpus
            for kind, amount in self._snapshot.names.needs[demand]:
                needs[kind] = needs.get(kind, 0) + here * amount
        return fit

    def _largest_first(self, demand: int) -> tuple[int, int]:
        return -self._snapshot.names.demands[demand].gpus_milli, demand

    def _room(self, demand: int, run_s: float, taken: Ints, needs: dict[int, Ints | int]) -> Ints:
        """Return how many tasks of a demand fit each node, beside what is taken, `[nodes]`."""
        has_gpus = self._snapshot.names.demands[demand].gpus > 0
        slots = self._slots(demand, run_s, taken) if has_gpus else None
        return np.minimum(self._scratch.ledger.room(demand, needs, slots), _MANY)

    def _slots(self, demand: int, run_s: float = 0.0, taken: Ints | int = 0) -> Ints:
        """Return how many GPUs, or parts of them, each node has free for a demand, `[nodes]`.

        `taken` GPUs of each node are no more free, those with most room.
        """
        usable = self._unclaimed & (self._window_s >= run_s - SAME_INSTANT_S)
        several = self._snapshot.names.demands[demand].gpus > 1  # each part on another GPU
        if self._snapshot.names.demands[demand].in_part and self._timetable is not None:
            room = self._timetable.parts_now(demand, run_s)
        else:
            room = np.where(usable, self._scratch.ledger.gpu_room(demand), 0)
        parts = np.minimum(room, 1 if several else _MANY)
        most, nodes = np.zeros(len(self._snapshot.nodes.alive), np.int64), self._node
        np.maximum.at(most, nodes, parts)
        by_node = np.bincount(nodes, parts, minlength=len(most)).astype(np.int64)
        slots: Ints = np.maximum(by_node - taken * most, 0)
        return slots

    # --- reservations --------------------------------------------------------------------------

    def _hole_s(self, unit: Unit) -> float:
        """Return for how long a unit that fits now may run before it is in the way."""
        if self.tasks_that_fit(unit, math.inf) == len(unit.tasks):
            return math.inf
        begins = np.zeros(0) if self._timetable is None else self._timetable.parts.begins()
        begin_s = np.maximum(begins - self._snapshot.now, 0.0)
        windows = np.unique(np.concatenate([self._window_s, begin_s]))
        low, high = 0, len(windows)  # the unit fits for windows[low - 1], not for windows[high]
        while low < high:
            middle = (low + high) // 2
            if self.tasks_that_fit(unit, float(windows[middle])) == len(unit.tasks):
                low = middle + 1
            else:
                high = middle
        return float(windows[low - 1]) if low else 0.0

    def _ahead(self, hole_s: float) -> str:
        """Return the job whose reservation begins after `hole_s` seconds, "" if none is known."""
        end_at = self._snapshot.now + hole_s
        first = min(self._reservations, key=lambda each: abs(each.at - end_at), default=None)
        return "" if first is None else self._snapshot.job(first.unit.job).id

    def _reserved(self, mine: Reservation) -> ReservedAt:
        """Return when a unit starts by its reservation, and what it waits for."""
        ends: dict[int, float] = {}  # by job: the last end of its runs there
        for row in mine.gpus.tolist():
            for job in self._jobs_on(row, mine.at):
                ends[job] = max(ends.get(job, -math.inf), min(self._free_at[row], mine.at))
        for other in self._reservations:
            if other.at < mine.at and len(np.intersect1d(other.gpus, mine.gpus)):
                ends[other.unit.job] = mine.at
        ends.pop(mine.unit.job, None)
        order = sorted(ends, key=lambda job: (ends[job], job))
        names = [self._snapshot.job(job).id for job in order[-_NAMED_MOST:]]
        ahead_s = mine.at - self._snapshot.now
        known = ahead_s <= MOST_SECONDS
        return ReservedAt(
            at=mine.at if known else None,
            ahead_s=ahead_s if known else None,
            after=tuple(names),
            others=len(order) - len(names),
            superseded=superseded(self._snapshot, mine.unit.job),
            announced=mine.announced,
        )

    def _jobs_on(self, gpu: int, by: float) -> list[int]:
        """Return the jobs whose runs hold a GPU (row), or part of it that they leave by a time."""
        jobs, holder = self._snapshot.tasks.job, int(self._holder[gpu])
        if holder >= 0:
            return [jobs[holder]]
        if holder != GPU_IN_PART:
            return []
        node = int(self._node[gpu])
        index = gpu - self._snapshot.nodes.first_gpu[node]
        grants = self._snapshot.grants
        here = np.flatnonzero((grants.node.array() == node) & (grants.task.array() >= 0)).tolist()
        tasks = [grants.task[row] for row in here if index in grants.gpus[row]]
        tasks += [s.task for s in self._scratch.starts if s.node == node and index in s.gpus]
        if self._timetable is not None:
            ends = self._timetable.end_at(np.array(tasks, np.int64)).tolist()
            tasks = [task for task, end in zip(tasks, ends, strict=True) if end <= by]
        return [jobs[task] for task in tasks]

    # --- what is short -------------------------------------------------------------------------

    def _short_task(self, demand: int) -> Reason:
        """Return what is short for one task."""
        spec = self._snapshot.names.demands[demand]
        if not spec.gpus:
            return self._other_resource(demand)
        if spec.in_part:
            return self._short_part(demand)
        up = (self._holder != GPU_GONE) & self._scratch.ledger.suits(demand)
        on_node = self._slots(demand)
        free, most = int(on_node.sum()), int(on_node.max(initial=0))
        if np.bincount(self._node[up], minlength=1).max() < spec.gpus:
            if spec.gpus == 1 and not spec.restricted:
                return no_such_gpu(spec.gpu_memory_bytes)
            return _no_such_node(spec)
        any_free = (self._holder == GPU_FREE) & self._unclaimed
        if not free and any_free.any() and not spec.restricted:
            largest = int(self._memory[any_free].max())
            return gpu_memory(spec.gpu_memory_bytes, largest)
        if free < spec.gpus:
            return NoFreeGpu(
                free_gpus=free,
                needed_gpus=spec.gpus,
                total_gpus=int(up.sum()),
                memory_bytes=spec.gpu_memory_bytes,
                model=model_text(spec),
                nodes=accepted_text(spec),
            )
        if most < spec.gpus:
            return Fragmented(
                free_gpus=free,
                most_on_one_node=most,
                needed_gpus=spec.gpus,
                model=model_text(spec),
            )
        return self._other_resource(demand)

    def _short_part(self, demand: int) -> Reason:
        """Return what is short for a task on parts of GPUs."""
        spec = self._snapshot.names.demands[demand]
        if (self._slots(demand) >= spec.gpus).any():
            return self._other_resource(demand)
        ledger = self._scratch.ledger
        usable = np.flatnonzero(ledger.open_gpus() & self._unclaimed & ledger.suits(demand))
        milli = int(self._free_milli[usable].max(initial=0))
        if milli < spec.gpu_milli or (spec.gpu_milli and not len(usable)):
            return Shortage(resource=GPU_SHARE, needed=spec.gpu_milli, most_free=milli)
        if not len(usable):
            return Shortage(resource=GPU_MEMORY, needed=spec.gpu_memory_bytes, most_free=0)
        enough = usable[self._free_milli[usable] >= spec.gpu_milli]
        best = int(enough[self._free_bytes[enough].argmax()])
        needed, free = spec.part_bytes(int(self._memory[best])), int(self._free_bytes[best])
        if free >= needed:  # parts of several GPUs, of which too few have room
            return NoFittingNode(need=demand_text(spec))
        return Shortage(resource=GPU_MEMORY, needed=needed, most_free=free)

    def _other_resource(self, demand: int) -> Reason:
        """Return which resource the nodes lack that have the GPUs for a task."""
        spec, nodes = self._snapshot.names.demands[demand], self._nodes
        beside = nodes[self._slots(demand)[nodes] >= spec.gpus] if spec.gpus else nodes
        return lacking_resource(self._scratch, demand, beside, nodes)

    def _short_gang(self, unit: Unit) -> Reason:
        """Return what is short for a gang."""
        demands = sorted(set(unit.demands), key=self._largest_first)
        if len(demands) == 1:
            return self._short_equal(unit, demands[0])
        specs = [(each, self._snapshot.names.demands[each]) for each in unit.demands]
        whole = [(each, spec) for each, spec in specs if spec.gpus and not spec.in_part]
        return GangShort(
            placeable_tasks=self.tasks_that_fit(unit),
            tasks=len(unit.tasks),
            free_gpus=max((int(self._slots(each).sum()) for each, _ in whole), default=0),
            needed_gpus=sum(spec.gpus for _, spec in whole),
        )

    def _short_equal(self, unit: Unit, demand: int) -> Reason:
        """Return what is short for a gang of tasks of one demand."""
        spec, tasks, fit = (
            self._snapshot.names.demands[demand],
            len(unit.tasks),
            self.tasks_that_fit(unit),
        )
        is_whole = bool(spec.gpus) and not spec.in_part
        on_node = self._slots(demand) if is_whole else np.zeros(1, np.int64)
        free, needed = int(on_node.sum()), spec.gpus * tasks if is_whole else 0
        if free >= needed:
            places = np.minimum(runs_in(on_node, spec.gpus), 1 if unit.distinct_nodes else _MANY)
            if is_whole and places.sum() < tasks:
                return Fragmented(
                    free_gpus=free,
                    most_on_one_node=int(on_node.max()),
                    needed_gpus=spec.gpus,
                    tasks=tasks,
                    placeable_tasks=fit,
                    distinct_nodes=unit.distinct_nodes,
                    model=model_text(spec),
                )
            if not fit:
                return self._short_task(demand)
        return GangShort(
            placeable_tasks=fit,
            tasks=tasks,
            free_gpus=free,
            needed_gpus=needed,
            lacking=self._lacking(unit, demand) if free >= needed else "",
            model=model_text(spec),
        )

    def _lacking(self, unit: Unit, demand: int) -> str:
        """Return the resource for want of which tasks of a gang do not fit, "" if there are more.

        All its tasks have this demand, and the GPUs suffice.
        """
        names, free = self._snapshot.names, self._scratch.ledger.nodes.free
        spec = names.demands[demand]
        gpus = runs_in(self._slots(demand)[self._nodes], spec.gpus)
        gpus = np.minimum(gpus, 1 if unit.distinct_nodes else _MANY)
        places = {
            kind: np.minimum(gpus, runs_in(np.maximum(free.kind(kind)[self._nodes], 0), amount))
            for kind, amount in names.needs[demand]
        }
        short = [kind for kind, room in places.items() if room.sum() < len(unit.tasks)]
        return names.resources[short[0]] if len(short) == 1 else ""
