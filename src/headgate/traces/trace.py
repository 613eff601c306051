"""Job histories: what a simulation replays, one job after another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

BATCH_ROWS = 1 << 14


class TraceJob(NamedTuple):
    """A job: when it was submitted and how long it runs, in seconds, and its GPUs.

    Text that a history does not have is empty, `estimate_s` is NaN. `vc` is the part of the cluster
    that the job was for, `estimate_s` the time that its user declared.
    """

    job_id: str
    submit_s: float
    duration_s: float
    gpus: int
    user: str = ""
    queue: str = ""
    kind: str = ""
    vc: str = ""
    estimate_s: float = math.nan


class JobHistory(Protocol):
    """Jobs in order of time, which can be read again and again."""

    @property
    def integer_ids(self) -> bool:
        """Whether all ids are integers."""
        ...

    def __len__(self) -> int: ...

    def rows(self) -> Iterator[TraceJob]:
        """Yield the jobs in order of time, equal times in the order in which they were written."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """A job history in memory: columns of one length, in any order of time.

    `job_id` is a column of integers or, as objects, of str. `submit_s` and `duration_s` are
    float64, `gpus` int64: a part of a GPU counts as a whole one. `user`, `queue`, `kind` and `vc`,
    where there, are of str, `estimate_s` is float64; see `TraceJob`.
    """

    job_id: NDArray[Any]
    submit_s: NDArray[np.float64]
    duration_s: NDArray[np.float64]
    gpus: NDArray[np.int64]
    user: NDArray[np.object_] | None = None
    queue: NDArray[np.object_] | None = None
    kind: NDArray[np.object_] | None = None
    vc: NDArray[np.object_] | None = None
    estimate_s: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.job_id)

    @property
    def integer_ids(self) -> bool:
        """Whether all ids are integers."""
        return bool(self.job_id.dtype != object)

    def rows(self) -> Iterator[TraceJob]:
        """Yield the jobs in order of time, equal times in the order in which they were written."""
        order = np.argsort(self.submit_s, kind="stable")
        for start in range(0, len(order), BATCH_ROWS):
            some = order[start : start + BATCH_ROWS]
            yield from map(
                TraceJob,
                map(str, self.job_id[some].tolist()),
                self.submit_s[some].tolist(),
                self.duration_s[some].tolist(),
                self.gpus[some].tolist(),
                _values(self.user, some),
                _values(self.queue, some),
                _values(self.kind, some),
                _values(self.vc, some),
                _values(self.estimate_s, some, math.nan),
            )


def _values(
    column: NDArray[Any] | None, rows: NDArray[np.intp], missing: Any = ""
) -> Iterable[Any]:
    return repeat(missing, len(rows)) if column is None else column[rows].tolist()
