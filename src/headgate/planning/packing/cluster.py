"""Packing in a cluster: the node, and the GPU, where a task takes least from the tasks to come.

Those to come are like the tasks of the jobs in flight, which wait or run: long runs weigh more, as
they hold GPUs for longer. A gang counts as what it needs of each node if it is on as few as it can.
What a node loses of its worth for them (`packing.future`), in GPUs, is lost for as long as the task
runs, and is missed with the probability that a GPU is in use. These GPU seconds are the wait that
the task is expected to cause; per GPU of its own, they are a price in seconds.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.base.order import nth_of_equals
from headgate.model import CPUS, MEMORY, Demand
from headgate.planning.packing.future import Future
from headgate.planning.packing.room import WHOLE, FreeNodes, PodDemand
from headgate.planning.shares.task_counts import unfinished
from headgate.state import JobState, Scratch, Snapshot
from headgate.state.ledger import runs_in
from headgate.state.tables import GPU_FREE, GPU_GONE

Mix = tuple[tuple[PodDemand, int], ...]

_KEPT = 64
_DIGITS = 6  # of a GPU: losses that differ by less are equal
_TIE = 1e-10  # GPUs per thousandth that the GPU has free: below the last digit
_recent: deque[tuple[Mix, bytes, Future]] = deque(maxlen=_KEPT)


def future_of(mix: Mix, idle: FreeNodes) -> Future:
    """Return what idle nodes are worth for a mix of demands; those used last are kept."""
    parts = (idle.cpu_milli, idle.memory_bytes, idle.gpus, idle.model)
    nodes = b"".join(part.tobytes() for part in parts)
    for *known, future in tuple(_recent):  # other threads may add some meanwhile
        if known == [mix, nodes]:
            return future
    made = Future.of(dict(mix), idle, leave=True)
    _recent.appendleft((mix, nodes, made))
    return made


class ClusterPacking:
    """Chooses nodes and GPUs on the scratch of one round."""

    def __init__(self, scratch: Scratch) -> None:
        """Read what is free from a scratch, whenever that is needed."""
        self._scratch, self._snapshot = scratch, scratch.snapshot
        snapshot = scratch.snapshot
        self._first = snapshot.nodes.first_gpu.array().astype(np.int64)
        self._count = snapshot.nodes.gpu_count.array().astype(np.int64)
        self._memory = snapshot.gpus.memory_bytes.array().astype(np.int64)

    @cached_property
    def _sizes(self) -> Sizes:
        return Sizes(self._snapshot)

    @cached_property
    def _future(self) -> Future | None:
        """What nodes are worth; None if all of their GPUs are worth the same for all tasks."""
        mix = mix_of(self._snapshot, self._sizes)
        if not any(map(_is_particular, mix)):
            return None
        total, sizes = self._snapshot.nodes.total, self._sizes
        cpus, memory = total.kind(CPUS), total.kind(MEMORY)
        return future_of(mix, FreeNodes.empty(cpus, memory, sizes.gpus, sizes.model))

    @property
    def matters(self) -> bool:
        """Whether some node may lose more than another one."""
        return self._future is not None

    @cached_property
    def in_use(self) -> float:
        """The part of the GPUs that runs hold when the round begins, 0 to 1."""
        gpus = self._snapshot.gpus
        free = gpus.task.array() != GPU_GONE
        total = np.count_nonzero(free) * WHOLE
        free &= gpus.task.array() < 0
        return 1.0 - int(gpus.free_milli.array()[free].sum()) / total if total else 0.0

    def price_s(self, loss: Floats, own_milli: int, run_s: float) -> Floats:
        """Return the wait that losses of GPUs for `run_s` seconds are expected to cause, seconds.

        Per GPU of the tasks that cause it, which have `own_milli` thousandths.
        """
        return loss * (self.in_use * run_s * WHOLE / max(own_milli, 1))

    def losses(
        self,
        demand: int,
        nodes: Ints,
        is_open: Bools,
        count: int = 1,
        freed: Sequence[Freed] = (),
    ) -> tuple[Floats, Ints]:
        """Return by node (rows) what others miss, in GPUs, where `count` tasks of a demand run.

        inf where they do not fit. Also the index of the GPU of each node for a task on part of
        one, else -1. `is_open`, `[GPU rows]`, are the GPUs that may be used. `freed` is what runs
        have freed at later times: the result is the mean of these and now. O(nodes x their GPUs x
        demands in flight x times).
        """
        if self._future is None:
            return np.zeros(len(nodes)), np.full(len(nodes), -1)
        spec = self._snapshot.names.demands[demand]
        free = self._free(nodes)
        gpu = self._free_milli(nodes, is_open)
        model = self._sizes.model[nodes]
        node, slot, after = self._ways(demand, nodes, gpu, count)
        asked = np.array([spec.cpus_milli, spec.memory_bytes]) * count
        loss = self._future.worth_of(free, gpu, model)[node]
        loss -= self._future.worth_of(free[node] - asked, after, model[node])
        row, there = self._gpus_of(nodes)
        for each in freed:
            more, milli = each.amounts[nodes], np.where(there, each.gpu_milli[row], 0)
            then = np.minimum(gpu + milli, WHOLE)
            loss += self._future.worth_of(free + more, then, model)[node]
            then = np.minimum(after + milli[node], WHOLE)
            loss -= self._future.worth_of((free + more)[node] - asked, then, model[node])
        loss = np.round(loss / (WHOLE * (1 + len(freed))), _DIGITS)
        if spec.gpus == 1 and spec.in_part:
            loss += _TIE * gpu[node, slot]
        order = np.lexsort((loss, node))
        least = order[nth_of_equals(node[order]) == 0]
        missed, gpus = np.full(len(nodes), math.inf), np.full(len(nodes), -1)
        missed[node[least]], gpus[node[least]] = loss[least], slot[least]
        return missed, gpus

    def free_milli(self, nodes: Ints, is_open: Bools) -> Ints:
        """Return the free thousandths of the GPUs of nodes (rows) that may be used."""
        found: Ints = self._free_milli(nodes, is_open).sum(axis=1)
        return found

    def _free(self, nodes: Ints) -> Floats:
        kinds = self._scratch.ledger.nodes.free
        free = np.stack([kinds.kind(CPUS)[nodes], kinds.kind(MEMORY)[nodes]], axis=1)
        left: Floats = np.maximum(free, 0).astype(float)
        return left

    def _gpus_of(self, nodes: Ints) -> tuple[Ints, Bools]:
        """Return the rows of GPUs by node, `[nodes, g]`, and which of them are there."""
        count = self._count[nodes]
        index = np.arange(int(count.max(initial=0)))
        there = index < count[:, None]
        return np.where(there, self._first[nodes, None] + index, 0), there

    def _free_milli(self, nodes: Ints, is_open: Bools) -> Ints:
        """Return what is free of each GPU, in thousandths of it or of its memory."""
        gpus = self._scratch.ledger.gpus
        row, there = self._gpus_of(nodes)
        there &= is_open[row]
        holder = gpus.task.array()[row]
        free: Ints = np.where(there & (holder == GPU_FREE), WHOLE, 0).astype(np.int64)
        parts = np.nonzero(there & self._scratch.ledger.open_gpus()[row] & (holder != GPU_FREE))
        if len(parts[0]):
            rows = row[parts]
            memory = np.maximum(self._memory[rows], 1)
            of_memory = np.maximum(gpus.free_bytes.array()[rows], 0) * WHOLE // memory
            of_memory[self._memory[rows] == 0] = WHOLE
            free[parts] = np.minimum(gpus.free_milli.array()[rows], of_memory)
        return free

    def _ways(self, demand: int, nodes: Ints, gpu: Ints, count: int) -> tuple[Ints, Ints, Ints]:
        """Return by way its node (index), its GPU, and what is free of all GPUs afterwards.

        GPUs of one node with equal free parts are one way; several GPUs are those with least free.
        """
        spec = self._snapshot.names.demands[demand]
        if not spec.gpus:
            return np.arange(len(nodes)), np.full(len(nodes), -1), gpu
        row, _ = self._gpus_of(nodes)
        memory, fits = self._memory[row], self._scratch.ledger.suits(demand)[row]
        if spec.in_part:
            taken = _part_milli(spec, memory)
            fits &= gpu >= taken
        else:
            taken = np.full(gpu.shape, WHOLE)
            fits &= gpu == WHOLE
        order = np.lexsort((memory, np.where(fits, gpu, 2 * WHOLE)), axis=1)
        if spec.in_part and spec.gpus == 1:
            first = fits.copy()
            held = np.take_along_axis(np.where(fits, gpu, -1), order, axis=1)
            again = np.zeros_like(fits)
            again[:, 1:] = held[:, 1:] == held[:, :-1]
            np.put_along_axis(first, order, ~again, axis=1)
            node, slot = np.nonzero(first & fits)
            after = gpu[node]
            after[np.arange(len(node)), slot] -= taken[node, slot]
            return node, slot, after
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.broadcast_to(np.arange(gpu.shape[1]), gpu.shape), axis=1)
        after = gpu - np.where(rank < spec.gpus * count, taken, 0)
        node = np.flatnonzero(fits.sum(axis=1) >= spec.gpus * count)
        return node, np.full(len(node), -1), after[node]


def _part_milli(spec: Demand, memory: Ints) -> Ints:
    """Return the thousandths that a part is of GPUs, or of their memory, the greater of the two."""
    of_memory = -(-spec.gpu_memory_bytes * WHOLE // np.maximum(memory, 1))
    return np.maximum(np.where(memory > 0, of_memory, 0), max(spec.gpu_milli, 1))


def _is_particular(each: tuple[PodDemand, int]) -> bool:
    """Return whether a demand is for GPUs, and not for any one whole GPU and nothing else."""
    demand, _ = each
    return demand.gpus > 0 and demand != PodDemand(gpus=1, milli=WHOLE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Freed:
    """What runs that end by some time free: thousandths `[GPU rows]`, CPUs and bytes."""

    gpu_milli: Ints
    amounts: Floats  # [nodes, 2]


class Ends:
    """When the runs of a snapshot are expected to free what they hold."""

    def __init__(self, snapshot: Snapshot, end_at: Callable[[Ints], Floats]) -> None:
        """`end_at` returns the ends of tasks (rows); O(GPUs + grants)."""
        self._snapshot, grants, names = snapshot, snapshot.grants, snapshot.names
        task = grants.task.array().astype(np.int64)
        held = np.flatnonzero(task >= 0)
        demand = grants.demand.take(held).astype(np.int64)
        self._node, self._end = grants.node.take(held).astype(np.int64), end_at(task[held])
        self.first = float(self._end.min(initial=math.inf))
        asks = [(spec.cpus_milli, spec.memory_bytes) for spec in names.demands]
        self._asks = np.array(asks, float).reshape(-1, 2)[demand]
        gpu, ends, milli = list[int](), list[float](), list[int]()
        first = snapshot.nodes.first_gpu
        for number in np.flatnonzero(_has_gpus(names.demands)[demand]).tolist():
            for index in grants.gpus[int(held[number])]:
                gpu.append(first[self._node[number]] + index)
                ends.append(self._end[number])
                milli.append(max(names.demands[demand[number]].gpu_milli, 1))
        self._gpu, self._gpu_end = np.array(gpu, np.int64), np.array(ends)
        self._milli = np.array(milli, np.int64)

    def freed(self, by: float) -> Freed:
        """Return what is freed by a time."""
        node = self._node[self._end <= by]
        asks, nodes = self._asks[self._end <= by], len(self._snapshot.nodes.alive)
        cpus, memory = (np.bincount(node, asks[:, column], nodes) for column in (0, 1))
        some = self._gpu_end <= by
        gpus = len(self._snapshot.gpus.node)
        milli = np.bincount(self._gpu[some], self._milli[some], gpus).astype(np.int64)
        return Freed(gpu_milli=milli, amounts=np.stack([cpus, memory], axis=1))


def _has_gpus(demands: Sequence[Demand]) -> Bools:
    return np.array([demand.gpus > 0 for demand in demands], bool)


class Sizes:
    """The GPUs of the nodes that are up: kinds, by memory and model, are numbered, ascending."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Read the nodes; O(GPUs x log)."""
        gpus = snapshot.gpus
        up = gpus.task.array() != GPU_GONE
        node = gpus.node.array().astype(np.int64)[up]
        each = np.stack([gpus.memory_bytes.array()[up], gpus.model.array()[up]])
        kinds, number, often = np.unique(each, axis=1, return_inverse=True, return_counts=True)
        self.memory, self._names = kinds[0], [snapshot.names.models[row] for row in kinds[1]]
        self.model = np.zeros(len(snapshot.nodes.alive), np.int64)
        np.maximum.at(self.model, node, number.ravel().astype(np.int64))
        self.gpus = np.bincount(node, minlength=len(self.model))
        self.usual = int(self.memory[often.argmax()]) if len(often) else 0
        self.width = int(self.gpus.max(initial=0))

    def demand(self, spec: Demand, count: int = 1) -> PodDemand:
        """Return what `count` tasks on one node ask for, as pods of a mix do."""
        milli, models = 0, None
        if spec.in_part:
            milli = min(int(_part_milli(spec, np.array([self.usual]))[0]), WHOLE)
        elif spec.gpus:
            milli = WHOLE
            large = np.flatnonzero(self.memory >= spec.gpu_memory_bytes).tolist()
            enough = [kind for kind in large if spec.accepts_model(self._names[kind])]
            models = None if len(enough) == len(self.memory) else frozenset(enough)
        return PodDemand(
            cpu_milli=spec.cpus_milli * count,
            memory_bytes=spec.memory_bytes * count,
            gpus=spec.gpus * count,
            milli=milli,
            models=models,
        )


