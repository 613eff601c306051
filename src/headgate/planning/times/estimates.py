"""How long runs take, as distributions: learnt from earlier runs, or from declared times.

The computing time of a task is modelled as log-logistic: P(longer than t) = 1 / (1 + (t / a)^b),
with the median a = scale x exp(mean) and b = pi / (sqrt(3) x sd), of the mean and the standard
deviation of its logarithm. Such a distribution has a heavy tail, and a closed form for everything
asked of it. The scale is the time that the job declares, or 1 s. Mean and variance come from the
statistics of the task's classes (`headgate.state.runtimes`). In a queue whose `estimate` is
`declared`, the declared time is one point, as in EASY (Lifka, JSSPP 1995).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.base.units import SAME_INSTANT_S
from headgate.state import Snapshot, TaskState
from headgate.state.life import RUNS
from headgate.state.runtimes import SHORTEST_S

_RUNS = np.isin(np.arange(len(TaskState)), RUNS)  # by state
_PRIOR_SAMPLES = 3.0  # the weight, in samples, of what a class takes over from the wider one
_PRIOR_VAR = 4.0  # of the logarithms of all times, before there are many: a factor of 7
_PRIOR_WITHIN = 0.5  # the part of a class's variance within narrower ones, before any is known
_OVERDUE = 0.999  # a run is overdue that is past this quantile


@dataclass(frozen=True, slots=True)
class ComputeTimes:
    """Distributions of computing times: `median_s`, NaN if unknown, and `spread`, 1 / b.

    With a spread of 0, it is one point. An overdue run takes at least the overdue time once more.
    """

    median_s: Floats
    spread: Floats

    def quantile(self, ran_s: Floats, p: float | Floats) -> Floats:
        """Return quantiles of the whole times, given that they are more than `ran_s`."""
        if not ran_s.any():
            logit = np.log(p) - np.log1p(np.negative(p))
            whole_s: Floats = self.median_s * np.exp(self.spread * logit)
            return whole_s
        with np.errstate(divide="ignore", invalid="ignore"):
            past = np.log(ran_s / self.median_s)
            odds = np.logaddexp(past / self.spread, np.log(p)) - np.log1p(np.negative(p))
            beyond = np.where(self.spread > 0, self.spread * odds, np.maximum(past, 0.0))
        return np.maximum(self.median_s * np.exp(beyond), self._overdue_again(ran_s))

    def ends_by(self, whole_s: Floats, ran_s: Floats) -> Floats:
        """Return the probability that the whole times are at most `whole_s`, given the same."""
        past = self._log_survival(np.maximum(whole_s, ran_s))
        with np.errstate(invalid="ignore"):
            spread_out = -np.expm1(past - self._log_survival(ran_s))
        point = whole_s >= self.median_s - SAME_INSTANT_S
        ends = np.where(self.spread > 0, spread_out, point)
        possible = whole_s >= self._overdue_again(ran_s) - SAME_INSTANT_S
        return np.where(np.isnan(self.median_s), np.nan, np.where(possible, ends, 0.0))

    def _log_survival(self, whole_s: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            log_survival: Floats = -np.logaddexp(0.0, np.log(whole_s / self.median_s) / self.spread)
        return log_survival

    def _overdue_again(self, ran_s: Floats) -> Floats:
        latest_s = self.median_s * (_OVERDUE / (1 - _OVERDUE)) ** self.spread
        again_s: Floats = 2 * ran_s - latest_s
        return again_s


def after_one_run(compute_s: float) -> tuple[float, float]:
    """Return median and spread of computing times where one run of so many seconds is all known."""
    return max(compute_s, SHORTEST_S), math.sqrt(3 * _PRIOR_VAR * 2) / math.pi


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs that have begun, or begin now."""

    began_at: Floats
    computes_at: Floats  # from when on, once it has read
    computed_s: Floats  # in all runs of the task
    saved_s: Floats  # of that, in earlier runs
    stopping: Bools
    speed: Floats  # at which it computes


