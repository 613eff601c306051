"""Units: waiting tasks that start together, a gang or one task; and their placement by first fit.

A unit is *multi-GPU* unless it is one task on one whole GPU of any node: a gang, a task of several
GPUs or of a part of one, or one that names or excludes nodes; and each of an elastic job that
starts with several tasks. Tasks without GPUs are units of their
own kind: see `planning.place.cpu_tasks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headgate.base.arrays import Ints
from headgate.model import Demand
from headgate.planning.units.fit import beside_first_fit, by_gpus, by_size, runs_that_fit
from headgate.state import Scratch, Snapshot, TaskState
from headgate.state.elastic import unit_size
from headgate.state.quotas import Amounts, amounts_of


def is_multi_gpu(demand: Demand) -> bool:
    """Return whether a task of a demand is wide: on anything but one whole GPU of any node."""
    return demand.gpus > 1 or demand.in_part or (demand.gpus == 1 and demand.for_nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Waiting tasks of one job that start together; `demands` are their rows, by task."""

    job: int
    tasks: tuple[int, ...]
    demands: tuple[int, ...]
    distinct_nodes: bool = False

    @property
    def shape(self) -> tuple[tuple[int, ...], bool]:
        """What determines where a unit fits: equal for units that fit the same places."""
        return self.demands, self.distinct_nodes

    def gpus_milli(self, snapshot: Snapshot) -> int:
        """Return the thousandths of GPUs that it holds once started."""
        return sum(snapshot.names.demands[demand].gpus_milli for demand in self.demands)

    def on_gpus(self, snapshot: Snapshot) -> bool:
        """Return whether a task of it needs GPUs: a share of one, or no more than its memory."""
        return any(snapshot.names.demands[demand].gpus for demand in set(self.demands))

    def amounts(self, snapshot: Snapshot) -> Amounts:
        """Return what it takes of the quotas of its queue."""
        names = snapshot.names
        if len(self.demands) == 1:
            return amounts_of(names, self.demands[0])
        sums: dict[int, int] = {}
        for demand in self.demands:
            for kind, amount in amounts_of(names, demand):
                sums[kind] = sums.get(kind, 0) + amount
        return tuple(sums.items())

    def by_demand(self, snapshot: Snapshot) -> list[tuple[int, list[int]]]:
        """Return its tasks by demand, those with most GPUs first, those without at last."""
        tasks: dict[int, list[int]] = {}
        for task, demand in zip(self.tasks, self.demands, strict=True):
            tasks.setdefault(demand, []).append(task)
        specs = snapshot.names.demands
        return sorted(tasks.items(), key=lambda each: (by_gpus(specs[each[0]]), each[0]))

    def largest_first(self, snapshot: Snapshot) -> Unit:
        """Return the unit with its tasks by GPUs, most first, then by their memory."""
        if len(set(self.demands)) == 1:
            return self
        specs = [snapshot.names.demands[demand] for demand in self.demands]
        order = sorted(range(len(specs)), key=lambda n: by_size(specs[n]))
        return replace(
            self,
            tasks=tuple(self.tasks[n] for n in order),
            demands=tuple(self.demands[n] for n in order),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Units:
    """Waiting tasks of one job: one gang, or tasks of one demand of which each is a unit."""

    job: int
    tasks: Ints  # rows, ascending
    demands: Ints  # rows, by task
    gang: bool
    distinct_nodes: bool

    def __len__(self) -> int:
        return 1 if self.gang else len(self.tasks)

    def __iter__(self) -> Iterator[Unit]:
        """Yield the units in the order of their tasks."""
        if self.gang:
            tasks, demands = tuple(self.tasks.tolist()), tuple(self.demands.tolist())
            yield Unit(
                job=self.job, tasks=tasks, demands=demands, distinct_nodes=self.distinct_nodes
            )
            return
        demand = (int(self.demands[0]),)
        for task in self.tasks.tolist():
            yield Unit(job=self.job, tasks=(task,), demands=demand)


def waiting_units(snapshot: Snapshot, job: int, *, multi_gpu: bool = False) -> list[Units]:
    """Return the units of a job that wait for GPUs, in the order of their first tasks.

    Only `multi_gpu` ones, if so required. A gang of which a task does not wait (it is being
    stopped) has none. The hardened unit is none of them: places are kept for it. O(tasks of the
    job).
    """
    hardened = hardened_tasks(snapshot, job)
    whole = snapshot.jobs.gang[job] or snapshot.jobs.task_count[job] == 1
    if hardened and whole:
        return []
    if snapshot.jobs.task_count[job] == 1 and not snapshot.jobs.gang[job]:
        return _single(snapshot, job, multi_gpu=multi_gpu)
    tasks = snapshot.waiting_of(job).astype(np.int64)
    if snapshot.jobs.gang[job]:
        whole = len(tasks) == unit_size(snapshot, job)
        on_gpus = snapshot.jobs.waiting[job] > 0
        return [_gang(snapshot, job, tasks)] if whole and on_gpus else []
    if hardened:
        tasks = tasks[~np.isin(tasks, hardened)]
    units, demands = [], snapshot.tasks.demand.take(tasks).astype(np.int64)
    first = np.sort(np.unique(demands, return_index=True)[1])
    every = not multi_gpu or snapshot.jobs.elastic[job]
    for demand in demands[first].tolist():
        spec = snapshot.names.demands[demand]
        if spec.gpus and (every or is_multi_gpu(spec)):
            some = tasks[demands == demand]
            units.append(
                Units(
                    job=job,
                    tasks=some,
                    demands=np.full(len(some), demand),
                    gang=False,
                    distinct_nodes=False,
                )
            )
    return units


def hardened_tasks(snapshot: Snapshot, job: int) -> list[int]:
    """Return the tasks (rows) of a job (row) for which places are kept."""
    hardened = snapshot.hardened
    if hardened is None or snapshot.names.job_rows.get(hardened.job) != job:
        return []
    first = snapshot.tasks_of(job).start
    return [first + place.ordinal for place in hardened.places]


def _single(snapshot: Snapshot, job: int, *, multi_gpu: bool) -> list[Units]:
    """Return `waiting_units` of a job of one task, which most are."""
    task = snapshot.jobs.first_task[job]
    demand = snapshot.tasks.demand[task]
    spec = snapshot.names.demands[demand]
    if snapshot.tasks.state[task] != TaskState.WAITING or not spec.gpus:
        return []
    if multi_gpu and not is_multi_gpu(spec):
        return []
    return [
        Units(
            job=job,
            tasks=np.array([task]),
            demands=np.array([demand]),
            gang=False,
            distinct_nodes=False,
        )
    ]


def one_task(snapshot: Snapshot, task: int) -> Unit:
    """Return a task (row) that starts alone as a unit."""
    return Unit(job=snapshot.tasks.job[task], tasks=(task,), demands=(snapshot.tasks.demand[task],))


def all_units(snapshot: Snapshot, job: int) -> Iterator[Iterable[Unit]]:
    """Yield the units of a job (row) that wait, together those of one shape; on GPUs first."""
    if snapshot.jobs.gang[job]:
        gang = waiting_gang(snapshot, job)
        if gang is not None:
            yield (gang,)
        return
    yield from waiting_units(snapshot, job)
    tasks = snapshot.waiting_of(job).astype(np.int64)
    tasks = tasks[snapshot.tasks.gpus.take(tasks) == 0]
    demands = snapshot.tasks.demand.take(tasks)
    for demand in dict.fromkeys(demands.tolist()):
        yield (one_task(snapshot, task) for task in tasks[demands == demand].tolist())


def units_in_order(snapshot: Snapshot, job: int) -> Iterator[Unit | None]:
    """Yield the waiting units of a job (row) in the order of tasks, with GPUs or without.

    None for a gang that is being stopped.
    """
    if snapshot.jobs.gang[job]:
        yield waiting_gang(snapshot, job)
    else:
        for task in snapshot.waiting_of(job).tolist():
            yield one_task(snapshot, task)


def waiting_gang(snapshot: Snapshot, job: int) -> Unit | None:
    """Return a gang, with or without GPUs, as a unit if all its tasks wait; O(tasks)."""
    tasks = snapshot.waiting_of(job)
    if len(tasks) < unit_size(snapshot, job):
        return None
    (unit,) = _gang(snapshot, job, tasks.astype(np.int64))
    return unit


def is_on_gpus(snapshot: Snapshot, job: int) -> bool:
    """Return whether any task of a job (row) needs GPUs, or memory of some; O(tasks)."""
    tasks = snapshot.tasks_of(job)
    return bool(snapshot.tasks.gpus.span(tasks.start, tasks.stop).any())


def _gang(snapshot: Snapshot, job: int, tasks: Ints) -> Units:
    return Units(
        job=job,
        tasks=tasks,
        demands=snapshot.tasks.demand.take(tasks).astype(np.int64),
        gang=True,
        distinct_nodes=snapshot.job(job).distinct_nodes,
    )


class FirstFit:
    """Places units on a scratch: each task on the first node where it fits, on its best GPUs.

    Nodes are tried in order of arrival, those that have too few free GPUs left out. Resources are
    only taken while it is in use, so a shape that did not fit is not tried again.
    """

    def __init__(self, scratch: Scratch) -> None:
        self.scratch = scratch
        self._failed: set[tuple[tuple[int, ...], bool]] = set()
        self._left: dict[int, list[int]] = {}  # by demand of one task: nodes, the next one last

    def place(self, unit: Unit, among: Sequence[int] | None = None) -> bool:
        """Place all tasks of a unit, as one group of steps, or none; O(tasks + nodes) if it fits.

        In their order, or if they do not fit so, the largest first. With `among` only on these
        nodes, tried in that order, the largest tasks first. Raises no error for a queue's ceiling:
        it is the caller's to check (`Scratch.may_hold`).
        """
        if among is None and len(unit.tasks) == 1:
            return self._place_single(unit.tasks[0], unit.demands[0])
        if among is None and unit.shape in self._failed:
            return False
        largest_first = unit.largest_first(self.scratch.snapshot)
        for ordered in dict.fromkeys((largest_first if among is not None else unit, largest_first)):
            with self.scratch.trial() as trial:
                if self._place_all(ordered, among):
                    trial.keep()
                    return True
        if among is None:
            self._failed.add(unit.shape)
        return False

    def _place_single(self, task: int, demand: int) -> bool:
        """Place one task; nodes that did not fit its demand are not tried again."""
        if demand not in self._left:
            self._left[demand] = self._nodes(demand)[::-1]
        closed = {*self.scratch.ledger.closed}  # maybe since the last one
        return self._place_one(task, self._left[demand], closed) is not None

    def most(self, unit: Unit) -> int:
        """Return how many tasks of a unit fit together, in their order; nothing is placed."""
        with self.scratch.trial():
            before = len(self.scratch.starts)
            self._place_all(unit)
            return len(self.scratch.starts) - before

    def nodes_for(self, unit: Unit, nodes: Sequence[int]) -> list[int]:
        """Return the first of these nodes, in order, that hold a unit while idle, or none."""
        snapshot = self.scratch.snapshot
        demands = unit.largest_first(snapshot).demands
        chosen, left = list[int](), [snapshot.names.demands[demand] for demand in demands]
        # How first fit divides GPUs among runs on parts of several of them, only a trial shows.
        equal = len(set(demands)) == 1 and not (left[0].in_part and left[0].gpus > 1)
        for node in nodes:
            spec, most = snapshot.node(node), 1 if unit.distinct_nodes else len(left)
            if equal:
                rest = left[min(most, runs_that_fit(spec, left[0])) :]
            else:
                rest = beside_first_fit(spec, left, most)
            if len(rest) < len(left):
                chosen.append(node)
                left = rest
            if not left:
                return chosen
        return []

    def _place_all(self, unit: Unit, among: Sequence[int] | None = None) -> bool:
        used: set[int] = set()
        nodes: dict[int, list[int]] = {}  # by demand: those left to try, the next one last
        for task, demand in zip(unit.tasks, unit.demands, strict=True):
            if demand not in nodes:
                fitting = self._nodes(demand)
                if among is not None:
                    fitting = [node for node in among if node in fitting]
                nodes[demand] = fitting[::-1]
            node = self._place_one(task, nodes[demand], used)
            if node is None:
                return False
            if unit.distinct_nodes:
                used.add(node)
        return True

    def _place_one(self, task: int, nodes: list[int], used: set[int]) -> int | None:
        """Place a task on the first node left that is not used; drop the nodes that do not fit."""
        while nodes:
            node = nodes[-1]
            if node not in used and self.scratch.place(task, node):
                return node
            nodes.pop()
        return None

    def _nodes(self, demand: int) -> list[int]:
        """Return the nodes that may fit a demand."""
        ledger = self.scratch.ledger
        spec = self.scratch.snapshot.names.demands[demand]
        room = ledger.nodes_with_room(demand)
        if spec.gpus and not spec.in_part:
            room = room & (ledger.nodes.free_gpus.array() >= spec.gpus)
        rows: list[int] = np.flatnonzero(room).tolist()
        return rows
