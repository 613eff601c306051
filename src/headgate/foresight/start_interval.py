"""How certain an expected start is: the same sequence of starts, with run times drawn at random.

A task that starts after the n-th end of a run in a simulation is taken to start after the n-th end
in each draw, whichever runs end before. So a draw takes no decisions, and a hundred of them cost
less than one round.

Jobs may arrive meanwhile and come first: the wait may grow by as much work as has arrived in as
long a time until now, or by any part of it. Before any run has ended, those to come may be as short
as can be: for the begin of the interval, they take no time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.base.rng import stream
from headgate.foresight.run_ends import ExpectedRun, remaining_s
from headgate.planning.times.estimates import Estimates
from headgate.state import Snapshot, TaskState
from headgate.state.life import HOLDING

PROBABILITY = 0.8
"""With which a start is in its interval."""

_DRAWS = 100
_READING = 0.25  # standard deviation of the logarithm of reading times about the model's
_DRIFT = 0.1  # that of the wait, for what a simulation leaves out
_ALIKE = 0.3  # the part of a class's variance by which its next runs err together, however many
_MOST_LOAD = 0.9  # of the GPUs that jobs to come take: with it, a wait is ten times as long
_PRIOR_SAMPLES = 3.0  # as in `planning.times.estimates`


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunAhead:
    """A run of a simulation that begins `lag_s` after the end of `ends_before` others."""

    run: ExpectedRun
    ends_before: int = 0
    lag_s: float = 0.0


def start_interval(
    snapshot: Snapshot, ahead: Sequence[RunAhead], ends: int, *, lag_s: float, at: float, now: float
) -> tuple[float, float]:
    """Return the times between which a start at `at`, `lag_s` after `ends` ends, lies with 80 %.

    O(draws x runs x log + tasks of the jobs that have arrived lately). Deterministic.
    """
    if at <= now or not ends:
        return at, at
    takes_s = _takes_s(snapshot, [each.run for each in ahead])
    drift = np.exp(_DRIFT * _normal("drift", 1)[:, 0])
    waits_s = (np.array(_nth_ends(ahead, takes_s, ends)) + lag_s - now) * drift
    come_first = _probability(_normal("arrivals", 1)[:, 0])
    longest_s = waits_s / (1 - come_first * _arriving_load(snapshot, now, at - now))
    to_come = np.array([each.run.guessed and each.ends_before > 0 for each in ahead])
    if to_come.any():
        takes_s[:, to_come] = 0.0
        waits_s = (np.array(_nth_ends(ahead, takes_s, ends)) + lag_s - now) * drift
    beyond = round(_DRAWS * (1 - PROBABILITY) / 2)
    earliest = now + float(np.sort(waits_s)[beyond - 1])
    latest = now + float(np.sort(longest_s)[-beyond])
    return max(now, min(earliest, at)), max(latest, at)


def _arriving_load(snapshot: Snapshot, now: float, within_s: float) -> float:
    """Return the GPUs that jobs which arrived in the last seconds keep busy for as long.

    It is a part of all GPUs that are up, `_MOST_LOAD` at most. Unknown run times count as 0.
    """
    recent = np.flatnonzero(snapshot.jobs.submitted_at.array() > now - within_s)
    if not len(recent):
        return 0.0
    tasks = snapshot.tasks
    rows = np.arange(snapshot.jobs.first_task[int(recent[0])], len(tasks.state))
    estimates, state = Estimates(snapshot), tasks.state.take(rows)
    takes_s, launched_at = estimates.run_s(rows), tasks.launched_at.take(rows)
    for some, end_at in (
        (np.isin(state, HOLDING), estimates.end_at),
        (state == TaskState.FINISHED, tasks.ended_at.take),
    ):
        takes_s[some] = end_at(rows[some]) - launched_at[some]
    takes_s[~np.isfinite(takes_s)] = 0.0
    gpus = max(snapshot.gpu_count(), 1)
    load = float(takes_s @ tasks.gpus.take(rows)) / (gpus * within_s)
    return min(load, _MOST_LOAD)


def _nth_ends(ahead: Sequence[RunAhead], takes_s: Floats, ends: int) -> list[float]:
    """Return the time of the n-th end in each draw, `inf` if there are fewer."""
    first = [n for n, each in enumerate(ahead) if not each.ends_before]
    later: dict[int, list[int]] = {}
    for n, each in enumerate(ahead):
        if each.ends_before:
            later.setdefault(each.ends_before, []).append(n)
    nth_ends = []
    for draw in takes_s.tolist():
        heap = [ahead[n].run.origin + draw[n] for n in first]
        heapq.heapify(heap)
        at = math.inf
        for ended in range(1, ends + 1):
            if not heap:
                at = math.inf
                break
            at = heapq.heappop(heap)
            for n in later.get(ended, ()):
                heapq.heappush(heap, at + ahead[n].lag_s + draw[n])
        nth_ends.append(at)
    return nth_ends


def _takes_s(snapshot: Snapshot, runs: Sequence[ExpectedRun]) -> Floats:
    """Return drawn times of runs, `[draws, runs]`, in seconds.

    Runs whose times are learnt from one class err together: the more, the fewer samples it has.
    """
    classes = _learnt_from(snapshot, np.array([run.task for run in runs]))
    distinct, of_class = np.unique(classes, return_inverse=True)
    count = snapshot.runtime_classes.count.take(distinct)
    together = np.sqrt((_PRIOR_SAMPLES + _ALIKE * count) / (_PRIOR_SAMPLES + count))
    shared = (together * _normal("classes", len(distinct)))[:, of_class]
    errors = shared + np.sqrt(1 - together**2)[of_class] * _normal("runs", len(runs))
    slower = np.exp(_READING * _normal("reading", len(runs)))
    return remaining_s(runs, _probability(errors), slower)


def _learnt_from(snapshot: Snapshot, tasks: Ints) -> Ints:
    """Return the first class in the chain of each task that has samples, else the last one."""
    table = snapshot.runtime_classes
    classes = snapshot.tasks.estimate_class.take(tasks).astype(np.int64)
    while True:
        above = table.parent.take(classes)
        unknown = (table.count.take(classes) == 0) & (above >= 0)
        if not unknown.any():
            return classes
        classes[unknown] = above[unknown]


def _normal(purpose: str, count: int) -> Floats:
    """Return standard normal numbers, `[draws, count]`, the same in every forecast."""
    seed = stream(0, "forecast", purpose).getrandbits(64)
    numbers: Floats = np.random.Generator(np.random.PCG64(seed)).standard_normal((count, _DRAWS))
    return numbers.T


def _probability(normal: Floats) -> Floats:
    """Return the probability that a standard normal number is smaller, away from 0 and 1.

    The logistic approximation; its error is below 0.01.
    """
    probability: Floats = 1 / (1 + np.exp(-1.702 * np.clip(normal, -4.0, 4.0)))
    return probability