class Estimates:
    """Expected run times of a snapshot's tasks, by row, vectorised.

    A run reads, then computes; saved progress counts, and a run never takes longer than its job's
    time limit. A task without a run, or that moves, is estimated as though its next run started
    now, on a node of speed 1. `p` is a quantile, more than 0 and less than 1. O(tasks requested +
    runtime classes).
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Read a snapshot."""
        self._snapshot = snapshot
        self._classes = _Classes(snapshot)
        self._last: tuple[Ints, ComputeTimes] | None = None  # of the tasks requested last

    def run_s(self, tasks: Ints, p: float = 0.5) -> Floats:
        """Return the seconds that a new run of each task takes; NaN if unknown."""
        saved_s = self._snapshot.tasks.progress_s.take(tasks)
        computes_s = self.compute_times(tasks).quantile(saved_s, _checked(p)) - saved_s
        computes_s /= self._snapshot.jobs.speed.take(self._snapshot.tasks.job.take(tasks))
        return np.fmin(self._reads_s(tasks) + computes_s, self.limit_s(tasks))

    def together_s(self, tasks: Sequence[int]) -> float:
        """Return how long tasks that start together are expected to run, inf if unknown."""
        run_s = float(self.run_s(np.array(tasks)).max())
        return math.inf if math.isnan(run_s) else run_s

    def end_at(self, tasks: Ints, p: float = 0.5) -> Floats:
        """Return when the run of each task ends, as a time of the world's clock.

        `inf` if that is unknown and its job has no time limit; now if it is being stopped.
        """
        runs, now = self._runs(tasks), self._snapshot.now
        whole_s = self.compute_times(tasks).quantile(runs.computed_s, _checked(p))
        limit_at = runs.began_at + self.limit_s(tasks)
        end_at = np.fmin(runs.computes_at + (whole_s - runs.saved_s) / runs.speed, limit_at)
        end_at[np.isnan(end_at)] = np.inf
        end_at[runs.stopping] = now
        return np.maximum(end_at, now)

    def ends_by(self, tasks: Ints, at: float | Floats) -> Floats:
        """Return the probability that the run of each task ends by a time, the same or its own.

        0 if nothing is known of it; 1 from its time limit on.
        """
        runs, when = self._runs(tasks), np.broadcast_to(at, len(tasks))
        whole_s = (when - runs.computes_at) * runs.speed + runs.saved_s
        chance = self.compute_times(tasks).ends_by(whole_s, runs.computed_s)
        chance[np.isnan(chance)] = 0.0
        limit_at = runs.began_at + self.limit_s(tasks)
        chance[runs.stopping | (limit_at <= when + SAME_INSTANT_S)] = 1.0
        return np.where(when >= self._snapshot.now, chance, 0.0)

    def prepare(self, *tasks: Ints) -> None:
        """Combine the classes of tasks that are requested next, faster together than in turn."""
        self.compute_times(np.concatenate(tasks))

    def compute_times(self, tasks: Ints) -> ComputeTimes:
        """Return the distributions of the computing times of tasks, over all their runs."""
        if self._last is not None and self._last[0] is tasks:
            return self._last[1]
        rows = self._snapshot.tasks
        declared_s = self._snapshot.jobs.estimated_s.take(rows.job.take(tasks))
        declared = ~np.isnan(declared_s)
        first, kind = rows.estimate_class.take(tasks), rows.runtime_class.take(tasks)
        median_s, spread = self._classes.times(first, kind, declared)
        if declared.any():
            exact = declared & self._declared_exactly(tasks)
            median_s[exact], spread[exact] = 1.0, 0.0
            median_s *= np.where(declared, np.maximum(declared_s, SHORTEST_S), 1.0)
        times = ComputeTimes(median_s, spread)
        self._last = tasks, times
        return times

    def _declared_exactly(self, tasks: Ints) -> Bools:
        """Return which tasks are of a queue whose jobs run as long as they declare.

        Or of training jobs: how much work they have, and at which rates, is known.
        """
        queues, jobs = self._snapshot.queues.spec.array(), self._snapshot.tasks.job.take(tasks)
        exact = np.array([queue.estimate == "declared" for queue in queues], bool)
        known = exact[self._snapshot.jobs.queue.take(jobs)]
        if self._snapshot.names.training:
            known |= np.isin(jobs, self._snapshot.names.training)
        return known

    def limit_s(self, tasks: Ints) -> Floats:
        """Return the time limit of a run of each task, in seconds; NaN without one."""
        limit_s: Floats = self._snapshot.jobs.time_limit_s.take(
            self._snapshot.tasks.job.take(tasks)
        )
        return limit_s

    def _runs(self, tasks: Ints) -> _Runs:
        rows, now = self._snapshot.tasks, self._snapshot.now
        state, saved_s = rows.state.take(tasks), rows.progress_s.take(tasks)
        moves = rows.target.take(tasks) >= 0
        held = _RUNS[state] & ~moves
        started_at, launched_at = rows.started_at.take(tasks), rows.launched_at.take(tasks)
        began_at = np.where(np.isnan(started_at), launched_at, started_at)
        began_at[~held] = now
        reads_s = rows.read_s.take(tasks)
        reads_s[~held] = self._reads_s(tasks[~held])
        computes_at = began_at + reads_s
        speed = self._snapshot.jobs.speed.take(rows.job.take(tasks))
        speed[held] = rows.speed.take(tasks[held])
        computed_s = saved_s + np.maximum(now - computes_at, 0.0) * speed
        stopping = (state == TaskState.STOPPING) & ~moves
        return _Runs(began_at, computes_at, computed_s, saved_s, stopping, speed)

    def _reads_s(self, tasks: Ints) -> Floats:
        """Return how long new runs take before they compute.

        As long as earlier runs of their kind; before the first, as reading from the rack takes.
        """
        snapshot, classes = self._snapshot, self._snapshot.runtime_classes
        kinds = snapshot.tasks.runtime_class.take(tasks)
        before_s: Floats = classes.held_s.take(kinds) - classes.compute_s.take(kinds)
        if not len(snapshot.shards.size_bytes):
            return np.fmax(before_s, 0.0)
        inputs, which = _unique(snapshot.tasks.input.take(tasks))
        offsets, shards = snapshot.inputs.shards.flat(inputs)
        up_to = np.concatenate([[0], np.cumsum(snapshot.shards.size_bytes.take(shards))])
        size_bytes = up_to[offsets[1:]] - up_to[offsets[:-1]]
        read_s = size_bytes[which] / snapshot.bandwidth.rack_bytes_per_s
        return np.where(np.isnan(before_s), read_s, np.maximum(before_s, 0.0))


