"""Reads recorded training jobs with deadlines, and the measured throughputs of their models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from headgate.base.errors import Problem, SpecError, nearest
from headgate.model.speed import SpeedCurve
from headgate.traces.columns import VC, TraceOptions, as_floats, as_text, is_text
from headgate.traces.parquet import read_trace

SOURCE = "elasticflow"
"""Of a table with the throughputs of several sources, the rows with this one are read."""

THROUGHPUTS = Path(__file__).with_name("throughputs.parquet")
"""The throughputs that the simulator of ElasticFlow reads, on A100 and T4.

From github.com/pkusys/ElasticFlow (ASPLOS 2023), Apache License 2.0; as columns of a table here.
"""

_MOST_SHOWN = 10  # problems of one kind
_MISSING = "no such file"
_TRAINING = ("ef_batch_size", "ef_iterations", "ef_deadline_s")
_MEASURED = ("batch_size", "gpus", "throughput")

Curves = Mapping[tuple[str, int], SpeedCurve]
"""Steps per second by width, of each model and global batch size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedJob:
    """A job of a trace: `work` units by `deadline_s`, from `submit_s` on, on one clock (s).

    `useful` is the widest width worth having, `requested` the width that its user requested.
    It ran for `duration_s` there.
    """

    id: str
    submit_s: float
    deadline_s: float
    work: float
    curve: SpeedCurve
    useful: int
    requested: int = 1
    duration_s: float = 0.0
    model: str = ""

    def impossible(self) -> str | None:
        """Return the reason to reject it whatever else there is, None if there is none."""
        if not self.work > 0:
            return "no_work"
        if self.deadline_s <= self.submit_s:
            return "deadline_before_submission"
        return None

    def alone_s(self, gpus: int) -> float | None:
        """Return how long it takes at its best width up to so many GPUs, None if it never runs."""
        pairs = zip(self.curve.widths, self.curve.rates, strict=True)
        rates = [rate for width, rate in pairs if width <= gpus]
        return self.work / max(rates) if rates and self.work > 0 else None


def read_training(
    trace: Path, throughputs: Path, *, vc: str | None, gpu_type: str
) -> list[RecordedJob]:
    """Return the jobs of a trace, in its order, on GPUs of a type.

    A curve has the widths that were measured, up to the batch size: a GPU computes one sample or
    more. Raises SpecError `missing_file`, or `bad_trace` with the problems of both files.
    """
    curves, problems = _curves(throughputs, gpu_type)
    try:
        jobs = read_trace(trace, TraceOptions(vc=vc))
    except SpecError as error:
        raise SpecError([*error.problems, *problems], code=error.code) from None
    columns = _Columns(trace, _TRAINING, "ef_model", keep=(VC, vc))
    columns.check({"ef_batch_size": 1.0, "ef_iterations": 0.0, "ef_deadline_s": -np.inf})
    problems += columns.problems
    if not problems:
        problems = _unmeasured(columns, curves, throughputs, gpu_type)
    if problems:
        missing = all(problem.problem == _MISSING for problem in problems)
        raise SpecError(problems, code="missing_file" if missing else "bad_trace")
    batch, iterations, deadline_s = (columns[name].tolist() for name in _TRAINING)
    rows = zip(
        jobs.job_id.tolist(), jobs.submit_s.tolist(), jobs.duration_s.tolist(), jobs.gpus.tolist(),
        columns.names, batch, iterations, deadline_s, strict=True,
    )  # fmt: skip
    return [
        RecordedJob(
            id=str(job_id),
            submit_s=submit_s,
            deadline_s=deadline,
            work=work,
            curve=curves[model, int(size)],
            useful=curves[model, int(size)].best,
            requested=requested,
            duration_s=duration_s,
            model=model,
        )
        for job_id, submit_s, duration_s, requested, model, size, work, deadline in rows
    ]


def _curves(path: Path, gpu_type: str) -> tuple[Curves, list[Problem]]:
    """Return the curves on a type of GPU, and what is wrong with their file."""
    columns = _Columns(path, _MEASURED, "model", "gpu_type", keep=("source", SOURCE))
    if columns.problems:
        return {}, columns.problems
    columns.select("gpu_type", gpu_type)
    columns.check({"batch_size": 1.0, "gpus": 1.0, "throughput": 0.0}, null=("throughput",))
    if columns.problems:
        return {}, columns.problems
    measured: dict[tuple[str, int], dict[int, float]] = {}
    twice = []
    batch, gpus, rates = (columns[name].tolist() for name in _MEASURED)
    for row, (model, size, width, rate) in enumerate(
        zip(columns.names, batch, gpus, rates, strict=True)
    ):
        if not rate > 0 or width > size:
            continue  # a width that was not measured, or that some GPUs would have no sample at
        widths = measured.setdefault((model, int(size)), {})
        if int(width) in widths:
            twice.append((row, f"{model}, batch size {size:g} on {width:g} GPUs"))
        widths[int(width)] = rate
    problems = [
        Problem(
            path=f"{path}:throughput", problem=f"{what} was measured twice", hint="keep one row"
        )
        for _, what in twice[:_MOST_SHOWN]
    ]
    return {
        key: SpeedCurve(tuple(sorted(widths)), tuple(widths[width] for width in sorted(widths)))
        for key, widths in measured.items()
    }, problems


