"""The same problems solved by OR-tools, and by LEMON where its headers are installed."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flow_bench.clock import medians, more_runs, now_ms
from flow_bench.network import arcs
from flow_bench.problem import Problem
from headgate.base.errors import WorldError

_ROOT = Path(__file__).parents[2]
_SOURCE, _PROGRAM = _ROOT / "bench" / "lemon_peer.cpp", _ROOT / "build" / "bench" / "lemon_peer"
_HEADER = "#include <lemon/network_simplex.h>\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrTools:
    """Times of OR-tools, in ms: from the structure's arrays, and `solve()` alone; its optimum."""

    cold_ms: float
    solve_ms: float
    cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lemon:
    """Time of LEMON's faster algorithm, in ms, from arrays in memory to the solution."""

    cold_ms: float
    algorithm: str
    cost: int


def measure_ortools(problem: Problem) -> OrTools | None:
    """Measure `SimpleMinCostFlow`; None where OR-tools is not installed."""
    try:
        from ortools.graph.python.min_cost_flow import SimpleMinCostFlow
    except ImportError:
        return None
    cost = 0

    def run() -> tuple[float, float]:
        nonlocal cost
        started = now_ms()
        network = arcs(*problem.build())
        solver = SimpleMinCostFlow()
        solver.add_arcs_with_capacity_and_unit_cost(
            network.tail, network.head, network.capacity, network.cost
        )
        solver.set_nodes_supplies(np.arange(len(network.supply), dtype=np.int32), network.supply)
        given = now_ms()
        status = solver.solve()
        ended = now_ms()
        if status != solver.OPTIMAL:
            raise WorldError(f"OR-tools found no optimum: {status}")
        cost = int(solver.optimal_cost())
        return ended - started, ended - given

    cold_ms, solve_ms = medians(run)
    return OrTools(cold_ms=cold_ms, solve_ms=solve_ms, cost=cost)


def measure_lemon(problem: Problem, limit_s: float) -> Lemon | None:
    """Measure LEMON's network simplex and cost scaling; None where neither ends within the limit.

    Also None where there is no compiler, no LEMON, or no source of the program that calls it.
    """
    if limit_s <= 0 or not _compiled():
        return None
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        path = Path(folder) / "network"
        arcs(*problem.build()).write(path)
        found = [_run_lemon(path, algorithm, limit_s) for algorithm in ("simplex", "scaling")]
    return min((one for one in found if one), key=lambda one: one.cold_ms, default=None)


def _run_lemon(path: Path, algorithm: str, limit_s: float) -> Lemon | None:
    def run(times: int) -> list[list[str]] | None:
        command = [str(_PROGRAM), str(path), algorithm, str(times)]
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=limit_s + times - 1, check=False
            )
        except subprocess.TimeoutExpired:
            return None
        if ended.returncode:
            raise WorldError(f"LEMON's {algorithm} failed: {ended.stderr.strip()}")
        return [line.split() for line in ended.stdout.splitlines()]

    lines = run(1)
    if lines and (more := more_runs(float(lines[0][0]))):
        lines = (run(more) or []) + lines
    if not lines:
        return None
    cold_ms = statistics.median(float(cold) for cold, _, _ in lines)
    return Lemon(cold_ms=cold_ms, algorithm=algorithm, cost=int(lines[0][2]))


def _compiled() -> bool:
    """Return whether the program exists, compiled from the current source."""
    compiler = shutil.which("g++")
    if compiler is None or not _SOURCE.exists():
        return False
    if _PROGRAM.exists() and _PROGRAM.stat().st_mtime >= _SOURCE.stat().st_mtime:
        return True
    headers = subprocess.run(
        [compiler, "-E", "-x", "c++", "-"], input=_HEADER, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if headers.returncode:
        return False
    _PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-O3", "-march=native", "-std=c++17", "-DNDEBUG"]
    built = subprocess.run(
        [compiler, *flags, "-o", _PROGRAM, _SOURCE], capture_output=True, text=True, check=False
    )
    if built.returncode:
        raise WorldError(f"{_SOURCE} does not compile: {built.stderr.strip()[-500:]}")
    return True
