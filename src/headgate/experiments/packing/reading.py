"""Reads recorded pods and nodes from Parquet files; reports every problem of both, with its row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from headgate.base.errors import Problem, SpecError, nearest
from headgate.experiments.packing.workload import Nodes, Workload
from headgate.planning.packing import WHOLE, PodDemand
from headgate.traces.columns import as_floats, as_text, is_text

_MOST_SHOWN = 10  # problems of one kind in one column
_MOST = {"cpus": 1e6, "mem_gb": 1e7, "gpus": 64.0, "num_gpu": 64.0, "gpu_milli": float(WHOLE)}
_WHOLE_NUMBERS = ("gpus", "num_gpu", "gpu_milli")
MODEL = "gpu_type"
SEPARATOR = "|"
_GIB = 1 << 30


def read(pods: Path, nodes: Path) -> Workload:
    """Return the pods on the nodes that have GPUs.

    Raises SpecError `missing_file`, or `bad_trace` with the problems of both files.
    """
    of_pods = _Columns(pods, ("cpus", "mem_gb", "num_gpu", "gpu_milli"))
    found = _Columns(nodes, ("cpus", "mem_gb", "gpus"))
    problems = [*of_pods.problems, *found.problems]
    if not problems:
        problems = _mismatches(of_pods, found)
    if problems:
        missing = all(problem.problem == _MISSING for problem in problems)
        raise SpecError(problems, code="missing_file" if missing else "bad_trace")
    kept = np.flatnonzero(found["gpus"] > 0)
    models = sorted({found.models[row] or "" for row in kept.tolist()})
    numbers = {model: number for number, model in enumerate(models)}
    return _workload(
        of_pods,
        Nodes(
            cpu_milli=_rounded(found["cpus"][kept], 1000),
            memory_bytes=_rounded(found["mem_gb"][kept], _GIB),
            gpus=_rounded(found["gpus"][kept], 1),
            model=[numbers[found.models[row] or ""] for row in kept.tolist()],
            models=models,
        ),
    )


def _workload(pods: _Columns, nodes: Nodes) -> Workload:
    columns = (
        _rounded(pods["cpus"], 1000),
        _rounded(pods["mem_gb"], _GIB),
        _rounded(pods["num_gpu"], 1),
        _rounded(pods["gpu_milli"], 1),
        pods.models,
    )
    numbers: dict[PodDemand, int] = {}
    rows = []
    for cpu_milli, memory_bytes, gpus, milli, models in zip(*columns, strict=True):
        accepted = None
        if models is not None and gpus:
            named = {name.strip() for name in models.split(SEPARATOR)}
            accepted = frozenset(n for n, model in enumerate(nodes.models) if model in named)
        demand = PodDemand(
            cpu_milli=cpu_milli,
            memory_bytes=memory_bytes,
            gpus=gpus,
            milli=milli if gpus else 0,
            models=accepted,
        )
        rows.append(numbers.setdefault(demand, len(numbers)))
    return Workload(demands=tuple(numbers), pods=rows, nodes=nodes)


def _rounded(values: NDArray[np.float64], unit: int) -> list[int]:
    """Return numbers in units of 1 / `unit`, so that sums are exact."""
    found: list[int] = np.rint(values * unit).astype(np.int64).tolist()
    return found


def _mismatches(pods: _Columns, nodes: _Columns) -> list[Problem]:
    """Return what is wrong with correct columns: nodes without GPUs, and shares of no GPU."""
    found = []
    if not (nodes["gpus"] > 0).any():
        hint = "nodes without GPUs are left out, and there is no other"
        found.append(Problem(path=f"{nodes.path}:gpus", problem="no node has a GPU", hint=hint))
    if not (pods["num_gpu"] > 0).any():
        hint = "arrived load is measured in GPUs"
        found.append(Problem(path=f"{pods.path}:num_gpu", problem="no pod needs a GPU", hint=hint))
    bare = np.flatnonzero((pods["num_gpu"] > 0) & (pods["gpu_milli"] == 0))
    found += _at(f"{pods.path}:gpu_milli", bare, lambda row: "is 0, of a pod with GPUs")
    return found


_MISSING = "no such file"


class _Columns:
    """The numbers of a file by column, its `gpu_type`, and all problems of them."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.models: list[str | None] = []
        self._numbers: dict[str, NDArray[np.float64]] = {}
        table = self._table((*names, MODEL))
        if table is None:
            return
        if table.num_rows == 0:
            self._add("", "has no rows")
        for name in names:
            if name in table.column_names:
                self._read(name, table[name])
        self._read_models(table)

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        return self._numbers[name]

    def _add(self, place: str, problem: str, hint: str = "") -> None:
        self.problems.append(Problem(path=f"{self.path}{place}", problem=problem, hint=hint))

    def _table(self, names: Sequence[str]) -> pa.Table | None:
        """Return the columns that are there, None if the file is unreadable."""
        if not self.path.exists():
            self._add("", _MISSING, "name a Parquet file")
            return None
        try:
            present = pq.read_schema(self.path).names
            for name in names:
                count = present.count(name)
                if count > 1:
                    self._add(f":{name}", f"{count} columns have this name", "keep one")
                elif count == 0:
                    self._add(f":{name}", "column missing", nearest(name, present))
            return pq.read_table(self.path, columns=[n for n in names if present.count(n) == 1])
        except (OSError, pa.ArrowException) as error:
            hint = "name a file" if self.path.is_dir() else "is it whole?"
            self._add("", f"not readable as Parquet: {error}", hint)
            return None

    def _read(self, name: str, column: pa.ChunkedArray) -> None:
        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            self._add(f":{name}", f"is {kind}, not a number", "write it as a double")
            return
        values = self._numbers[name] = as_floats(column)
        null = column.is_null().to_numpy()
        finite = np.isfinite(values)
        whole = np.rint(np.where(finite, values, 0.0)) == values
        kinds: tuple[tuple[NDArray[np.bool_], Callable[[int], str]], ...] = (
            (null, lambda row: "is null"),
            (np.isnan(values) & ~null, lambda row: "is not a number (NaN)"),
            (np.isinf(values), lambda row: "is infinite"),
            (finite & (values < 0), lambda row: f"is negative ({values[row]:g})"),
            (
                finite & (values > _MOST[name]),
                lambda row: f"is {values[row]:g}, more than {_MOST[name]:g}",
            ),
            (
                finite & ~whole & (name in _WHOLE_NUMBERS),
                lambda row: f"is {values[row]:g}, not a whole number",
            ),
        )
        for bad, message in kinds:
            self.problems += _at(f"{self.path}:{name}", np.flatnonzero(bad), message)

    def _read_models(self, table: pa.Table) -> None:
        if MODEL not in table.column_names:
            return
        column = table[MODEL]
        if pa.types.is_null(column.type):
            self.models = [None] * len(column)
        elif is_text(column.type):
            self.models = as_text(column).to_pylist()
        else:
            self._add(f":{MODEL}", f"is {column.type}, not text", "write it as a string")


def _at(place: str, rows: NDArray[np.intp], message: Callable[[int], str]) -> list[Problem]:
    """Return a problem for each row, of many the first, and how many there are more."""
    found = [
        Problem(path=f"{place}[{row}]", problem=message(row)) for row in rows[:_MOST_SHOWN].tolist()
    ]
    if len(rows) > _MOST_SHOWN:
        more = f"... and {len(rows) - _MOST_SHOWN} more like these"
        found.append(Problem(path=place, problem=more))
    return found