def _unmeasured(
    columns: _Columns, curves: Curves, throughputs: Path, gpu_type: str
) -> list[Problem]:
    """Return a problem for each model and batch size of jobs that has no throughput."""
    first: dict[tuple[str, int], int] = {}
    for row, (model, size) in enumerate(
        zip(columns.names, columns["ef_batch_size"].tolist(), strict=True)
    ):
        if (model, int(size)) not in curves:
            first.setdefault((model, int(size)), row)
    models = dict.fromkeys(model for model, _ in curves)
    problems = []
    for (model, size), row in first.items():
        sizes = sorted(known for name, known in curves if name == model)
        hint = f"batch sizes measured: {', '.join(map(str, sizes))}" if sizes else ""
        problems.append(
            Problem(
                path=f"{columns.path}:ef_model[{row}]",
                problem=f"{throughputs} has no throughput of {model} with batch size {size}"
                f" on {gpu_type}",
                hint=hint or nearest(model, models),
            )
        )
    return _shortened(problems)


class _Columns:
    """Some columns of a Parquet file, and all problems of them."""

    def __init__(
        self, path: Path, numbers: Sequence[str], *texts: str, keep: tuple[str, str | None]
    ) -> None:
        """Read columns; if there is one of the name in `keep`, only rows with its value."""
        self.path, self.problems = path, list[Problem]()
        self._numbers: dict[str, NDArray[np.float64]] = {}
        self._texts: dict[str, list[str]] = {}
        table = self._table([*numbers, *texts], *keep)
        if table is None or self.problems:
            return
        self._rows = np.arange(table.num_rows)
        for name in numbers:
            self._read_numbers(name, table[name])
        for name in texts:
            self._read_texts(name, table[name])
        if keep[1] is not None and keep[0] in table.column_names:
            values = as_text(table[keep[0]]).to_pylist()
            self._select(np.array([value == keep[1] for value in values], bool))

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        return self._numbers[name]

    @property
    def names(self) -> list[str]:
        """The first column of text."""
        return next(iter(self._texts.values()))

    def select(self, name: str, value: str) -> None:
        """Keep the rows with a value in a column of text; a problem if there is none."""
        values = self._texts[name]
        if value not in values:
            text = f"no row has {value!r}"
            self._add(f":{name}", text, nearest(value, dict.fromkeys(values)))
        self._select(np.array([found == value for found in values], bool))

    def check(self, least: Mapping[str, float], null: Sequence[str] = ()) -> None:
        """Add the problems of numbers that are below the least, missing or infinite."""
        if self.problems:
            return
        for name, lowest in least.items():
            values = self._numbers[name]
            missing, below = np.isnan(values), values < lowest
            kinds: list[tuple[NDArray[np.bool_], Callable[[int], str]]] = [
                (np.isinf(values), lambda _: "is infinite"),
                (below & np.isfinite(values), _below(values, lowest)),
            ]
            if name not in null:
                kinds.append((missing, lambda _: "is null or not a number"))
            for bad, message in kinds:
                rows = np.flatnonzero(bad).tolist()
                self.problems += _shortened(
                    [
                        Problem(path=f"{self.path}:{name}[{self._rows[row]}]", problem=message(row))
                        for row in rows
                    ]
                )

    def _select(self, kept: NDArray[np.bool_]) -> None:
        self._rows = self._rows[kept]
        self._numbers = {name: values[kept] for name, values in self._numbers.items()}
        rows = np.flatnonzero(kept).tolist()
        self._texts = {name: [texts[row] for row in rows] for name, texts in self._texts.items()}

    def _add(self, place: str, problem: str, hint: str = "") -> None:
        self.problems.append(Problem(path=f"{self.path}{place}", problem=problem, hint=hint))

    def _table(self, needed: Sequence[str], keep: str, value: str | None) -> pa.Table | None:
        """Return the columns that are there, None if the file is unreadable."""
        if not self.path.exists():
            self._add("", _MISSING, "name a Parquet file")
            return None
        try:
            present = pq.read_schema(self.path).names
            for name in needed:
                count = present.count(name)
                if count > 1:
                    self._add(f":{name}", f"{count} columns have this name", "keep one")
                elif count == 0:
                    self._add(f":{name}", "column missing", nearest(name, present))
            also = [keep] if value is not None and present.count(keep) == 1 else []
            names = [name for name in needed if present.count(name) == 1]
            return pq.read_table(self.path, columns=[*names, *also])
        except (OSError, pa.ArrowException) as error:
            hint = "name a file" if self.path.is_dir() else "deadlines are read from Parquet only"
            self._add("", f"not readable as Parquet: {error}", hint)
            return None

    def _read_numbers(self, name: str, column: pa.ChunkedArray) -> None:
        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            self._add(f":{name}", f"is {kind}, not a number", "write it as a double")
            return
        self._numbers[name] = as_floats(column)

    def _read_texts(self, name: str, column: pa.ChunkedArray) -> None:
        if not is_text(column.type):
            self._add(f":{name}", f"is {column.type}, not text", "write it as a string")
            return
        self._texts[name] = [text or "" for text in as_text(column).to_pylist()]


def _below(values: NDArray[np.float64], lowest: float) -> Callable[[int], str]:
    return lambda row: f"is {values[row]:g}, less than {lowest:g}"


def _shortened(problems: list[Problem]) -> list[Problem]:
    """Return the first problems of one kind, and how many there are more."""
    if len(problems) <= _MOST_SHOWN:
        return problems
    path = problems[0].path.partition("[")[0]
    more = Problem(path=path, problem=f"... and {len(problems) - _MOST_SHOWN} more like these")
    return [*problems[:_MOST_SHOWN], more]
