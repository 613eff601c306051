"""Reads a job history from a Parquet file: one row per job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.base.errors import Problem, SpecError, nearest
from headgate.traces.check import Check, as_floats
from headgate.traces.trace import BATCH_ROWS, Row, Trace

_NUMBERS = ("submit_s", "duration_s", "gpus")
_COLUMNS = ("job_id", *_NUMBERS)
_BUFFER_BYTES = 1 << 18  # of a column's pages, read ahead


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TraceFile:
    """The jobs of a Parquet file that was checked; read in batches at every request.

    A file whose rows are not in order of time is read whole each time, and sorted.
    """

    path: Path
    jobs: int
    integer_ids: bool
    in_order: bool
    _version: tuple[int, ...] = field(repr=False)  # of the file that was checked

    def __len__(self) -> int:
        return self.jobs

    def rows(self) -> Iterator[Row]:
        """Yield the jobs in order of time, equal times in the order of the rows.

        Raises SpecError when the file is no longer the one that was checked.
        """
        if not self.in_order:
            yield from self.read().rows()
            return
        for batch in self._batches():
            yield from _trace([batch]).rows()

    def read(self) -> Trace:
        """Return all jobs, in the file's order."""
        return _trace([*self._batches()])

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with _opened(self.path) as file:
            if _version(self.path) != self._version:
                problem = Problem(
                    path=str(self.path),
                    problem="has changed since it was checked",
                    hint="leave it unchanged while the simulation reads it",
                )
                raise SpecError([problem], code="bad_trace")
            yield from _batches(file, _COLUMNS)


def read_trace(path: Path) -> Trace:
    """Return the jobs of a Parquet file, all in memory; see `open_trace`."""
    return open_trace(path).read()


def open_trace(path: Path) -> TraceFile:
    """Check a Parquet file of jobs, in batches, and return it; raise SpecError with every problem.

    The error's code is `missing_file` or `bad_trace`; rows in it count from 0. Eight bytes a job
    are held during the check.
    """
    if not path.exists():
        problem = Problem(
            path=str(path), problem="no such file", hint="name a Parquet file of jobs"
        )
        raise SpecError([problem], code="missing_file")
    with _opened(path) as file:
        version = _version(path)
        schema = file.schema_arrow
        wrong = dict(_bad_columns(schema))
        check = Check(path)
        for batch in _batches(file, [name for name in _COLUMNS if name not in wrong]):
            check.add(batch)
        if len(check.repeated_hashes):
            for batch in _batches(file, ["job_id"]):
                check.compare_ids(batch)
    problems = [
        Problem(path=f"{path}:{name}", problem=problem, hint=hint)
        for name, (problem, hint) in wrong.items()
    ]
    if check.rows == 0 and not problems:
        problems.append(Problem(path=str(path), problem="has no jobs", hint="one row is one job"))
    if problems := problems + check.problems():
        raise SpecError(problems, code="bad_trace")
    return TraceFile(
        path=path,
        jobs=check.rows,
        integer_ids=bool(pa.types.is_integer(schema.field("job_id").type)),
        in_order=check.in_order,
        _version=version,
    )


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a file; what cannot be read of it, now or later, is a SpecError."""
    try:
        with pq.ParquetFile(
            path, page_checksum_verification=True, pre_buffer=False, buffer_size=_BUFFER_BYTES
        ) as file:
            yield file
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        hint = "name a file" if path.is_dir() else "is it whole?"
        problem = Problem(path=str(path), problem=f"not readable as Parquet: {error}", hint=hint)
        raise SpecError([problem], code="bad_trace") from error


def _version(path: Path) -> tuple[int, ...]:
    """Return what differs when a file is replaced or written to."""
    at = path.stat()
    return at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns


def _batches(file: pq.ParquetFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if not columns:
        return
    for batch in file.iter_batches(BATCH_ROWS, columns=list(columns)):
        pa.Table.from_batches([batch]).validate(full=True)
        yield batch


def _trace(batches: Sequence[pa.RecordBatch]) -> Trace:
    table = pa.Table.from_batches(batches)
    submit_s, duration_s, gpus = (as_floats(table[name]) for name in _NUMBERS)
    return Trace(
        job_id=table["job_id"].to_numpy(),
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=np.ceil(gpus).astype(np.int64),
    )


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
