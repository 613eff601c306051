"""Units that claim what their queues are guaranteed, and the books that they are served from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

import numpy as np

from headgate.planning.place.choose import Placer
from headgate.planning.place.placement import fit
from headgate.planning.rounds.hidden import HeldPlace, without_kept
from headgate.planning.units.unit import FirstFit, Unit, all_units
from headgate.protocol import Hardened, Plan, Start
from headgate.state import JobState, Scratch, Snapshot, TaskState
from headgate.state.ledger import Ledger
from headgate.state.quotas import Quotas, amounts_of

TAKEN_BACK_FOR = "units_taken_back_for"
"""Column of the memo by job: waiting units for which something was taken back."""

UnitOfQueue = tuple[object, int]
"""The shape of a unit, and the row of its job's quotas."""


class ClaimRules(NamedTuple):
    """How claims stand to a policy."""

    every: bool
    """Whether all come before its plans: its shares know no guarantees."""
    in_order: bool
    """Whether they do not overtake others of their queues: nothing else ends that."""


def is_claim(snapshot: Snapshot, hardened: Hardened) -> bool:
    """Return whether a hardened unit is within the guarantee of its queue."""
    job = snapshot.names.job_rows[hardened.job]
    tasks = [snapshot.tasks_of(job)[ordinal] for ordinal, _, _ in hardened.places]
    unit = Unit(job=job, tasks=(*tasks,), demands=(*(snapshot.tasks.demand[t] for t in tasks),))
    quotas = Quotas(snapshot)
    return bool(quotas.claims(quotas.row_of(job), unit.amounts(snapshot)))


class Books(NamedTuple):
    """What nodes and queues have free."""

    ledger: Ledger
    quotas: Quotas

    @classmethod
    def of(cls, snapshot: Snapshot, also: Sequence[int] = ()) -> Books:
        """Return what is free once all runs that are being stopped have ended.

        In a snapshot, where some runs (tasks, rows) are stopped beside.
        """
        ledger, quotas, tasks = Ledger.tentative(snapshot), Quotas(snapshot), snapshot.tasks
        stopping = np.flatnonzero(tasks.state.array() == TaskState.STOPPING)
        ends = stopping[tasks.target.take(stopping) < 0].tolist()
        for task in sorted({*ends, *also}):
            place = held_place(snapshot, task)
            if place is not None:
                ledger.free(task, *place)
                row = quotas.row_of(tasks.job[task])
                quotas.add(row, amounts_of(snapshot.names, place.demand), -1)
        return cls(ledger, quotas)

    def free(self, snapshot: Snapshot, start: Start) -> None:
        """Count what was taken for a start as free again."""
        task, node, gpus = start
        demand, row = snapshot.tasks.demand[task], self.quotas.row_of(snapshot.tasks.job[task])
        self.ledger.free(task, demand, node, gpus)
        self.quotas.add(row, amounts_of(snapshot.names, demand), -1)

    def take(self, snapshot: Snapshot, starts: Sequence[Start]) -> None:
        for task, node, gpus in starts:
            demand = snapshot.tasks.demand[task]
            self.ledger.take(task, demand, node, gpus)
            row = self.quotas.row_of(snapshot.tasks.job[task])
            self.quotas.add(row, amounts_of(snapshot.names, demand))


def held_place(snapshot: Snapshot, task: int) -> HeldPlace | None:
    """Return what a run holds; None if it holds nothing, or some of it stays withheld."""
    if snapshot.tasks.grant[task] < 0:
        return None
    gpus, node = snapshot.held_gpus(task), snapshot.tasks.node[task]
    if gpus and set(gpus) & set(snapshot.withheld_gpus_of(node)):
        return None
    return HeldPlace(snapshot.tasks.demand[task], node, gpus)


def claiming(
    snapshot: Snapshot,
    quotas: Quotas,
    done: set[int],
    failed: set[UnitOfQueue],
    *,
    in_order: bool,
) -> Iterator[Unit]:
    """Yield the units that claim, as what `quotas` says is held grows, none of tasks in `done`.

    First those within what their own queue is guaranteed, then others; by priority and arrival.
    None like one that has `failed`. With `in_order`, none that comes after one of its queue that
    waits for more.
    """
    columns = snapshot.jobs
    waiting = columns.waiting.array() + columns.waiting_cpu.array()
    jobs = np.flatnonzero((columns.state.array() == JobState.ACTIVE) & (waiting > 0))
    jobs = jobs[np.argsort(-columns.priority.take(jobs), kind="stable")]
    for own in (True, False):
        behind: set[int] = set()  # queues
        for job in jobs.tolist():
            queue, line = columns.queue[job], quotas.row_of(job)
            above = quotas.above(line)
            is_any = any(each[row] for each in quotas.guaranteed.values() for row in above)
            for units in all_units(snapshot, job) if is_any and queue not in behind else ():
                for unit in units:
                    if unit.tasks[0] in done:
                        continue
                    claims = quotas.claims(line, unit.amounts(snapshot))
                    if (own and claims[:1] != (queue,)) or not claims:
                        is_first = not quotas.user_at_limit(line, unit.amounts(snapshot))
                        behind |= {queue} if in_order and not claims and is_first else set()
                        break  # as all units of this shape
                    if (unit.shape, line) in failed:
                        break
                    yield unit


