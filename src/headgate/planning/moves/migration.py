"""Which runs move so that a unit that waits gets room: on the topology of a snapshot's cluster.

`planning.moves.defrag` finds the moves of least cost; here runs become what holds its leaves, and
its leaves places of tasks. Runs that can move are tasks, and gangs on one node or of tasks with one
GPU each, on whole GPUs that suit the unit, too; all others stay.

Two accounts, in the memo of jobs, bound what moves cost. The price of a run includes what its job
has lost by earlier moves, per task: so no job loses more than one of these moves has saved another
one. And all moves for a job together cost less than the wait that they save its units.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.model.topology import Tree
from headgate.planning.moves.defrag import Held, Relocations, least_moves
from headgate.planning.moves.defrag_order import Relocation
from headgate.planning.moves.price import MovePrice, pays
from headgate.planning.moves.ranked_tree import RankedTree
from headgate.planning.times.reservations import UNKNOWN_AT
from headgate.planning.topology.fabric import Fabric
from headgate.planning.units.unit import Unit
from headgate.protocol import NO_STEPS, Group, Memo, Move, Steps
from headgate.protocol.reasons import MovedFor
from headgate.state import Scratch, Snapshot, TaskState
from headgate.state.ledger import room_in, runs_in
from headgate.state.moves import grants_of_moves, unit_of
from headgate.state.tables import GPU_FREE

WHEN_CHEAPER = "when-cheaper"

MOVED_FOR, MOVED = "moved_for_gpu_s", "moved_gpu_s"
"""Columns of the memo: what moves for the units of a job have cost, and those of its own runs."""

_WORK = 500  # steps of the search: some tenths of a second on 2,000 GPUs


def moved_for(snapshot: Snapshot, job: int) -> MovedFor:
    """Return that a run moves so that a job (row) gets a place."""
    return MovedFor(job=snapshot.job(job).id)


@dataclass(frozen=True, slots=True)
class _Runs:
    """The runs of a task, or of all members of a gang."""

    tasks: range
    held: Held
    cost_gpu_s: float  # of this move alone


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """Runs (rows of their tasks) with whose moves a unit fits; one loses at most `lost_s` s."""

    tasks: tuple[int, ...]
    lost_s: float


def room_by_moves(scratch: Scratch, unit: Unit) -> MovePlan | None:
    """Return the cheapest moves that make room for a unit that does not fit, None without any.

    Nothing is placed; what that saves is not weighed. O(GPUs) for each of 500 steps.
    """
    cheapest = _moves_for(scratch, unit, MovePrice())
    if cheapest is None:
        return None
    _, runs, moves = cheapest
    moved = [runs[move.unit] for move in moves.moves]
    return MovePlan(
        tasks=tuple(task for each in moved for task in each.tasks),
        lost_s=max(each.cost_gpu_s / len(each.held.leaves) for each in moved),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """Moves that begin in a round, and the changes of the memo that account for them."""

    steps: Steps = NO_STEPS
    memo: Memo = field(default_factory=dict)


def defragment(
    scratch: Scratch, unit: Unit, *, wait_s: float, price: MovePrice | None = None
) -> Migration:
    """Return moves that cost less than the wait of a unit that does not fit; none if none do.

    `wait_s` is how long it is expected to wait else, inf if unknown. The moves are those that can
    be made now, all in one group, and their targets are taken in the scratch; when their runs have
    ended, the rest follow from the state then. While others are under way, there are none. O(GPUs)
    for each of 500 steps.
    """
    cheapest = _moves_for(scratch, unit, price or MovePrice()) if wait_s < UNKNOWN_AT else None
    if cheapest is None:
        return Migration()
    snapshot, (view, runs, least) = scratch.snapshot, cheapest
    spent = float(snapshot.memo(MOVED_FOR)[unit.job])
    spent = 0.0 if math.isnan(spent) else spent
    cost, need, units = least.cost / 1e3, len(least.leaves), 1 + _begun_units(snapshot, unit.job)
    if not pays(cost, wait_s=wait_s, gpus=need):
        return Migration()
    if not pays(cost + spent, wait_s=wait_s * units, gpus=need):
        return Migration()
    first = [move for move in least.moves if move.phase == 1]
    steps = [step for move in first for step in view.steps(runs[move.unit], move)]
    with scratch.ledger.trial() as attempt:
        for task, node, gpus in steps:
            demand = snapshot.tasks.demand[task]
            if scratch.ledger.infeasibility(demand, node, gpus):
                return Migration()  # other resources than GPUs are short there
            scratch.ledger.take(task, demand, node, gpus)
        attempt.keep()
    return Migration(
        steps=Steps.of((Group(tuple(steps), moved_for(snapshot, unit.job)),)),
        memo=_accounts(snapshot, unit.job, [runs[move.unit] for move in first], spent),
    )


def _begun_units(snapshot: Snapshot, job: int) -> int:
    """Return how many units of a job have started at least once, besides a gang."""
    if snapshot.jobs.gang[job]:
        return 0
    tasks = snapshot.tasks_of(job)
    return int(np.count_nonzero(snapshot.tasks.attempts.span(tasks.start, tasks.stop)))


def _accounts(snapshot: Snapshot, job: int, moved: list[_Runs], spent: float) -> Memo:
    lost = dict[int, float]()
    before = snapshot.memo(MOVED)
    for runs in moved:
        row = snapshot.tasks.job[runs.tasks.start]
        lost.setdefault(row, float(np.nan_to_num(before[row])))
        lost[row] += runs.cost_gpu_s
    return {MOVED_FOR: {job: spent + sum(runs.cost_gpu_s for runs in moved)}, MOVED: lost}


def _moves_for(
    scratch: Scratch, unit: Unit, price: MovePrice
) -> tuple[_View, list[_Runs], Relocations] | None:
    """Return the cheapest moves that make room for a unit, and the runs that they number."""
    snapshot = scratch.snapshot
    spec, tree = snapshot.names.demands[unit.demands[0]], Fabric.of(snapshot).topology
    same = len(set(unit.demands)) == 1 and spec.gpus and not spec.in_part
    if not same or not isinstance(tree, Tree) or grants_of_moves(snapshot)[0]:
        return None
    view, count = _View(scratch, unit.demands[0], price), len(unit.tasks) * spec.gpus
    if view.idle.sum() < count:
        return None
    runs = view.runs()
    relocations = least_moves(
        _ranked(tree), [each.held for each in runs], view.idle, count, work=_WORK
    )
    if not isinstance(relocations, Relocations) or not relocations.moves:
        return None
    left = [task for move in relocations.moves for task in runs[move.unit].tasks]
    holds = view.holds(unit, spec.gpus, np.array(relocations.leaves), left)
    return (view, runs, relocations) if holds else None


@lru_cache(maxsize=8)
def _ranked(tree: Tree) -> RankedTree:
    return RankedTree.of(tree).halved()


class _View:
    """The GPUs of a snapshot as leaves; `idle` are those that suit a unit and are free."""

    def __init__(self, scratch: Scratch, demand: int, price: MovePrice) -> None:
        self._snapshot, self._price = scratch.snapshot, price
        self._ledger, self._moved = scratch.ledger, scratch.snapshot.memo(MOVED)
        snapshot, fabric = scratch.snapshot, Fabric.of(scratch.snapshot)
        self._leaf, self._gpu = fabric.gpu_leaf, fabric.leaf_gpu
        self._node = snapshot.gpus.node.array().astype(np.int64)
        self._suits: Bools = self._ledger.suits(demand)
        self._of_all: dict[int, bool] = {}  # by demand: whether a run may hold all that suit
        free = (snapshot.gpus.task.array() == GPU_FREE) & self._suits & (self._leaf >= 0)
        for start in scratch.starts:
            free[self._rows(start.node, start.gpus)] = False
        self.idle = np.zeros(len(self._gpu), bool)
        self.idle[self._leaf[free]] = True

    def _rows(self, node: int, gpus: tuple[int, ...]) -> Ints:
        first: int = self._snapshot.nodes.first_gpu[node]
        return np.array(gpus, np.int64) + first

    def runs(self) -> list[_Runs]:
        """Return the runs that can move, in the order of their tasks."""
        tasks, movable = self._snapshot.tasks, list[_Runs]()
        held = [task for task in self._snapshot.holding() if self._snapshot.held_gpus(task)]
        for unit in dict.fromkeys(unit_of(self._snapshot, task) for task in held):
            if any(tasks.state[task] != TaskState.RUNNING for task in unit):
                continue
            specs = [self._snapshot.demand(task) for task in unit]
            whole = all(self._may_hold_all(tasks.demand[task]) for task in unit)
            job = self._snapshot.job(tasks.job[unit.start])
            one_node = len({tasks.node[task] for task in unit}) == 1
            single = all(spec.gpus == 1 for spec in specs) and not job.distinct_nodes
            if not whole or not (one_node or single):
                continue
            rows = np.concatenate(
                [self._rows(tasks.node[t], self._snapshot.held_gpus(t)) for t in unit]
            )
            if self._suits[rows].all() and (self._leaf[rows] >= 0).all():
                cost = self._cost(unit)
                price = round(1e3 * (cost + self._lost(unit)))
                movable.append(_Runs(unit, Held(np.sort(self._leaf[rows]), price), cost))
        return movable

    def _may_hold_all(self, demand: int) -> bool:
        """Return whether a run may hold, as whole ones, all GPUs that suit the unit."""
        if demand not in self._of_all:
            spec, suits = self._snapshot.names.demands[demand], self._ledger.suits(demand)
            whole = bool(spec.gpus) and not spec.in_part
            self._of_all[demand] = whole and bool(suits[self._suits].all())
        return self._of_all[demand]

    def _lost(self, unit: range) -> float:
        """Return the GPU seconds that runs have lost by earlier moves, on average of their job."""
        job = self._snapshot.tasks.job[unit.start]
        lost = float(np.nan_to_num(self._moved[job]))
        return lost * len(unit) / len(self._snapshot.tasks_of(job))

    def _cost(self, unit: range) -> float:
        """Return the GPU seconds that a move of runs takes."""
        snapshot, cost = self._snapshot, 0.0
        for task in unit:
            ran_s = snapshot.now - snapshot.tasks.started_at[task] - snapshot.tasks.read_s[task]
            saved_s = snapshot.checkpoint_progress_s(task, snapshot.now) / snapshot.speed(task)
            cost += self._price.move_cost_s(
                snapshot.demand(task).gpus, max(float(ran_s) - saved_s, 0.0)
            )
        return cost

    def holds(self, unit: Unit, gpus: int, leaves: Ints, left: list[int]) -> bool:
        """Return whether leaves hold the tasks of a unit, each on one node, once tasks have left.

        Other resources than GPUs are counted, too.
        """
        names, tasks = self._snapshot.names, self._snapshot.tasks
        nodes, count = np.unique(self._node[self._gpu[leaves]], return_counts=True)

        def free_then(kind: int) -> Ints:
            free: Ints = self._ledger.nodes.free.kind(kind)[nodes].astype(np.int64)
            for task in left:
                released = dict(names.needs[tasks.demand[task]]).get(kind, 0)
                free[nodes == tasks.node[task]] += released
            return np.maximum(free, 0)

        places = room_in(names.needs[unit.demands[0]], free_then, runs_in(count, gpus))
        most = 1 if unit.distinct_nodes else len(unit.tasks)
        return int(np.minimum(places, most).sum()) >= len(unit.tasks)

    def steps(self, runs: _Runs, move: Relocation) -> Iterator[Move]:
        """Yield the moves of the members of a unit, in their order, node by node."""
        rows = np.sort(self._gpu[np.array(move.leaves)])
        for task in runs.tasks:
            count = self._snapshot.demand(task).gpus
            chosen, rows = rows[:count], rows[count:]
            node = int(self._node[chosen[0]])
            first = self._snapshot.nodes.first_gpu[node]
            yield Move(task, node, tuple((chosen - first).tolist()))
