"""Multi-GPU units under policies that allocate single GPUs: placed whole, within shares.

Such a policy places the multi-GPU units of its jobs, by first fit or a placer, in its own order
before it allocates the other GPUs, each job up to its entitlement, and once more after it, without
that limit. A job that holds nothing may place one unit, however wide: none waits only because it is
wider than its share. Ceilings of queues always hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from headgate.base.arrays import Ints
from headgate.model import WHOLE
from headgate.planning.moves.migration import Migration
from headgate.planning.place.choose import Placer
from headgate.planning.place.free_gpus import free_milli
from headgate.planning.place.placement import fit
from headgate.planning.place.room_freed import RoomFreed
from headgate.planning.place.serve import Answer, Serving, Turn, Turns
from headgate.planning.place.why import WhyWaits, being_stopped
from headgate.planning.shares.fair_shares import entitle
from headgate.planning.shares.standing import Standing, standing_less
from headgate.planning.units.unit import Unit, Units, waiting_units
from headgate.protocol import Reason, Refusal, Reserved
from headgate.protocol.reasons import UNDECIDED
from headgate.state import Scratch


class _Line:
    """Units of one job and demand, the next one first."""

    def __init__(self, units: Units) -> None:
        self._rest = iter(units)
        self.head: Unit | None = next(self._rest)

    def advance(self) -> None:
        self.head = next(self._rest, None)


class MultiGpuUnits:
    """The waiting multi-GPU units of a round; jobs are indices into `Standing.jobs`."""

    def __init__(self, scratch: Scratch, standing: Standing, placer: Placer | None = None) -> None:
        """Start with all that wait; units are listed when they are first placed."""
        self._scratch, self._standing = scratch, standing
        self._placer, self._fit = placer, fit(scratch, placer)
        self._serving = Serving(scratch)
        self._waiting = set(standing.multi_gpu_jobs.tolist())
        self._lines: dict[int, list[_Line]] = {}
        self._won_milli: dict[int, int] = {}
        self._placed_milli = 0  # of all jobs
        self._order: list[int] = []

    def __bool__(self) -> bool:
        """Return whether any job has units that were not placed."""
        return bool(self._waiting)

    def place_rest(self) -> None:
        """Place units that are left, in the last order, without limits, in turns of one each."""
        self._serving.serve(self._in_turns(self._order), fit=self._fit)

    def place(self, order: Iterable[int], most: Ints | None = None) -> None:
        """Place units of jobs in this order.

        `most`, `[jobs]`, are the GPUs that a job may get, without limit if None; one that holds
        nothing may place a unit wider than that. O(units placed x their tasks x nodes + waiting
        tasks of jobs of which a unit is not wider than what is free).
        """
        self._order = [int(job) for job in order if job in self._waiting]
        self._serving.serve(self._within(self._order, most), fit=self._fit)

    def place_one(
        self, job: int, room_milli: int, among: Sequence[int] | None = None
    ) -> int | None:
        """Place the first unit of a job that fits; return its thousandths of GPUs, None if none.

        `room_milli` is what its queue may get, `among` the only nodes to try, in order.
        """
        before, started = self._won_milli.get(job, 0), len(self._serving.started)
        self._serving.serve(self._one_of(job, room_milli=room_milli, among=among), fit=self._fit)
        if len(self._serving.started) == started:
            return None
        return self._won_milli[job] - before

    # --- the turns -----------------------------------------------------------------------------

    def _within(self, order: Sequence[int], most: Ints | None) -> Turns:
        """Yield the units of each job until one does not fit, or is beyond its limit."""
        for job in self._narrow_enough(order):
            limit_milli = None if most is None else WHOLE * int(most[job])
            while (yield from self._one_of(job, limit_milli=limit_milli)):
                pass

    def _in_turns(self, order: Sequence[int]) -> Turns:
        """Yield a unit of each job, and again until none of them fits."""
        some = True
        while some:
            some = False
            for job in self._narrow_enough(order):
                some |= yield from self._one_of(job)

    def _narrow_enough(self, order: Sequence[int]) -> Iterator[int]:
        """Yield the waiting jobs with a unit that is not wider than what is free then."""
        jobs, unit_milli = self._standing.jobs, self._standing.snapshot.jobs.unit_gpus_milli
        most = free_milli(self._scratch) + self._placed_milli
        for job in order if self._waiting else ():
            left = most - self._placed_milli
            if job in self._waiting and unit_milli[int(jobs[job])] <= left:
                yield job

    def _one_of(
        self,
        job: int,
        *,
        limit_milli: int | None = None,
        room_milli: int | None = None,
        among: Sequence[int] | None = None,
    ) -> Generator[Turn, Answer, bool]:
        """Yield the first unit of each demand of a job until one starts; return whether one does.

        `limit_milli` is what the job may get in all, but for a first unit.
        """
        won = self._won_milli.get(job, 0)
        holds_nothing = not won and not self._standing.held[job]
        lines = self._lines_of(job)
        for line in lines:
            if line.head is None:
                continue
            milli = line.head.gpus_milli(self._scratch.snapshot)
            if limit_milli is not None and won + milli > limit_milli and not holds_nothing:
                continue
            if room_milli is not None and milli > room_milli:
                continue
            if (yield Turn(line.head, among=among)) is Answer.STARTED:
                self._won_milli[job] = won + milli
                self._placed_milli += milli
                line.advance()
                if not any(each.head for each in lines):
                    self._waiting.discard(job)
                return True
        return False

    # --- results -------------------------------------------------------------------------------

    def room_freed(self) -> RoomFreed:
        """Return the room that runs free which are stopped after all placements of the scratch."""
        return RoomFreed(self._scratch)

    def standing_after(self) -> Standing:
        """Return the standing with all placements of the scratch."""
        return standing_less(self._standing, self._scratch)

    def next_unit(self, job: int) -> Unit | None:
        """Return the first unit of a job that is not placed."""
        return next((line.head for line in self._lines_of(job) if line.head), None)

    def nodes_for(self, unit: Unit, nodes: Sequence[int]) -> list[int]:
        """Return the first of these nodes on which a unit fits while they are idle, or none."""
        return self._fit.nodes_for(unit, nodes)

    def _lines_of(self, job: int) -> list[_Line]:
        if job not in self._lines:
            row = int(self._standing.jobs[job])
            units = waiting_units(self._scratch.snapshot, row, multi_gpu=True)
            self._lines[job] = [_Line(each) for each in units]
        return self._lines[job]

    def planned(self) -> Iterator[Reserved]:
        """Yield nothing: first fit reserves nothing."""
        return iter(())

    def migration(self) -> Migration:
        """Return no moves."""
        return Migration()

    def refusals(self, kept: Callable[[int], Reason | None] = lambda _: None) -> Iterator[Refusal]:
        """Yield why the others still wait, one refusal per reason.

        `kept` returns why a job (row) waits of which a unit fits.
        """
        left = [
            (int(self._standing.jobs[job]), self.next_unit(job)) for job in sorted(self._waiting)
        ]
        why = WhyWaits(self._scratch, placer=self._placer)
        yield from unit_refusals(self._scratch, left, why, kept=kept)


def unit_refusals(
    scratch: Scratch,
    left: Iterable[tuple[int, Unit | None]],
    why: WhyWaits,
    run_s: Callable[[Unit], float] = lambda unit: math.inf,
    kept: Callable[[int], Reason | None] = lambda _: None,
) -> Iterator[Refusal]:
    """Yield why jobs (rows) wait, each with its next unit, None for a gang being stopped.

    `run_s` is how long a unit runs, `kept` why a job waits of which a unit fits. One refusal per
    reason.
    """
    groups: dict[Reason, list[int]] = {}
    for row, unit in left:
        if unit is None:
            reason: Reason = being_stopped(scratch, row)
        else:
            reason = why.reason(unit, run_s(unit)) or kept(row) or UNDECIDED
        groups.setdefault(reason, []).append(row)
    for reason, rows in groups.items():
        yield Refusal(reason=reason, jobs=tuple(rows))


def least_served_first(standing: Standing) -> tuple[Ints, Ints]:
    """Return the jobs by the part of their fair share that they hold, least first, as indices.

    And the GPUs that each may get in this round, `[jobs]`, for all its waiting tasks; ties go to
    the earliest.
    """
    target, accepts = standing.fair_shares(), standing.kinds.accepts
    waiting, free = standing.waiting + standing.multi_gpu, standing.free_of_kind
    won = entitle(
        standing.hierarchy,
        target=target,
        held=standing.held,
        waiting=waiting,
        free=free,
        accepts=accepts,
    )
    return np.argsort(standing.held / np.maximum(target, 1), kind="stable"), won.most


def leading_tasks(standing: Standing) -> Ints:
    """Return the first waiting multi-GPU task of each job in `Standing.multi_gpu_jobs`."""
    snapshot, rows = standing.snapshot, standing.jobs[standing.multi_gpu_jobs]
    lead = snapshot.jobs.first_task.take(rows).astype(np.int64)
    several = (snapshot.jobs.task_count.take(rows) > 1) & (snapshot.jobs.gang.take(rows) == 0)
    snapshot = replace(snapshot, hardened=None)  # of a job whose only unit is hardened, too
    for n in np.flatnonzero(several).tolist():
        lead[n] = waiting_units(snapshot, int(rows[n]), multi_gpu=True)[0].tasks[0]
    return lead