def reads_inputs(snapshot: Snapshot, unit: Unit) -> bool:
    """Return whether a task of a unit reads inputs, so that it may wait for a place near them."""
    return any(snapshot.inputs.shards[snapshot.tasks.input[task]] for task in unit.tasks)


def has_room(snapshot: Snapshot, quotas: Quotas, unit: Unit) -> bool:
    return quotas.at_limit(quotas.row_of(unit.job), unit.amounts(snapshot)) is None


def open_places(snapshot: Snapshot, ledger: Ledger, unit: Unit) -> list[Start] | None:
    """Return places for a unit that nothing has to leave, None if there are none."""
    starts: list[Start] = []
    with ledger.trial():
        for task, demand in zip(unit.tasks, unit.demands, strict=True):
            used = {start.node for start in starts} if unit.distinct_nodes else set()
            place = open_place(snapshot, ledger, demand, used)
            if place is None:
                return None
            ledger.take(task, demand, *place)
            starts.append(Start(task, *place))
    return starts


def open_place(
    snapshot: Snapshot, ledger: Ledger, demand: int, used: Set[int]
) -> tuple[int, tuple[int, ...]] | None:
    """Return the first node where a run of a demand fits, not one of `used`, and its GPUs there."""
    spec, room = snapshot.names.demands[demand], ledger.nodes_with_room(demand)
    if spec.gpus and not spec.in_part:
        room = room & (ledger.nodes.free_gpus.array() >= spec.gpus)
    for node in np.flatnonzero(room).tolist():
        if node not in used:
            gpus = ledger.best_gpus(demand, node)
            if gpus is not None:
                return node, gpus
    return None


class FirstClaims:
    """The units with claims that start before the policy decides, and places that are kept."""

    def __init__(self, snapshot: Snapshot, placer: Placer | None, rules: ClaimRules) -> None:
        """Start those for which something was taken back, or every one, if they fit now."""
        if snapshot.hardened is not None:
            snapshot = without_kept(snapshot, snapshot.hardened)
        self._snapshot, self.scratch = snapshot, Scratch(snapshot)
        self._pending = np.nan_to_num(snapshot.memo(TAKEN_BACK_FOR))
        self.kept: list[HeldPlace] = []
        """Places of units that start once more of what was taken back is free."""
        self._changed: dict[int, float] = {}
        if rules.every or self._pending.any():
            self._serve(placer, rules)

    def _serve(self, placer: Placer | None, rules: ClaimRules) -> None:
        snapshot, ending = self._snapshot, Books.of(self._snapshot)
        placed, first = fit(self.scratch, placer), FirstFit(self.scratch)
        done: set[int] = set()
        failed: set[UnitOfQueue] = set()
        for unit in claiming(snapshot, ending.quotas, done, failed, in_order=rules.in_order):
            left = self._changed.get(unit.job, self._pending[unit.job])
            shape = unit.shape, ending.quotas.row_of(unit.job)
            done.update(unit.tasks)
            if not (rules.every or left > 0):
                continue
            before = len(self.scratch.starts)
            fits = self.scratch.may_hold(unit.job, unit.amounts(snapshot))
            if fits and (placed if unit.on_gpus(snapshot) else first).place(unit):
                ending.take(snapshot, self.scratch.starts[before:])
                if left > 0:
                    self._changed[unit.job] = left - 1
                continue
            waits = left > 0 and open_places(snapshot, self.scratch.ledger, unit) is None
            starts = open_places(snapshot, ending.ledger, unit) if waits else None
            if starts is None:  # or its placer chooses none of the places that are free
                failed.add(shape)
            else:
                ending.take(snapshot, starts)
                demand = snapshot.tasks.demand
                self.kept += [HeldPlace(demand[task], node, gpus) for task, node, gpus in starts]

    def plan(self) -> Plan:
        """Return the plan that starts them alone; the policy decides next."""
        snapshot = self._snapshot
        return Plan(
            steps=self.scratch.steps(),
            memo={TAKEN_BACK_FOR: self._changed} if self._changed else {},
            node_memo=self.scratch.node_memos(),
            again_at=snapshot.now,
            refusals=snapshot.refusals,
            hardened=snapshot.hardened,
        )
