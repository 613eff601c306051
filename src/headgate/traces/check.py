"""What is wrong with the rows of a job history, found batch by batch."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.base.errors import Problem
from headgate.traces.columns import ESTIMATE, NUMBERS, as_floats

CHECKED = ("job_id", *NUMBERS, ESTIMATE)
"""Columns whose rows are checked one by one."""

_MOST_GPUS = 1_000_000  # of one job; more is a slip of units
_MOST_S = 1e15  # likewise; far from it, sums of times overflow
_SHOWN = 10  # problems of one kind in one column
_REPEATED = 1  # number of the kind "an earlier row has the same id"

_BadRows = Iterator[tuple[NDArray[np.intp], Callable[[int], str]]]


class Check:
    """The problems of the batches added, and whether their rows are in order of time.

    Holds 8 bytes a row, a hash of its id. Rows whose hash others have too are compared by their
    ids themselves, in a second pass that is needed only where `repeated_hashes` is not empty.
    """

    def __init__(self, path: Path) -> None:
        self.rows = 0
        self.in_order = True
        self._path = path
        self._latest_s = -np.inf
        self._hashes = array("q")
        self._first: dict[Any, int] = {}  # row by id, of ids whose hash is repeated
        self._compared = 0  # rows
        self._texts: dict[tuple[str, int], list[tuple[int, str]]] = {}  # the first of each kind
        self._counts: dict[tuple[str, int], int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Check the ids and numbers of the next rows."""
        for name in batch.schema.names:
            if name not in CHECKED:
                continue
            column = batch.column(name)
            bad_rows = self._bad_ids(column) if name == "job_id" else _bad_numbers(name, column)
            for number, (rows, message) in enumerate(bad_rows):
                self._note(name, number, self.rows, rows, message)
        if "submit_s" in batch.schema.names and batch.num_rows:
            times_s = as_floats(batch.column("submit_s"))
            in_order = times_s[0] >= self._latest_s and (times_s[1:] >= times_s[:-1]).all()
            self.in_order &= bool(in_order)
            self._latest_s = times_s[-1]
        self.rows += batch.num_rows

    @cached_property
    def repeated_hashes(self) -> NDArray[np.int64]:
        """Hashes of ids that several rows have; complete once all batches were added."""
        hashes = np.frombuffer(self._hashes, np.int64) if self._hashes else np.zeros(0, np.int64)
        hashes.sort()
        return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])

    def compare_ids(self, batch: pa.RecordBatch) -> None:
        """Find, in the second pass, rows of the next batch whose id an earlier row has."""
        ids, base, first = batch.column("job_id").to_pylist(), self._compared, self._first
        suspects = np.flatnonzero(np.isin(_hashes(ids), self.repeated_hashes)).tolist()
        repeated = [
            row
            for row in suspects
            if ids[row] is not None and first.setdefault(ids[row], base + row) != base + row
        ]
        self._note(
            "job_id",
            _REPEATED,
            base,
            np.array(repeated, np.intp),
            lambda row: f"'{ids[row]}' is the id of row {first[ids[row]]} too",
        )
        self._compared += len(ids)

    def problems(self) -> list[Problem]:
        """Return what was found, by column and kind of problem, the first of each kind in full."""
        found = []
        for (name, number), texts in self._texts.items():
            place, count = f"{self._path}:{name}", self._counts[name, number]
            found += [Problem(path=f"{place}[{row}]", problem=text) for row, text in texts]
            if count > len(texts):
                more = f"... and {count - len(texts)} more like these"
                found.append(Problem(path=place, problem=more))
        return found

    def _note(
        self,
        name: str,
        number: int,
        base: int,
        rows: NDArray[np.intp],
        message: Callable[[int], str],
    ) -> None:
        texts = self._texts.setdefault((name, number), [])
        texts += [(base + row, message(row)) for row in rows[: _SHOWN - len(texts)].tolist()]
        self._counts[name, number] = self._counts.get((name, number), 0) + len(rows)

    def _bad_ids(self, column: pa.Array) -> _BadRows:
        """Yield rows without an id; keep the hashes, and a place for ids that are repeated."""
        self._hashes.frombytes(_hashes(column.to_pylist()).tobytes())
        null = column.is_null().to_numpy(zero_copy_only=False)
        yield np.flatnonzero(null), lambda row: "is null"
        yield np.zeros(0, np.intp), lambda row: ""


def _hashes(ids: list[Any]) -> NDArray[np.int64]:
    """Return a hash of each id: the same for equal ids, in this process."""
    return np.fromiter(map(hash, ids), np.int64, len(ids))


def _bad_numbers(name: str, column: pa.Array) -> _BadRows:
    """Yield, per kind of problem, its rows and what to say of one."""
    values = as_floats(column)
    null = column.is_null().to_numpy(zero_copy_only=False)
    yield np.flatnonzero(null), lambda row: "is null"
    yield np.flatnonzero(np.isnan(values) & ~null), lambda row: "is not a number (NaN)"
    yield np.flatnonzero(np.isinf(values)), lambda row: "is infinite"
    yield (
        np.flatnonzero(np.isfinite(values) & (values < 0)),
        lambda row: f"is negative ({values[row]:g})",
    )
    if name == ESTIMATE:
        yield np.flatnonzero(values == 0), lambda row: "is 0; an estimate is longer than that"
    most, limit = (
        (_MOST_GPUS, f"one job may have {_MOST_GPUS} GPUs at most")
        if name == "gpus"
        else (_MOST_S, f"times are at most {_MOST_S:g} s")
    )
    yield (
        np.flatnonzero(np.isfinite(values) & (values > most)),
        lambda row: f"is {values[row]:g}; {limit}",
    )