class _Classes:
    """What is known of the logarithms in a task's chain of classes, combined.

    Widest first; each narrower class with samples moves mean and variance as in a random-effects
    model: by its own mean, weighted by how certain that is, given how much classes below the wider
    one differ, and how much the tasks within them.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._table = snapshot.runtime_classes
        size = len(self._table.count)
        self._done = np.zeros(size, bool)  # the chains known already, by their first class
        self._at = np.empty(size, np.int64)  # the first of the tasks requested with each of them
        self._median_s, self._spread = np.empty(size), np.empty(size)

    def times(self, first: Ints, kind: Ints, declared: Bools) -> tuple[Floats, Floats]:
        """Return the median, in units of the scale, and the spread of tasks; NaN if unknown.

        `first` are the first classes of their chains, `kind` those of their kinds, both rows.
        Each chain is computed once. A kind without samples says nothing: the chain of a job that is
        its only one begins with the next class.
        """
        alone = np.flatnonzero((first == kind) & ~declared)
        alone = alone[self._table.count.take(first[alone]) == 0]
        above = self._table.parent.take(first[alone])
        first = first.astype(np.int64)
        first[alone] = np.where(above < 0, first[alone], above)
        missing = np.flatnonzero(~self._done[first])
        if len(missing):
            kind = kind.astype(np.int64)
            kind[alone] = first[alone]
            self._at[first[missing[::-1]]] = missing[::-1]  # the last one written is the first
            some = missing[self._at[first[missing]] == missing]
            rows = first[some]
            mean, var = self._combined(rows, kind[some], declared[some])
            self._median_s[rows] = np.exp(mean)
            self._spread[rows] = np.sqrt(3 * var) / math.pi
            self._done[rows] = True
        return self._median_s[first], self._spread[first]

    def _combined(self, first: Ints, kind: Ints, declared: Bools) -> tuple[Floats, Floats]:
        """Return mean and variance by chain, NaN if unknown."""
        chain = [np.where(first == kind, -1, first), np.where(declared, -1, kind)]
        wider = self._parents(first)
        while (wider >= 0).any():
            chain.append(wider)
            wider = self._parents(wider)
        mean, var = (np.where(declared, 0.0, np.nan) for _ in range(2))
        wider = np.full(len(first), -1)  # the class that mean and variance are of
        for rows in reversed(chain):
            known = np.flatnonzero(rows >= 0)
            known = known[self._table.count.take(rows[known]) > 0]
            top = wider[known] < 0
            new, below = known[top], known[~top]
            if len(new):
                mean[new], var[new] = self._widest(rows[new], declared[new])
            if len(below):
                mean[below], var[below] = self._narrower(
                    rows[below], wider[below], mean[below], var[below]
                )
            wider[known] = rows[known]
        return mean, var

    def _parents(self, rows: Ints) -> Ints:
        return np.where(rows >= 0, self._table.parent.take(np.maximum(rows, 0)), -1)

    def _widest(self, rows: Ints, declared: Bools) -> tuple[Floats, Floats]:
        """Return mean and variance from the widest class with samples, and from the prior."""
        table = self._table
        count, mean, var = (c.take(rows) for c in (table.count, table.log_mean, table.log_var))
        within = self._pooled(rows, _PRIOR_VAR)
        weight = count / (count + _PRIOR_SAMPLES)
        disproved = weight * var + weight * (1 - weight) * mean * mean
        return (
            np.where(declared, weight * mean, mean),
            np.where(declared, disproved, within * (1 + 1 / count)),
        )

    def _narrower(
        self, rows: Ints, above: Ints, mean: Floats, var: Floats
    ) -> tuple[Floats, Floats]:
        """Return mean and variance moved by a narrower class with samples."""
        known, within = self._table.within_count.take(above), self._table.within_var.take(above)
        within = (known * within + _PRIOR_WITHIN * var) / (known + 1)
        own = self._pooled(rows, within)
        off, error = self._table.log_mean.take(rows) - mean, own / self._table.count.take(rows)
        between = np.maximum(np.maximum(var - within, off * off - error), 0.0)
        whole = between + error
        weight = np.divide(between, whole, out=np.zeros_like(whole), where=whole > 0)
        return mean + weight * off, own + (1 - weight) * between

    def _pooled(self, rows: Ints, prior: Floats | float) -> Floats:
        """Return the variance within classes, from their samples and a prior."""
        count, var = self._table.count.take(rows), self._table.log_var.take(rows)
        freedom = np.maximum(count - 1, 0.0) + _PRIOR_SAMPLES
        pooled: Floats = (count * var + _PRIOR_SAMPLES * prior) / freedom
        return pooled


def _unique(rows: Ints) -> tuple[Ints, Ints | int]:
    """Return the different rows and which each is, as `np.unique`; fast if all are equal."""
    if len(rows) and (rows == rows[0]).all():
        return rows[:1], 0
    return np.unique(rows, return_inverse=True)


def _checked(p: float) -> float:
    if not 0 < p < 1:
        raise ValueError(f"a quantile is more than 0 and less than 1, not {p}")
    return p
