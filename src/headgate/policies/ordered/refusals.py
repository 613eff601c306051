"""Why jobs wait under a policy that serves them in an order, and what is reserved for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from headgate.base.arrays import Ints
from headgate.planning.place.choose import Placer
from headgate.planning.place.cpu_tasks import place_cpu_tasks
from headgate.planning.place.limits import behind_head, queue_limit
from headgate.planning.place.why import WhyWaits, being_stopped
from headgate.planning.times.estimates import Estimates
from headgate.planning.units.unit import Unit, waiting_units
from headgate.policies.ordered.backfill import Backfill
from headgate.protocol import Reason, Refusal, Reserved
from headgate.protocol.reasons import UNDECIDED, BackfillTooLong
from headgate.state import Scratch, Snapshot
from headgate.state.quotas import Amounts, gpus_alone


@dataclass(frozen=True, slots=True)
class _Round:
    """A round as it was decided, with all its reservations."""

    scratch: Scratch
    without_gpus: tuple[Refusal, ...]
    served: Backfill


class Explained:
    """The explanation of a round, which repeats it: only on demand, and in any thread."""

    def __init__(
        self,
        snapshot: Snapshot,
        jobs: Ints,
        estimates: Estimates,
        *,
        most: int,
        placer: Placer | None,
    ) -> None:
        """`jobs` are those with tasks that wait for GPUs (rows, in order)."""
        self._placer = placer
        self._snapshot, self._jobs, self._estimates = snapshot, jobs, estimates
        self._most = most

    @cached_property
    def _round(self) -> _Round:
        scratch = Scratch(self._snapshot)
        without_gpus = place_cpu_tasks(scratch, self._placer)
        served = Backfill(scratch, self._estimates, most=self._most, placer=self._placer)
        served.serve(self._jobs, always_reserve=True)
        return _Round(scratch, without_gpus, served)

    def reservations(self) -> Iterator[Reserved]:
        """Yield what is reserved, in order."""
        for each in self._round.served.reservations:
            yield each.planned(self._snapshot, self._estimates.together_s(each.unit.tasks))

    def refusals(self) -> Iterator[Refusal]:
        """Yield why the jobs wait of which a task has not started."""
        yield from self._round.without_gpus
        snapshot, scratch = self._snapshot, self._round.scratch
        started = {start.task for start in scratch.starts}
        why = WhyWaits(
            scratch,
            self._round.served.serving.placing.table if self._most else None,
            self._round.served.reservations,
            self._placer,
        )
        reserved = {each.unit.job for each in self._round.served.reservations}
        heads: dict[int, str] = {}  # by row of quotas at its ceiling
        quotas = scratch.quotas
        head = ""
        for job in self._jobs.tolist():
            unit = _first_unit(snapshot, job, started)
            if unit is None and started.issuperset(snapshot.waiting_of(job).tolist()):
                continue
            lines, name = quotas.rows.lines_of(job), snapshot.job(job).id
            reason: Reason
            if ahead := [heads[row] for row in lines if row in heads]:
                reason = behind_head(ahead[0])
            elif not scratch.may_hold(job, least := _least(snapshot, job, unit)):
                full = quotas.at_limit(quotas.row_of(job), least)
                heads[full.row if full is not None and full.row in lines else lines[0]] = name
                reason = queue_limit(snapshot, quotas, quotas.row_of(job), least)
            elif unit is None:
                reason = being_stopped(scratch, job)
            elif not head or job in reserved:
                head = head or name
                reason = why.reason(unit, self._estimates.together_s(unit.tasks)) or UNDECIDED
            else:
                reason = self._behind(why, unit, head)
            yield Refusal(reason=reason, jobs=(job,))

    def _behind(self, why: WhyWaits, unit: Unit, head: str) -> Reason:
        """Return why a unit behind the first one that waits does not start before it."""
        reason = why.reason(unit, self._estimates.together_s(unit.tasks)) if self._most else None
        return reason if isinstance(reason, BackfillTooLong) else behind_head(head)


def unserved(scratch: Scratch, jobs: Ints, placer: Placer | None) -> Iterator[Refusal]:
    """Yield why jobs (rows, in an order that preempts) wait of which a task has not started."""
    snapshot, why = scratch.snapshot, WhyWaits(scratch, placer=placer)
    started = {start.task for start in scratch.starts}
    head = ""
    for job in jobs.tolist():
        unit = _first_unit(snapshot, job, started)
        if unit is not None:
            reason = why.reason(unit)  # None if what is free is kept for those before it
            yield Refusal(reason=reason or behind_head(head), jobs=(job,))
            head = head or snapshot.job(job).id
        elif snapshot.jobs.gang[job] and not started.issuperset(snapshot.waiting_of(job).tolist()):
            yield Refusal(reason=being_stopped(scratch, job), jobs=(job,))


def _first_unit(snapshot: Snapshot, job: int, started: set[int]) -> Unit | None:
    """Return the first unit of a job that has not started; None if a gang does not wait."""
    for units in waiting_units(snapshot, job):
        for unit in units:
            if unit.tasks[0] not in started:
                return unit
    return None


def _least(snapshot: Snapshot, job: int, unit: Unit | None) -> Amounts:
    """Return the least that starts with a job: its first unit, else one of as many GPUs."""
    if unit is None:
        return gpus_alone(snapshot.jobs.unit_gpus_milli[job])
    return unit.amounts(snapshot)
