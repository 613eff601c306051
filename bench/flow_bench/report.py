"""One instance measured: Headgate's solver and its peers, and whether their optima agree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flow_bench import peers
from flow_bench.ours import REFUSED, Ours
from flow_bench.problem import Problem, Source, read_problem
from headgate.base.errors import SpecError, WorldError

_BENCH = str(Path(__file__).parents[1])  # where the process finds this package


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Violated conditions of all solves, and the largest gap of any."""

    violations: int
    gap: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Milliseconds (medians), memory and optimum for one instance; None where not measured.

    `ratio_cold` and `ratio_warm` are the fastest peer's cold time over our cold and warm ones.
    `peak_rss_mb` is of the process that runs our solver alone, `start_rss_mb` what that process
    held before: Python, NumPy and the instance.
    """

    cold_ms: float
    warm_ms: float | None
    warm_recomputed_ms: float | None
    build_ms: float
    ortools_cold_ms: float | None
    ortools_solve_ms: float | None
    lemon_ms: float | None
    optimal_cost: int
    certificate: Certificate
    peak_rss_mb: float
    start_rss_mb: float
    lemon_algorithm: str | None
    ortools_cost: int | None
    lemon_cost: int | None
    fastest_peer: str | None
    ratio_cold: float | None
    ratio_warm: float | None
    rounds: int
    changes_per_round: int
    instance: dict[str, int]

    def disagreements(self) -> list[str]:
        """Return the problems found: optima that differ, violated optimality conditions."""
        found = [
            f"the optimum is {self.optimal_cost}, but {peer} found {cost}"
            for peer, cost in (("OR-tools", self.ortools_cost), ("LEMON", self.lemon_cost))
            if cost not in (None, self.optimal_cost)
        ]
        broken, gap = self.certificate.violations, self.certificate.gap
        if broken or gap:
            found.append(f"not proven optimal: {broken} conditions are broken, the gap is {gap}")
        return found

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)


def measure(source: Source, lemon_limit_s: float) -> Report:
    """Measure ours in a process of its own, then the peers in this one.

    Raises SpecError for a file that holds no structure, or one whose tasks have no room, and
    WorldError when a peer or the process that measures our solver fails.
    """
    problem = read_problem(source)
    mine = _apart(source)
    if mine.unplaced:
        raise SpecError(
            f"{mine.unplaced} tasks have no room: free GPUs and unscheduled_capacity together "
            "must hold all tasks"
        )
    theirs = peers.measure_ortools(problem)
    lemon = peers.measure_lemon(problem, lemon_limit_s)
    times = {"OR-tools": theirs.cold_ms if theirs else None, "LEMON": lemon and lemon.cold_ms}
    fastest = min((ms, name) for name, ms in times.items() if ms) if any(times.values()) else None
    return Report(
        cold_ms=mine.cold_ms,
        warm_ms=mine.warm_ms,
        warm_recomputed_ms=mine.warm_recomputed_ms,
        build_ms=mine.build_ms,
        ortools_cold_ms=theirs.cold_ms if theirs else None,
        ortools_solve_ms=theirs.solve_ms if theirs else None,
        lemon_ms=lemon.cold_ms if lemon else None,
        optimal_cost=mine.cost,
        certificate=Certificate(violations=mine.violations, gap=mine.gap),
        peak_rss_mb=mine.peak_rss_mb,
        start_rss_mb=mine.start_rss_mb,
        lemon_algorithm=lemon.algorithm if lemon else None,
        ortools_cost=theirs.cost if theirs else None,
        lemon_cost=lemon.cost if lemon else None,
        fastest_peer=fastest[1] if fastest else None,
        ratio_cold=fastest[0] / mine.cold_ms if fastest else None,
        ratio_warm=fastest[0] / mine.warm_ms if fastest and mine.warm_ms else None,
        rounds=mine.rounds,
        changes_per_round=mine.changes,
        instance=_sizes(problem),
    )


def _apart(source: Source) -> Ours:
    """Return the measurements of Headgate's solver in a new process, without the peers."""
    paths = os.environ.get("PYTHONPATH")
    ended = subprocess.run(
        [sys.executable, "-m", Ours.__module__, *source.as_arguments()],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (_BENCH, paths)))},
    )
    if ended.returncode == REFUSED:
        raise SpecError(ended.stderr.strip())
    if ended.returncode:
        raise WorldError(
            f"the process that measures our solver ended with {ended.returncode}: "
            f"{ended.stderr.strip() or 'without a message'}"
        )
    return Ours(**json.loads(ended.stdout))


def _sizes(problem: Problem) -> dict[str, int]:
    structure = problem.structure
    return {
        "nodes": structure.nodes,
        "racks": structure.racks,
        "free_gpus": int(structure.free.sum(dtype="int64")),
        "jobs": structure.jobs,
        "tasks": len(structure.tasks),
        "options": len(structure.tasks.option_vertex),
        "classes": problem.classes.count,
    }
