"""Measurement of Headgate's solver: cold, and warm round after round, each with a certificate."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil

from flow_bench.clock import medians, now_ms
from flow_bench.laminar import Forest, Options, options
from flow_bench.problem import Problem, Source, read_problem
from headgate.base.arrays import Ints
from headgate.base.errors import HeadgateError
from headgate.flow import LaminarSolver, verify_laminar

_LEAST_ROUNDS, _MOST_ROUNDS, _ENOUGH_MS = 9, 99, 5_000
REFUSED = 2  # exit code for an instance that the solver rejects
_PART = 0.01  # of the placed tasks ends in a round


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """The measurements; times are medians. Warm times are None where no task was placed.

    `cold_ms` is `build_ms` (the laminar form, by NumPy) plus the time of the solver.
    """

    cold_ms: float
    build_ms: float
    warm_ms: float | None
    warm_recomputed_ms: float | None
    rounds: int
    changes: int
    cost: int
    unplaced: int
    violations: int
    gap: int
    peak_rss_mb: float
    start_rss_mb: float


def measure(source: Source) -> Ours:
    """Measure the solver; runs in a separate process, so that its memory can be measured."""
    problem = read_problem(source)
    start_mb = _rss_mb()
    places, choice = problem.build()
    solver = LaminarSolver(places.parent, places.capacity)
    ids = solver.add(choice.offsets, choice.place, choice.cost)
    outcome = solver.solve()
    memory = _Memory(peak_mb=_high_water_mb(), solver_mb=_rss_mb())
    rng = np.random.default_rng([source.seed, 1])
    rounds = _Rounds(problem, places, solver, ids, rng, memory)
    rounds.check(choice)
    warm, recomputed = [], []
    changes = rounds.changes()
    if changes and not outcome.unplaced:
        warm = _played(lambda: rounds.same_jobs(changes))
        recomputed = _played(lambda: rounds.any_jobs(changes))
    del solver, ids, choice
    cold_ms, build_ms = medians(lambda: _cold(problem))
    return Ours(
        cold_ms=cold_ms,
        build_ms=build_ms,
        warm_ms=statistics.median(warm) if warm else None,
        warm_recomputed_ms=statistics.median(recomputed) if recomputed else None,
        rounds=min(len(warm), len(recomputed)),
        changes=changes,
        cost=outcome.cost,
        unplaced=outcome.unplaced,
        violations=rounds.violations,
        gap=rounds.gap,
        peak_rss_mb=memory.peak_mb,
        start_rss_mb=start_mb,
    )


def _cold(problem: Problem) -> tuple[float, float]:
    """Return the time from the structure's arrays to the solution, and that of building alone."""
    started = now_ms()
    places, choice = problem.build()
    built = now_ms()
    solver = LaminarSolver(places.parent, places.capacity)
    solver.add(choice.offsets, choice.place, choice.cost)
    solver.solve()
    ended = now_ms()
    return ended - started, built - started


def _played(play: Callable[[], float]) -> list[float]:
    """Return the milliseconds of rounds: as many as fit into the time limit, at least a few."""
    ends, taken = now_ms() + _ENOUGH_MS, [play() for _ in range(_LEAST_ROUNDS)]
    while len(taken) < _MOST_ROUNDS and now_ms() < ends:
        taken.append(play())
    return taken


