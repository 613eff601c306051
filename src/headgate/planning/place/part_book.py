"""Parts of GPUs over the time of a round: thousandths of their shares, bytes of their memory.

What a GPU has free of both changes with time: runs on parts of it leave theirs when they are
expected to end, reservations take theirs from when they begin until they end, and a run or
reservation of the whole GPU takes all of it. A `Timetable` has one if any task is on part of a GPU;
it asks it only about GPUs that are held in part, or of which a part is reserved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.base.order import nth_of_equals
from headgate.base.units import SAME_INSTANT_S
from headgate.model import WHOLE, Demand
from headgate.planning.times.reservations import Reservation, gpus_of_tasks
from headgate.protocol import Start
from headgate.state import Scratch, Snapshot
from headgate.state.ledger import parts_in, runs_in
from headgate.state.moves import grants_of_moves


class PartsHeld(NamedTuple):
    """The parts of GPUs that grants hold, a row for each."""

    gpu: Ints  # rows
    task: Ints  # rows
    milli: Ints
    memory_bytes: Ints
    is_left: Bools
    """Whether its task moves, and leaves it before its next run."""


def parts_held(snapshot: Snapshot) -> PartsHeld:
    """Return the parts of GPUs that are held; O(grants)."""
    grants, demands = snapshot.grants, snapshot.names.demands
    task = grants.task.array().astype(np.int64)
    in_part = np.array([demand.in_part for demand in demands], bool)
    rows = np.flatnonzero(task >= 0)
    rows = rows[in_part[grants.demand.take(rows).astype(np.int64)]]
    left, first = {*grants_of_moves(snapshot)[1]}, snapshot.nodes.first_gpu
    grant, gpu = list[int](), list[int]()
    for row in rows.tolist():
        gpu += [first[grants.node[row]] + index for index in grants.gpus[row]]
        grant += [row] * len(grants.gpus[row])
    memory = snapshot.gpus.memory_bytes.take(np.array(gpu, np.int64)).tolist()
    specs = [demands[grants.demand[row]] for row in grant]
    return PartsHeld(
        gpu=np.array(gpu, np.int64),
        task=task[np.array(grant, np.int64)],
        milli=np.array([spec.gpu_milli for spec in specs], np.int64),
        memory_bytes=np.array(
            [spec.part_bytes(each) for spec, each in zip(specs, memory, strict=True)], np.int64
        ),
        is_left=np.array([row in left for row in grant], bool),
    )


def runs_on_parts(room: Ints, node: Ints, gpus: int, nodes: int) -> Ints:
    """Return how many tasks on parts of so many GPUs fit each node together, `[nodes]`.

    `room` is how many parts each GPU has; those of one task are on different GPUs.
    """
    runs: Ints = runs_in(np.bincount(node, room, nodes).astype(np.int64), gpus)
    while gpus > 1:
        each = np.minimum(room, runs[node])
        fewer = runs_in(np.bincount(node, each, nodes).astype(np.int64), gpus)
        if (fewer == runs).all():
            break
        runs = fewer
    return runs


class _Taken(NamedTuple):
    """What is taken of GPUs (rows) from some times to others."""

    gpu: Ints
    at: Floats
    until: Floats
    milli: Ints
    memory_bytes: Ints

    @classmethod
    def of(
        cls,
        gpu: Ints,
        at: float | Floats,
        until: float | Floats,
        milli: int | Ints,
        memory_bytes: Ints,
    ) -> Self:
        """Return it with single values for all GPUs where arrays of them are expected."""
        size = len(gpu)
        return cls(
            gpu,
            np.broadcast_to(np.asarray(at, np.float64), size),
            np.broadcast_to(np.asarray(until, np.float64), size),
            np.broadcast_to(np.asarray(milli, np.int64), size),
            memory_bytes,
        )

    @classmethod
    def all_of(cls, some: list[_Taken]) -> _Taken:
        """Return several as one, which takes their place in the list."""
        if len(some) > 1:
            joined = cls(
                np.concatenate([each.gpu for each in some]),
                np.concatenate([each.at for each in some]),
                np.concatenate([each.until for each in some]),
                np.concatenate([each.milli for each in some]),
                np.concatenate([each.memory_bytes for each in some]),
            )
            some[:] = [joined]
        if not some:
            none = np.zeros(0, np.int64)
            some.append(cls(none, np.zeros(0), np.zeros(0), none, none))
        return some[0]

    def only(self, which: Bools) -> _Taken:
        """Return some of it."""
        gpu, at, until, milli, memory_bytes = self
        return _Taken(gpu[which], at[which], until[which], milli[which], memory_bytes[which])


@dataclass(frozen=True, slots=True, eq=False)
class FreeParts:
    """What some GPUs have free, `[GPUs, n]`: for each, in the n-th span of time."""

    begin: Floats
    end: Floats
    milli: Ints
    memory_bytes: Ints
    of_gpu: Ints
    """The memory of each GPU, `[GPUs]`."""

    def lowest(self, at: float, run_s: float) -> tuple[Ints, Ints]:
        """Return the least share and memory that GPUs have free from a time on for `run_s`."""
        seen = (self.begin <= at) | (self.begin < at + run_s - SAME_INSTANT_S)
        seen &= self._lasts & (self.end > at + SAME_INSTANT_S)
        most = np.iinfo(np.int64).max
        milli: Ints = np.where(seen, self.milli, most).min(axis=1)
        memory_bytes: Ints = np.where(seen, self.memory_bytes, most).min(axis=1)
        return milli, memory_bytes

    @property
    def _lasts(self) -> Bools:
        """Which spans last for more than an instant."""
        lasts: Bools = self.end > self.begin + SAME_INSTANT_S
        return lasts

    def earliest(self, spec: Demand, at: float, run_s: float, most: int) -> Floats:
        """Return when GPUs have room for their n-th run of a demand, `[GPUs, most]`; inf for never.

        From a time `at` on, for `run_s` seconds. O(GPUs x spans ^ 2) where something is reserved.
        """
        start_at = np.maximum(self.begin, at)
        milli, memory_bytes = np.maximum(self.milli, 0), np.maximum(self.memory_bytes, 0)
        some = parts_in(spec, milli, memory_bytes, self.of_gpu[:, None])
        room = np.array(np.broadcast_to(some, self.begin.shape))
        counts = self._lasts & (self.end > at + SAME_INSTANT_S)
        falls = np.flatnonzero((np.diff(room, axis=1) < 0).any(axis=1))
        if len(falls):
            room[falls] = self._throughout(
                room[falls], start_at[falls], counts[falls], run_s, falls
            )
        room[~counts] = -1
        found, gpus = np.full((len(room), most), np.inf), np.arange(len(room))
        for n in range(most):
            enough = room > n
            first = enough.argmax(axis=1)
            found[:, n] = np.where(enough[gpus, first], start_at[gpus, first], np.inf)
        return found

    def _throughout(
        self, room: Ints, start_at: Floats, counts: Bools, run_s: float, gpus: Ints
    ) -> Ints:
        """Return the least room in the course of runs that start in each span."""
        least, begin = room.copy(), self.begin[gpus]
        ends_at = start_at + run_s - SAME_INSTANT_S
        for later in range(1, room.shape[1]):
            meets = counts[:, later:] & (begin[:, later:] < ends_at[:, :-later])
            reduced = np.minimum(least[:, :-later], room[:, later:])
            least[:, :-later] = np.where(meets, reduced, least[:, :-later])
        return least


class PartBook:
    """The parts of GPUs over the time of one round."""

    def __init__(self, scratch: Scratch, end_at: Callable[[Ints], Floats], soonest: float) -> None:
        """Start from the runs of the scratch's snapshot, which end no sooner than `soonest`."""
        self._scratch, self._end_at, self._soonest = scratch, end_at, soonest
        self._demands = scratch.snapshot.names.demands
        self.matters = any(demand.in_part for demand in self._demands)
        """Whether any task is on part of a GPU; else nothing is booked."""
        self._kept: list[_Taken] = []
        self._claims: list[_Taken] = []
        self._held_parts: list[_Taken] = []  # by starts, and once needed, by runs
        self._knows_runs = False
        self.is_kept = np.zeros(len(scratch.snapshot.gpus.task), bool)
        """Which GPUs have parts that are reserved, `[GPU rows]`."""

    @cached_property
    def _memory(self) -> Ints:
        return self._scratch.snapshot.gpus.memory_bytes.array().astype(np.int64)

    # --- what is booked ------------------------------------------------------------------------

    def keep(self, reservation: Reservation, until: float) -> None:
        """Book what a reservation needs, from its begin to a time."""
        snapshot, at, in_part = self._scratch.snapshot, reservation.at, [np.zeros(0, np.int64)]
        for tasks, rows in gpus_of_tasks(snapshot, reservation.gpus, reservation.tasks):
            if self._demands[tasks.demand].in_part:
                in_part.append(np.array(rows, np.int64))
                self._kept.append(self._parts(tasks.demand, in_part[-1], at, until))
        parts = np.concatenate(in_part)
        self.is_kept[parts] = True
        whole = reservation.gpus[~np.isin(reservation.gpus, parts)]
        self._kept.append(self._all_of(whole, at, until))

    def claim(self, rows: Ints, at: Floats, until: Floats) -> None:
        """Book whole GPUs, which starts may disregard, from some times to others."""
        self._claims.append(self._all_of(rows, at, until))

    def _parts(self, demand: int, rows: Ints, at: float, until: float) -> _Taken:
        spec = self._demands[demand]
        part_bytes = np.broadcast_to(spec.part_bytes(self._memory[rows]), len(rows))
        return _Taken.of(rows, at, until, spec.gpu_milli, part_bytes.astype(np.int64))

    def _all_of(self, rows: Ints, at: float | Floats, until: float | Floats) -> _Taken:
        return _Taken.of(rows, at, until, WHOLE, self._memory[rows])

    def release(self) -> None:
        """End all that is booked ahead."""
        self._kept.clear()
        self._claims.clear()
        self.is_kept[:] = False

    def remove(self, rows: Ints) -> None:
        """End all that is booked ahead of GPUs."""
        for taken in (self._kept, self._claims):
            taken[:] = [each.only(~np.isin(each.gpu, rows)) for each in taken]
        self.is_kept[rows] = False

    def use(self, starts: Sequence[Start], until: float) -> None:
        """Count parts that starts of this round hold, which the ledger has taken, until a time."""
        first = self._scratch.snapshot.nodes.first_gpu
        for task, node, gpus in starts if self.matters else ():
            demand = self._scratch.snapshot.tasks.demand[task]
            if self._demands[demand].in_part:
                rows = first[node] + np.array(gpus, np.int64)
                self._held_parts.append(self._parts(demand, rows, -np.inf, until))

    def begins(self) -> Floats:
        """Return when reservations begin, of parts and of whole GPUs, if parts matter."""
        return _Taken.all_of(self._kept).at

    def milli_at_first(self, rows: Ints) -> Ints:
        """Return the thousandths of GPUs that are taken when their first reservations begin."""
        kept, first_at = _Taken.all_of(self._kept), np.full(len(self._memory), np.inf)
        np.minimum.at(first_at, kept.gpu, kept.at)
        taken = np.zeros(len(first_at), np.int64)
        at_first = kept.only(kept.at <= first_at[kept.gpu])
        np.add.at(taken, at_first.gpu, at_first.milli)
        return np.minimum(taken[rows], WHOLE)

    # --- what is free --------------------------------------------------------------------------

    def room_now(self, demand: int, rows: Ints, now: float, run_s: float) -> Ints:
        """Return how many runs of a demand may start now on GPUs that are free, at least in part.

        They leave what reservations need in the `run_s` seconds that they take, not what is only
        claimed.
        """
        free = self._over_time(rows, None, {})
        milli, memory_bytes = (np.maximum(each, 0) for each in free.lowest(now, run_s))
        room: Ints = parts_in(self._demands[demand], milli, memory_bytes, self._memory[rows])
        return room

    def leaves_room(self, rows: Ints, now: float, run_s: float) -> Bools:
        """Return which GPUs have what reservations need of them within `run_s` seconds from now.

        Beside what the ledger has taken.
        """
        milli, memory_bytes = self._over_time(rows, None, {}).lowest(now, run_s)
        leaves: Bools = (milli >= 0) & (memory_bytes >= 0)
        return leaves

    def free(
        self, rows: Ints, held_until: Floats, taken: Mapping[int, tuple[int, int]]
    ) -> FreeParts:
        """Return what GPUs have free over time, beside shares and bytes `taken`, by row.

        `held_until` is when each becomes free as a whole: until then, all of it is held once the
        last run on a part of it has ended.
        """
        return self._over_time(rows, held_until, taken)

    def _over_time(
        self, rows: Ints, held_until: Floats | None, taken: Mapping[int, tuple[int, int]]
    ) -> FreeParts:
        """Return what GPUs have free; claims count if it is known until when GPUs are held."""
        index = np.full(len(self._memory), -1)
        index[rows] = np.arange(len(rows))
        runs, ahead = self._of(index, self._held()), self._of(index, self._kept)
        more = [(runs.gpu, runs.until, runs.milli, runs.memory_bytes), *_steps(ahead)]
        if held_until is not None:
            more += _steps(self._of(index, self._claims))
            last = np.full(len(rows), -np.inf)
            np.maximum.at(last, index[runs.gpu], runs.until)
            later = held_until > np.maximum(last, self._scratch.snapshot.now)
            more += _steps(self._all_of(rows[later], last[later], held_until[later]))
        gpu, at, milli, memory_bytes = (np.concatenate(each) for each in zip(*more, strict=True))
        some = np.isfinite(at) | (at < 0)
        which, at, milli, memory_bytes = index[gpu[some]], at[some], milli[some], memory_bytes[some]
        order = np.lexsort((at, which))
        which = which[order]
        place = which, nth_of_equals(which) + 1
        shape = len(rows), int(place[1].max(initial=0)) + 1
        begin, free = np.full(shape, np.inf), np.zeros((2, *shape), np.int64)
        begin[:, 0], begin[place] = -np.inf, at[order]
        gpus = self._scratch.ledger.gpus
        free[0, :, 0] = gpus.free_milli.array()[rows]
        free[1, :, 0] = gpus.free_bytes.array()[rows]
        for row, amounts in taken.items():
            if index[row] >= 0:
                free[:, index[row], 0] -= amounts
        free[0][place], free[1][place] = milli[order], memory_bytes[order]
        free = free.cumsum(axis=2)
        end = np.hstack([begin[:, 1:], np.full((len(rows), 1), np.inf)])
        return FreeParts(begin, end, free[0], free[1], self._memory[rows])

    def _of(self, index: Ints, some: list[_Taken]) -> _Taken:
        taken = _Taken.all_of(some)
        return taken.only(index[taken.gpu] >= 0)

    def _held(self) -> list[_Taken]:
        """Return what runs hold of parts of GPUs, with the starts of this round."""
        if not self._knows_runs:
            held = parts_held(self._scratch.snapshot)
            until = np.maximum(self._end_at(held.task), self._soonest)
            until[held.is_left] = self._soonest
            self._held_parts.append(
                _Taken.of(held.gpu, -np.inf, until, held.milli, held.memory_bytes)
            )
            self._knows_runs = True
        return self._held_parts


def _steps(taken: _Taken) -> list[tuple[Ints, Floats, Ints, Ints]]:
    """Return by how much more is free of GPUs at some times: less at first, then as before."""
    gpu, at, until, milli, memory_bytes = taken
    return [(gpu, at, -milli, -memory_bytes), (gpu, until, milli, memory_bytes)]
