"""Reads a job history from a file: one row per job."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.base.errors import Problem, SpecError
from headgate.traces.check import Check
from headgate.traces.columns import (
    ESTIMATE,
    NUMBERS,
    REQUIRED,
    VC,
    Texts,
    TraceOptions,
    as_floats,
    as_text,
    faults,
)
from headgate.traces.texts import is_text, text_history
from headgate.traces.trace import BATCH_ROWS, Trace, TraceJob

_BUFFER_BYTES = 1 << 18  # of a column's pages, read ahead


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TraceFile:
    """The jobs of a file that was checked; read in batches at every request.

    A file whose rows are not in order of time is read whole each time, and sorted. `jobs` counts
    the selected ones.
    """

    path: Path
    jobs: int
    integer_ids: bool
    in_order: bool
    texts: Mapping[str, str]  # optional columns of text, by attribute of a job
    options: TraceOptions
    _version: tuple[int, ...] = field(repr=False)  # of the file that was checked
    notes: tuple[str, ...] = ()  # on what was left out of a history of text
    _content: pa.Buffer | None = field(default=None, repr=False)  # of one, as Parquet

    def __len__(self) -> int:
        return self.jobs

    def rows(self) -> Iterator[TraceJob]:
        """Yield the jobs in order of time, equal times in the order of the rows.

        Raises SpecError when the file is no longer the one that was checked.
        """
        if not self.in_order:
            yield from self.read().rows()
            return
        for batch in self._batches():
            yield from self._trace([batch]).rows()

    def read(self) -> Trace:
        """Return all jobs, in the file's order."""
        return self._trace([*self._batches()])

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with _opened(self.path, self._content) as file:
            if _version(self.path) != self._version:
                problem = Problem(
                    path=str(self.path),
                    problem="has changed since it was checked",
                    hint="leave it unchanged while the simulation reads it",
                )
                raise SpecError([problem], code="bad_trace")
            columns = [*REQUIRED, *self.texts.values()] + [ESTIMATE] * self.options.declared
            for batch in _batches(file, [*dict.fromkeys(columns)]):
                if self.options.vc is None:
                    yield batch
                else:
                    yield batch.filter(pc.equal(as_text(batch.column(VC)), self.options.vc))

    def _trace(self, batches: Sequence[pa.RecordBatch]) -> Trace:
        table = pa.Table.from_batches(batches)
        submit_s, duration_s, gpus = (as_floats(table[name]) for name in NUMBERS)
        texts = {
            attribute: pc.fill_null(as_text(table[name]), "").to_numpy()
            for attribute, name in self.texts.items()
        }
        return Trace(
            job_id=table["job_id"].to_numpy(),
            submit_s=submit_s,
            duration_s=duration_s,
            gpus=np.ceil(gpus).astype(np.int64),
            estimate_s=as_floats(table[ESTIMATE]) if self.options.declared else None,
            **texts,
        )


def read_trace(path: Path, options: TraceOptions | None = None) -> Trace:
    """Return the jobs of a file, all in memory; see `open_trace`."""
    return open_trace(path, options).read()


def open_trace(path: Path, options: TraceOptions | None = None) -> TraceFile:
    """Check a file of jobs, in batches, and return it; raise SpecError with every problem.

    It is Parquet, or text (`traces.texts`), which is read into memory. The error's code is
    `missing_file` or `bad_trace`; rows of Parquet count from 0. Eight bytes a job are held during
    the check. All rows are checked, those that are not selected too.
    """
    options = options or TraceOptions()
    if not path.exists():
        problem = Problem(
            path=str(path),
            problem="no such file",
            hint="name a file of jobs: Parquet, CSV, or the output of sacct",
        )
        raise SpecError([problem], code="missing_file")
    content, notes = text_history(path) if is_text(path) else (None, ())
    with _opened(path, content) as file:
        version = _version(path)
        schema = file.schema_arrow
        wrong = dict(faults(schema, options))
        check, texts = Check(path), Texts(options)
        for batch in _batches(file, _readable(schema, options, wrong)):
            check.add(batch)
            texts.add(batch)
        if len(check.repeated_hashes):
            for batch in _batches(file, ["job_id"]):
                check.compare_ids(batch)
    if check.rows:
        wrong |= dict(texts.faults(schema))
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
        jobs=check.rows if options.vc is None else texts.vcs[options.vc],
        integer_ids=bool(pa.types.is_integer(schema.field("job_id").type)),
        in_order=check.in_order,
        texts=texts.used(schema),
        options=options,
        _version=version,
        notes=notes,
        _content=content,
    )


def _readable(schema: pa.Schema, options: TraceOptions, wrong: Container[str]) -> list[str]:
    """Return the columns to check, less those with a problem already."""
    names = dict.fromkeys((*options.needed(), *options.texts().values()))
    return [name for name in names if name in schema.names and name not in wrong]


@contextmanager
def _opened(path: Path, content: pa.Buffer | None) -> Iterator[pq.ParquetFile]:
    """Open a file, or its content; what cannot be read of it, now or later, is a SpecError."""
    source = path if content is None else pa.BufferReader(content)
    try:
        with pq.ParquetFile(
            source, page_checksum_verification=True, pre_buffer=False, buffer_size=_BUFFER_BYTES
        ) as file:
            yield file
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        hint = "name a file" if path.is_dir() else "is it whole?"
        problem = Problem(path=str(path), problem=f"not readable as Parquet: {error}", hint=hint)
        raise SpecError([problem], code="bad_trace") from error


def _version(path: Path) -> tuple[int, ...]:
    """Return what differs when a file is replaced or written to."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _batches(file: pq.ParquetFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if not columns:
        return
    for batch in file.iter_batches(BATCH_ROWS, columns=list(columns)):
        pa.Table.from_batches([batch]).validate(full=True)
        yield batch
