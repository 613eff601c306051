"""Simulates recorded training jobs with deadlines under an allocator, in virtual time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headgate.planning.deadlines import Allocation, Allocator, TrainingJob
from headgate.sim.deadlines.rules import Overheads, Rules
from headgate.traces.training import RecordedJob

_ROUNDING = 1e-9  # of the work of a job: so little is none left
_IN_TIME_S = 1e-6  # an end so much after the deadline is in time: times are sums of floats


@dataclass(slots=True)
class DeadlineOutcome:
    """What happened to the jobs of a simulation; `ended_s` and `in_time` by id."""

    jobs: int
    bound: int
    ended_s: dict[str, float] = field(default_factory=dict)
    in_time: int = 0
    accepted: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    rejected_in_time: int = 0  # that got GPUs later all the same
    broken: int = 0
    resizes: int = 0
    decisions: int = 0
    decision_cpu_s: float = 0.0
    busy_gpu_s: float = 0.0
    makespan_s: float = 0.0


@dataclass(slots=True, eq=False)
class _Run:
    recorded: RecordedJob
    job: TrainingJob
    promised: bool = False  # admitted when it arrived
    finish_s: float = math.inf  # planned, without the overhead of the last decision
    end_s: float = math.inf  # with it; the job gives its GPUs back
    overhead_s: float = 0.0


class _Simulation:
    def __init__(
        self,
        recorded: Sequence[RecordedJob],
        allocator: Allocator,
        rules: Rules,
        overheads: Overheads,
        clock: Callable[[], float],
        gpus: int,
    ) -> None:
        self._arrivals = sorted(recorded, key=lambda job: job.submit_s)  # equal ones as recorded
        self._next = 0
        self._allocator, self._rules, self._overheads = allocator, rules, overheads
        self._clock, self._gpus = clock, gpus
        self._runs: list[_Run] = []
        self._change_s = math.inf
        self._now_s = self._arrivals[0].submit_s if recorded else 0.0

    def run(self, outcome: DeadlineOutcome) -> None:
        start_s = self._now_s
        self._arrive(outcome)
        while self._runs or self._next < len(self._arrivals):
            if self._runs:
                self._decide(outcome)
            at_s = self._next_decision()
            if at_s == math.inf:
                outcome.broken += sum(run.promised for run in self._runs)  # they can never run
                break
            self._advance(at_s, outcome)
            self._arrive(outcome)
        outcome.makespan_s = self._now_s - start_s

    def _arrive(self, outcome: DeadlineOutcome) -> None:
        while self._next < len(self._arrivals):
            recorded = self._arrivals[self._next]
            if recorded.submit_s > self._now_s:
                return
            self._next += 1
            reason = recorded.impossible()
            widest = recorded.curve.widest(self._gpus)
            if widest == 0:
                reason = "larger_than_cluster"
            if reason is not None:
                outcome.rejected[reason] += 1
                continue
            job = TrainingJob(
                key=self._next,
                curve=recorded.curve,
                left=recorded.work,
                deadline_s=recorded.deadline_s,
                useful=min(recorded.useful, widest),
                requested=recorded.requested,
            )
            self._runs.append(_Run(recorded, job))

    def _decide(self, outcome: DeadlineOutcome) -> None:
        jobs = [run.job for run in self._runs]
        started = self._clock()
        found = self._allocator.decide(jobs, self._now_s)
        outcome.decision_cpu_s += self._clock() - started
        outcome.decisions += 1
        self._admit(found, outcome)
        placed = [*found.order]
        rows = dict.fromkeys(placed)
        placed += [row for row in range(len(jobs)) if row not in rows]
        overheads = self._overheads.charge(
            [jobs[row].width for row in placed], [found.widths[row] for row in placed]
        )
        for row, overhead_s in zip(placed, overheads, strict=True):
            self._give(self._runs[row], found, row, overhead_s, outcome)
        self._change_s = found.change_s
        if self._rules.slot_s:
            planned = [end_s for end_s in found.end_s if end_s > 0]
            if self._change_s >= min([*planned, self._arrival_s()]):
                self._change_s = math.inf  # the end, late by its overhead, is the next event
        if not self._allocator.best_effort:
            self._runs = [run for run in self._runs if run.job.admitted]

    def _admit(self, found: Allocation, outcome: DeadlineOutcome) -> None:
        for run, admitted in zip(self._runs, found.admitted, strict=True):
            if run.job.admitted is None:
                run.promised = admitted
                outcome.accepted += admitted
                if not admitted:
                    outcome.rejected["no_room"] += 1
            run.job.admitted = admitted

    def _give(
        self, run: _Run, found: Allocation, row: int, overhead_s: float, outcome: DeadlineOutcome
    ) -> None:
        job, width = run.job, found.widths[row]
        if job.attained_gpu_s > 0 and width != job.width:
            outcome.resizes += 1
        job.width, run.overhead_s = width, overhead_s
        if not width:
            run.finish_s = run.end_s = math.inf
        elif self._rules.slot_s:
            run.finish_s = math.ceil(found.promised_s[row] - _IN_TIME_S)
            run.end_s = math.ceil(found.end_s[row] - _IN_TIME_S) + overhead_s
        else:
            run.finish_s = self._now_s + overhead_s + job.left / job.curve.rate(width)
            run.end_s = run.finish_s

    def _arrival_s(self) -> float:
        return self._arrivals[self._next].submit_s if self._next < len(self._arrivals) else math.inf

    def _next_decision(self) -> float:
        event_s = min(
            [self._arrival_s(), self._change_s, *(run.end_s for run in self._runs)],
            default=math.inf,
        )
        return max(event_s, self._now_s + self._rules.slot_s) if event_s < math.inf else event_s

    def _advance(self, at_s: float, outcome: DeadlineOutcome) -> None:
        """Proceed to the next decision; jobs that end until then give their GPUs back there."""
        span_s = at_s - self._now_s
        self._now_s = at_s
        going = []
        for run in self._runs:
            job = run.job
            if job.width:
                job.attained_gpu_s += job.width * span_s
                outcome.busy_gpu_s += job.width * span_s
                ran_s = span_s - run.overhead_s - max(0.0, at_s - run.finish_s)
                done = max(0.0, ran_s) * job.curve.rate(job.width)
                if run.end_s <= at_s or job.left - done <= _ROUNDING * run.recorded.work:
                    self._end(run, outcome)
                    continue
                job.left -= done
            elif job.admitted is False and at_s > job.deadline_s:
                continue  # a rejected job that is too late is given up
            going.append(run)
        self._runs = going

    def _end(self, run: _Run, outcome: DeadlineOutcome) -> None:
        in_time = run.finish_s <= run.job.deadline_s + _IN_TIME_S
        outcome.in_time += in_time
        outcome.ended_s[run.recorded.id] = run.finish_s
        outcome.broken += run.promised and not in_time
        outcome.rejected_in_time += not run.promised and in_time


def simulate(
    recorded: Sequence[RecordedJob],
    allocator: Allocator,
    *,
    gpus: int,
    rules: Rules,
    overheads: Overheads,
    clock: Callable[[], float] = lambda: 0.0,
) -> DeadlineOutcome:
    """Run jobs under an allocator of a cluster of equal GPUs until all ended or were rejected.

    `clock` measures the CPU time of decisions (s); it changes nothing else. Ratios are of all jobs,
    rejected ones too.
    """
    bound = sum(_alone_in_time(job, gpus) for job in recorded)
    outcome = DeadlineOutcome(jobs=len(recorded), bound=bound)
    if recorded:
        _Simulation(recorded, allocator, rules, overheads, clock, gpus).run(outcome)
    return outcome


def _alone_in_time(job: RecordedJob, gpus: int) -> bool:
    alone_s = job.alone_s(gpus)
    return alone_s is not None and job.submit_s + alone_s <= job.deadline_s + _IN_TIME_S
