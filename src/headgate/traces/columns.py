"""The columns of a job history: which are read, and what is wrong with them as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.base.errors import nearest

NUMBERS = ("submit_s", "duration_s", "gpus")
REQUIRED = ("job_id", *NUMBERS)
ESTIMATE = "estimate_s"
VC = "vc"

Fault = tuple[str, str]
"""A problem of a column, and a hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """How a history is read.

    `queue_column` names the column of each job's queue; without one it is `queue`, if there. With
    `vc`, only the jobs with this value in the column `vc` are read. `declared` requires an estimate
    of every job, in the column `estimate_s`.
    """

    queue_column: str | None = None
    vc: str | None = None
    declared: bool = False

    def texts(self) -> dict[str, str]:
        """Return the optional columns of text to read, by attribute of a job."""
        queue = self.queue_column or "queue"
        return {"user": "user", "queue": queue, "kind": "kind", "vc": VC}

    def needed(self) -> dict[str, Fault]:
        """Return the columns that must be there, each with what to say if one is not."""
        needed = dict.fromkeys(REQUIRED, ("column missing", ""))
        if self.queue_column is not None:
            needed[self.queue_column] = ("column missing, named as that of the queues", "")
        if self.vc is not None:
            needed[VC] = (f"column missing, needed to select {self.vc!r}", "")
        if self.declared:
            hint = "use exact or learnt ones"
            needed[ESTIMATE] = ("column missing, needed for declared estimates", hint)
        return needed


def faults(schema: pa.Schema, options: TraceOptions) -> Iterator[tuple[str, Fault]]:
    """Yield columns that are missing, there twice, or of a type that a number or id never has."""
    needed = options.needed()
    for name in dict.fromkeys((*needed, *options.texts().values())):
        count = schema.names.count(name)
        if count == 0:
            if name in needed:
                problem, hint = needed[name]
                yield name, (problem, hint or nearest(name, schema.names))
        elif count > 1:
            yield name, (f"{count} columns have this name", "keep one")
        elif name == "job_id":
            if not _is_id(schema.field(name).type):
                yield name, _not_text(schema.field(name).type)
        elif name in (*NUMBERS, ESTIMATE) and not _is_number(schema.field(name).type):
            unit = ", in seconds" if name.endswith("_s") else ""
            kind = schema.field(name).type
            yield name, (f"is {kind}, not a number", f"write it as a double{unit}")


class Texts:
    """What the optional columns of text hold, over the batches added."""

    def __init__(self, options: TraceOptions) -> None:
        self._options = options
        self._nulls = Counter[str]()
        self._first_null: dict[str, int] = {}  # row by column
        self._rows = 0
        self.vcs = Counter[str]()  # rows by value, if one is to be selected

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the nulls of the next rows, and the values of `vc`."""
        for name in dict.fromkeys(self._options.texts().values()):
            if name not in batch.schema.names:
                continue
            column = batch.column(name)
            self._nulls[name] += column.null_count
            if column.null_count and name not in self._first_null:
                null = column.is_null().to_numpy(zero_copy_only=False)
                self._first_null[name] = self._rows + int(null.argmax())
            if name == VC and self._options.vc is not None and is_text(column.type):
                counts = as_text(column).drop_null().value_counts().to_pylist()
                self.vcs.update({count["values"]: count["counts"] for count in counts})
        self._rows += batch.num_rows

    def used(self, schema: pa.Schema) -> dict[str, str]:
        """Return the columns with values, by attribute of a job; a `vc` of another type is none."""
        return {
            attribute: name
            for attribute, name in self._options.texts().items()
            if name in self._nulls
            and self._nulls[name] < self._rows
            and is_text(schema.field(name).type)
        }

    def faults(self, schema: pa.Schema) -> Iterator[tuple[str, Fault]]:
        """Yield columns that cannot be used, and a `vc` to select that no row has.

        A column without any value counts as missing. `vc` may be null in some rows, or of another
        type, unless it is needed.
        """
        options, needed = self._options, self._options.needed()
        for name in sorted(self._nulls):
            nulls, kind = self._nulls[name], schema.field(name).type
            if nulls == self._rows:
                if name in needed:
                    yield name, ("is null in every row", "name a column with values")
            elif not is_text(kind):
                if name != VC or name in needed:
                    yield name, _not_text(kind)
            elif nulls and (name != VC or options.queue_column == VC):
                first = self._first_null[name]
                problem = f"is null in {nulls} of {self._rows} rows, first in row {first}"
                yield name, (problem, "fill in all rows, or leave out the column")
            elif name == VC and options.vc is not None and options.vc not in self.vcs:
                yield name, (f"no row has {options.vc!r}", nearest(options.vc, self.vcs))


def _not_text(kind: pa.DataType) -> Fault:
    return f"is {kind}, not text or an integer", "write it as a string"


def as_floats(column: pa.ChunkedArray | pa.Array) -> NDArray[np.float64]:
    """Return a column of numbers as float64, null as NaN."""
    values: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy(
        zero_copy_only=False
    )
    return values


def as_text(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return a column for which `is_text` holds as one of text."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.large_string())


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of a type can name something: text, integers, categories of them."""
    return _is_id(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _is_id(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