def mix_of(snapshot: Snapshot, sizes: Sizes) -> Mix:
    """Return what the tasks of the jobs in flight ask for, and about how many they are.

    Numbers are powers of two, so that what is learnt from them lasts. A gang is as many tasks as it
    has left of the demand of its first one. O(jobs + tasks of those in flight).
    """
    jobs, tasks, names = snapshot.jobs, snapshot.tasks, snapshot.names
    active = np.flatnonzero(jobs.state.array() == JobState.ACTIVE)
    is_gang = jobs.gang.take(active) > 0
    counts: Counter[PodDemand] = Counter()
    one_by_one, gangs = active[~is_gang], active[is_gang]
    many = jobs.task_count.take(one_by_one).astype(np.int64)
    row = np.repeat(jobs.first_task.take(one_by_one).astype(np.int64), many)
    row += nth_of_equals(np.repeat(np.arange(len(many)), many)) if len(row) > len(many) else 0
    row = row[unfinished(tasks.state.take(row))]
    each = np.bincount(tasks.demand.take(row), minlength=1)
    for number in np.flatnonzero(each).tolist():
        counts[sizes.demand(names.demands[number])] += int(each[number])
    first = tasks.demand.take(jobs.first_task.take(gangs)).astype(np.int64)
    size = (jobs.unfinished.take(gangs) - jobs.beyond.take(gangs)).astype(np.int64)
    most = int(size.max(initial=0)) + 1
    kinds, often = np.unique(first * most + size, return_counts=True)
    for kind, times in zip(kinds.tolist(), often.tolist(), strict=True):
        spec, left = names.demands[kind // most], kind % most
        on_node = 1 if spec.in_part or not spec.gpus else max(runs_in(sizes.width, spec.gpus), 1)
        full, rest = divmod(left, on_node)
        for number, together in ((full, on_node), (1, rest)):
            if number and together:
                counts[sizes.demand(spec, together)] += number * times
    return tuple((demand, _rounded(number)) for demand, number in counts.items())


def _rounded(number: int) -> int:
    """Return a power of two near a number."""
    return 1 << ((2 * number * number).bit_length() - 1) // 2
