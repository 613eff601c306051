"""Histories as text: our columns as CSV, or what `sacct --parsable2` prints."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.base.errors import Problem, SpecError, nearest
from headgate.traces.columns import ESTIMATE, REQUIRED

_PARQUET = (".parquet", ".pq")
_TEXT = (".csv", ".tsv", ".txt", ".psv")
_DELIMITERS = "|\t;,"
_HEAD_BYTES = 1 << 16
_SHOWN = 10  # problems of one kind in one column
_MOST_FIELD = 1 << 20  # characters

_ELAPSED = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?")
_GPUS = re.compile(r"gres/gpu(:[^=,]*)?=(\d+)")
_UNENDED = ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "REQUEUED", "RESIZING")
_UNKNOWN = ("", "Unknown", "None", "N/A")
_UNLIMITED = ("UNLIMITED", "Partition_Limit")
EXPORT = (
    "sacct --allusers --parsable2 --allocations --starttime 2026-01-01 --format "
    "JobID,Submit,Elapsed,End,State,AllocTRES,User,Partition,JobName,Timelimit"
)
"""The command that exports a history of Slurm."""

_SACCT = {
    "job_id": ("JobID", "JobIDRaw"),
    "submit_s": ("Submit",),
    "duration_s": ("ElapsedRaw", "Elapsed"),
    "gpus": ("AllocTRES", "AllocGRES", "ReqTRES"),
}
_SACCT_MORE = {
    "user": ("User",),
    "queue": ("Partition",),
    "kind": ("JobName",),
    ESTIMATE: ("TimelimitRaw", "Timelimit"),
    "state": ("State",),
    "end": ("End",),
}


def is_text(path: Path) -> bool:
    """Return whether a history is to be read as text, by its name, else by how it begins."""
    if not path.is_file() or path.suffix.lower() in _PARQUET:
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head[:4] == b"PAR1":
        return False
    if path.suffix.lower() in _TEXT:
        return True
    first = head.partition(b"\n")[0].decode(errors="replace")
    return any(name in first for name in ("JobID", "job_id"))


@dataclass(slots=True)
class _Problems:
    """What is wrong, the first of each kind in full."""

    path: Path
    texts: dict[tuple[str, str], list[Problem]] = field(default_factory=dict)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def note(self, line: int, column: str, kind: str, problem: str, hint: str = "") -> None:
        """Note a problem in a column of a line; those of one kind are counted beyond the first."""
        found = self.texts.setdefault((column, kind), [])
        self.counts[column, kind] = self.counts.get((column, kind), 0) + 1
        if len(found) < _SHOWN:
            place = f"{self.path}:{line}" + (f": {column}" if column else "")
            found.append(Problem(path=place, problem=problem, hint=hint))

    def all(self) -> list[Problem]:
        """Return all problems, in the order in which their kinds were found."""
        found = []
        for key, texts in self.texts.items():
            found += texts
            if more := self.counts[key] - len(texts):
                text = f"... and {more} more like these"
                found.append(Problem(path=f"{self.path}: {key[0]}".rstrip(": "), problem=text))
        return found


@dataclass(frozen=True, slots=True)
class _Row:
    """One line: its number, and its fields by the names of the header."""

    line: int
    cells: Mapping[str, str]


def text_history(path: Path) -> tuple[pa.Buffer, tuple[str, ...]]:
    """Return a history of text in the columns of a Parquet file, and notes on what was left out.

    Raises SpecError with every problem, by line and column; the first line is 1. All is in memory.
    """
    problems = _Problems(path)
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            csv.field_size_limit(_MOST_FIELD)
            first = file.readline()
            delimiter = next((mark for mark in _DELIMITERS if mark in first), ",")
            header = next(csv.reader([first], delimiter=delimiter), [])
            of_slurm = any(name in header for name in _SACCT["job_id"])
            if faults := [*_header_faults(path, header, of_slurm=of_slurm)]:
                raise SpecError(faults, code="bad_trace")
            rows = _rows(csv.reader(file, delimiter=delimiter), header, problems)
            made = _Slurm(header, problems) if of_slurm else _Own(header, problems)
            for row in rows:
                made.add(row)
    except (OSError, csv.Error) as error:
        problem = Problem(path=str(path), problem=f"not readable as text: {error}")
        raise SpecError([problem], code="bad_trace") from error
    if found := problems.all():
        raise SpecError(found, code="bad_trace")
    sink = pa.BufferOutputStream()
    pq.write_table(made.table(), sink)
    return sink.getvalue(), tuple(made.notes())


def _header_faults(path: Path, header: Sequence[str], *, of_slurm: bool) -> Iterator[Problem]:
    """Yield what is wrong with the first line."""
    for name in sorted({name for name in header if name and header.count(name) > 1}):
        yield Problem(path=f"{path}:1: {name}", problem="2 columns or more have this name")
    if of_slurm:
        for names in _SACCT.values():
            if not any(name in header for name in names):
                problem = Problem(path=f"{path}:1: {names[0]}", problem="column missing")
                yield Problem(path=problem.path, problem=problem.problem, hint=f"export: {EXPORT}")
        return
    for name in REQUIRED:
        if name not in header:
            hint = nearest(name, header) or "the first line names the columns"
            if "|" in "".join(header) or len(header) < len(REQUIRED):
                hint = "the first line names the columns: export sacct without --noheader"
            yield Problem(path=f"{path}:1: {name}", problem="column missing", hint=hint)


def _rows(
    lines: Iterable[Sequence[str]], header: Sequence[str], problems: _Problems
) -> Iterator[_Row]:
    for number, cells in enumerate(lines, 2):
        if not any(cells):
            continue
        if len(cells) != len(header):
            text = f"has {len(cells)} fields, the header has {len(header)}"
            problems.note(number, "", "fields", text, "a name may contain the delimiter: quote it")
            continue
        yield _Row(number, dict(zip(header, (cell.strip() for cell in cells), strict=True)))


class _History:
    """The columns of a history, row by row."""

    def __init__(self, header: Sequence[str], problems: _Problems) -> None:
        self.header, self.problems = header, problems
        self.columns: dict[str, list[str | float | None]] = {name: [] for name in REQUIRED}
        self.left_out: dict[str, int] = {}
        self.dated = False  # whether times of submission are dates
        self._first: dict[str, int] = {}  # lines, by id

    def once(self, row: _Row, name: str) -> bool:
        """Return whether the id of a row is there, and no other's."""
        job_id = row.cells[name]
        if not job_id:
            self.problems.note(row.line, name, "empty", "is empty")
            return False
        first = self._first.setdefault(job_id, row.line)
        if first != row.line:
            text = f"'{job_id}' is the id of line {first} too"
            self.problems.note(row.line, name, "repeated", text, "keep one row a job")
        return first == row.line

    def seconds(self, row: _Row, name: str, *, unit_s: float = 1.0) -> float | None:
        """Return a time span, as seconds or `[days-]hours:minutes:seconds`."""
        text = row.cells[name]
        parts = _ELAPSED.fullmatch(text)
        if parts is not None:
            days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
            return 86400.0 * days + 3600 * hours + 60 * minutes + seconds
        return self.number(row, name, unit_s, "seconds, or [days-]hours:minutes:seconds")

    def number(self, row: _Row, name: str, unit: float, hint: str) -> float | None:
        """Return a number of 0 or more."""
        text = row.cells[name]
        try:
            value = float(text)
        except ValueError:
            said = f"'{text}' is no number" if text else "is empty"
            self.problems.note(row.line, name, "number", said, hint)
            return None
        if not math.isfinite(value) or value < 0:
            self.problems.note(row.line, name, "range", f"is {text}, not 0 or more", hint)
            return None
        return value * unit

    def submitted(self, row: _Row, name: str) -> float | None:
        """Return a time of submission: seconds, or a date of ISO 8601, without a zone of UTC."""
        text = row.cells[name]
        if "T" in text or "-" in text[1:]:
            try:
                moment = datetime.fromisoformat(text)
            except ValueError:
                hint = "write it as 2026-01-01T10:00:00"
                self.problems.note(row.line, name, "date", f"'{text}' is no time", hint)
                return None
            self.dated = True
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        return self.number(row, name, 1.0, "seconds, or a time as 2026-01-01T10:00:00")

    def table(self) -> pa.Table:
        """Return the columns; of dates, the first is time 0."""
        columns = dict(self.columns)
        times = [float(at) for at in columns["submit_s"] if at is not None]
        if self.dated and times:
            columns["submit_s"] = [at - min(times) for at in times]
        numbers = ("submit_s", "duration_s", "gpus", ESTIMATE)
        kinds = {name: pa.float64() if name in numbers else pa.string() for name in columns}
        return pa.table({name: pa.array(columns[name], kinds[name]) for name in columns})

    def notes(self) -> Iterator[str]:
        """Yield how many jobs were left out, and why."""
        for why, count in self.left_out.items():
            yield f"{count} {'job' if count == 1 else 'jobs'} left out: {why}"


