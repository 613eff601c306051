"""Reads a job history: one row per job, in the order of submission."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from headgate.base.errors import Problem, SpecError, nearest

_NUMBERS = ("submit_s", "duration_s", "gpus")
_COLUMNS = ("job_id", *_NUMBERS)
_MOST_GPUS = 1_000_000  # of one job; more is a slip of units
_SHOWN = 10  # problems of one kind in one column


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Jobs as columns of one length, in the file's order.

    `job_id` is a column of integers, or of str as objects, as in the file. `submit_s` and
    `duration_s` are float64, in seconds; `gpus` is int64, a part of a GPU rounded up.
    """

    job_id: NDArray[Any]
    submit_s: NDArray[np.float64]
    duration_s: NDArray[np.float64]
    gpus: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.job_id)


def read_trace(path: Path) -> Trace:
    """Return the jobs of a Parquet file; SpecError with every problem of it otherwise.

    The error's code is `missing_file` or `bad_trace`; rows in it count from 0.
    """
    table, problems = _read(path)
    for name in table.column_names:
        column = table[name].combine_chunks()
        bad_rows = _bad_ids(column) if name == "job_id" else _bad_numbers(name, column)
        for rows, message in bad_rows:
            problems += _problems(f"{path}:{name}", rows, message)
    if problems:
        raise SpecError(problems, code="bad_trace")
    submit_s, duration_s, gpus = (_as_floats(table[name]) for name in _NUMBERS)
    return Trace(
        job_id=table["job_id"].to_numpy(),
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=np.ceil(gpus).astype(np.int64),
    )


def _read(path: Path) -> tuple[pa.Table, list[Problem]]:
    """Return the columns that are there and of the right type, and what is wrong with the file."""
    if not path.exists():
        problem = Problem(
            path=str(path), problem="no such file", hint="name a Parquet file of jobs"
        )
        raise SpecError([problem], code="missing_file")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            wrong = dict(_bad_columns(file.schema_arrow))
            table = file.read([name for name in _COLUMNS if name not in wrong])
            table.validate(full=True)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        hint = "name a file" if path.is_dir() else "is it whole?"
        problem = Problem(path=str(path), problem=f"not readable as Parquet: {error}", hint=hint)
        raise SpecError([problem], code="bad_trace") from error
    problems = [
        Problem(path=f"{path}:{name}", problem=problem, hint=hint)
        for name, (problem, hint) in wrong.items()
    ]
    if table.num_rows == 0 and not problems:
        problems.append(Problem(path=str(path), problem="has no jobs", hint="one row is one job"))
    return table, problems


def _bad_columns(schema: pa.Schema) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield (name, (problem, hint)) of columns that are missing or cannot be used."""
    for name in _COLUMNS:
        count = schema.names.count(name)
        if count == 0:
            yield name, ("column missing", nearest(name, schema.names))
            continue
        kind = schema.types[schema.names.index(name)]
        if count > 1:
            yield name, (f"{count} columns have this name", "keep one")
        elif name == "job_id" and not _is_id(kind):
            yield name, (f"is {kind}, not text or an integer", "write it as a string")
        elif name != "job_id" and not _is_number(kind):
            unit = ", in seconds" if name.endswith("_s") else ""
            yield name, (f"is {kind}, not a number", f"write it as a double{unit}")


def _is_id(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _as_floats(column: pa.ChunkedArray | pa.Array) -> NDArray[np.float64]:
    values: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy(
        zero_copy_only=False
    )
    return values


_BadRows = Iterator[tuple[NDArray[np.intp], Callable[[int], str]]]


def _bad_numbers(name: str, column: pa.Array) -> _BadRows:
    """Yield, per kind of problem, its rows and the message for one row."""
    values = _as_floats(column)
    null = column.is_null().to_numpy(zero_copy_only=False)
    yield np.flatnonzero(null), lambda row: "is null"
    yield np.flatnonzero(np.isnan(values) & ~null), lambda row: "is not a number (NaN)"
    yield np.flatnonzero(np.isinf(values)), lambda row: "is infinite"
    yield (
        np.flatnonzero(np.isfinite(values) & (values < 0)),
        lambda row: f"is negative ({values[row]:g})",
    )
    if name == "gpus":
        yield (
            np.flatnonzero(np.isfinite(values) & (values > _MOST_GPUS)),
            lambda row: f"is {values[row]:g}; one job may have {_MOST_GPUS} GPUs at most",
        )


def _bad_ids(column: pa.Array) -> _BadRows:
    """Yield rows without an id, and rows whose id an earlier row has."""
    yield (
        np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)),
        lambda row: "is null",
    )
    ids = column.to_pylist()
    first: dict[Any, int] = {}
    repeated = [
        row for row, job in enumerate(ids) if job is not None and first.setdefault(job, row) != row
    ]
    yield (
        np.array(repeated, np.intp),
        lambda row: f"'{ids[row]}' is the id of row {first[ids[row]]} too",
    )


def _problems(place: str, rows: NDArray[np.intp], message: Callable[[int], str]) -> list[Problem]:
    problems = [Problem(path=f"{place}[{row}]", problem=message(row)) for row in rows[:_SHOWN]]
    if len(rows) > _SHOWN:
        problems.append(
            Problem(path=place, problem=f"... and {len(rows) - _SHOWN} more like these")
        )
    return problems