class _Rounds:
    """Rounds of tasks that end and arrive, in a solver that stays warm.

    A task that arrives replaces one that ended, and accepts the same classes. `_row[u]` is the row
    of unit u in `_known`: the first tasks, then the arrivals.
    """

    def __init__(
        self,
        problem: Problem,
        places: Forest,
        solver: LaminarSolver,
        ids: Ints,
        rng: np.random.Generator,
        memory: _Memory,
    ) -> None:
        structure = problem.structure
        self.violations = self.gap = 0
        self._problem, self._places, self._solver = problem, places, solver
        self._rng, self._memory = rng, memory
        self._ids = np.array(ids)
        self._capacity = places.capacity.copy()
        self._pools = np.arange(places.pools, len(places.parent))
        self._free = problem.classes.free(structure)
        self._known = structure.tasks.followed_by(structure.arrivals)
        self._row = np.arange(len(ids))
        # Arrivals by job, and which of them comes next.
        first = len(structure.tasks)
        self._arrival = first + np.argsort(structure.arrivals.job, kind="stable")
        self._of_job = np.bincount(structure.arrivals.job, minlength=structure.jobs)
        self._before_job = np.cumsum(self._of_job) - self._of_job
        self._next = np.zeros(structure.jobs, np.int64)

    def changes(self) -> int:
        """Return how many tasks end in a round: 1 % of those placed, at least one."""
        placed = len(self._placed())
        return min(placed, max(1, round(_PART * placed)))

    def same_jobs(self, changes: int) -> float:
        """Play a round in which tasks of the same jobs arrive; return its milliseconds."""
        ended = self._rng.choice(self._placed(), changes, replace=False)
        ended = ended[np.argsort(self._job()[ended], kind="stable")]
        job = self._job()[ended]
        nth = np.arange(changes) - np.searchsorted(job, job) + self._next[job]
        np.add.at(self._next, job, 1)
        some = self._of_job[job] > 0
        rows = self._row[ended]  # a job without arrivals gets a copy of the task that ended
        cycle = nth[some] % self._of_job[job[some]]
        rows[some] = self._arrival[self._before_job[job[some]] + cycle]
        return self._play(ended, rows, recompute=False)

    def any_jobs(self, changes: int) -> float:
        """Play a round in which any tasks arrive and all shares are reset."""
        ended = self._rng.choice(self._placed(), changes, replace=False)
        rows = self._rng.choice(self._arrival, changes)
        return self._play(ended, rows, recompute=True)

    def _play(self, ended: Ints, rows: Ints, *, recompute: bool) -> float:
        problem, solver = self._problem, self._solver
        self._row[ended] = rows
        if recompute:
            self._capacity[self._pools] = problem.classes.unscheduled_capacity(
                self._free, problem.structure.jobs, self._job(), problem.wants.home
            )
        capacity = self._capacity[self._pools]
        new = self._options(ended)
        gone = self._ids[ended]
        before_mb = _rss_mb()
        started = now_ms()
        solver.remove(gone)
        if recompute:
            solver.set_capacity(self._pools, capacity)
        ids = solver.add(new.offsets, new.place, new.cost)
        solver.solve()
        solver.place_of(ids)
        solver.leaf_of(ids)
        taken = now_ms() - started
        self._memory.grew(_rss_mb() - before_mb)
        self._ids[ended] = ids
        self.check(self._options(np.arange(len(self._row))))
        return taken

    def check(self, choice: Options) -> None:
        """Check the certificate of the plan over all options of all units."""
        certificate = verify_laminar(
            self._places.parent,
            self._capacity,
            choice.offsets,
            choice.place,
            choice.cost,
            self._solver.place_of(self._ids),
            self._solver.leaf_of(self._ids),
            self._solver.prices(),
        )
        self.violations += certificate.violations
        self.gap = max(self.gap, certificate.gap)

    def _options(self, units: Ints) -> Options:
        tasks, wants = self._known.take(self._row[units]), self._problem.wants.take(units)
        return options(self._places, self._problem.classes, tasks, wants)

    def _job(self) -> Ints:
        return self._known.job[self._row].astype(np.int64)

    def _placed(self) -> Ints:
        at = self._solver.place_of(self._ids)
        return np.flatnonzero((at >= 0) & (at < self._places.pools))


# ---------------------------------------------------------------- memory


@dataclass(slots=True, kw_only=True)
class _Memory:
    """Peak memory of the process while it built and solved, without the checks.

    `solver_mb` is the memory held after the cold solve, plus what warm rounds have added.
    """

    peak_mb: float
    solver_mb: float

    def grew(self, more_mb: float) -> None:
        self.solver_mb += more_mb
        self.peak_mb = max(self.peak_mb, self.solver_mb)


def _rss_mb() -> float:
    """Return the resident memory of the process, in MB."""
    return float(psutil.Process().memory_info().rss) / (1 << 20)


def _high_water_mb() -> float:
    """Return the peak memory of the process, in MB; the current one where that is unknown."""
    # Not `ru_maxrss`: in a new process it starts with the parent's peak.
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return _rss_mb()


if __name__ == "__main__":
    try:
        print(json.dumps(asdict(measure(Source.from_arguments(sys.argv[1:])))))
    except HeadgateError as error:
        print(error, file=sys.stderr)
        sys.exit(REFUSED)