class _Own(_History):
    """Our own columns."""

    def add(self, row: _Row) -> None:
        """Add a line."""
        self.once(row, "job_id")
        values = {
            "job_id": row.cells["job_id"],
            "submit_s": self.submitted(row, "submit_s"),
            "duration_s": self.seconds(row, "duration_s"),
            "gpus": self.number(row, "gpus", 1.0, "how many GPUs it held"),
        }
        for name in self.header:
            if name in values or not name:
                continue
            empty = not row.cells[name]
            if name == ESTIMATE:
                values[name] = None if empty else self.seconds(row, name)
            else:
                values[name] = None if empty else row.cells[name]
        for name, value in values.items():
            self.columns.setdefault(name, []).append(value)


class _Slurm(_History):
    """The columns of sacct: allocations that have ended and held GPUs."""

    def __init__(self, header: Sequence[str], problems: _Problems) -> None:
        super().__init__(header, problems)
        both = _SACCT | _SACCT_MORE
        self._name = {
            to: next(name for name in names if name in header)
            for to, names in both.items()
            if any(name in header for name in names)
        }
        for to in ("user", "queue", "kind", ESTIMATE):
            if to in self._name:
                self.columns[to] = []

    def add(self, row: _Row) -> None:
        """Add a line, unless it is a step, has not ended, or is of a job without GPUs."""
        name, cells = self._name, row.cells
        if "." in cells[name["job_id"]]:
            return  # a step of a job
        state = cells[name["state"]].split(" ")[0] if "state" in name else ""
        if state in _UNENDED or ("end" in name and cells[name["end"]] in _UNKNOWN):
            self._leave_out("they have not ended")
            return
        gpus = _gpus(cells[name["gpus"]])
        if not gpus:
            self._leave_out("they held no GPU, or never started")
            return
        if not self.once(row, name["job_id"]):
            return
        values: dict[str, str | float | None] = {
            "job_id": cells[name["job_id"]],
            "submit_s": self.submitted(row, name["submit_s"]),
            "duration_s": self.seconds(row, name["duration_s"]),
            "gpus": float(gpus),
        }
        values |= {to: cells[name[to]] for to in ("user", "queue", "kind") if to in name}
        if ESTIMATE in name:
            values[ESTIMATE] = self._limit(row, name[ESTIMATE])
        for to, value in values.items():
            self.columns[to].append(value)

    def _limit(self, row: _Row, name: str) -> float | None:
        """Return a time limit in seconds, None for none; Slurm gives the raw ones in minutes."""
        if row.cells[name] in (*_UNLIMITED, *_UNKNOWN):
            return None
        return self.seconds(row, name, unit_s=60.0)

    def _leave_out(self, why: str) -> None:
        self.left_out[why] = self.left_out.get(why, 0) + 1

    def table(self) -> pa.Table:
        """Return the columns; a job without a limit declares the longest time of all."""
        if ESTIMATE in self.columns:
            times = [*self.columns[ESTIMATE], *self.columns["duration_s"]]
            longest = max((float(time) for time in times if time is not None), default=1.0)
            limits = self.columns[ESTIMATE]
            self.columns[ESTIMATE] = [longest if limit is None else limit for limit in limits]
        return super().table()


def _gpus(tres: str) -> int:
    """Return the GPUs of a list such as `cpu=8,gres/gpu:h100=4,gres/gpu=4`."""
    found = _GPUS.findall(tres)
    total = [int(count) for model, count in found if not model]
    return total[0] if total else sum(int(count) for _, count in found)
