"""Job histories: what a simulation replays, one job after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

BATCH_ROWS = 1 << 14

Row = tuple[str, float, float, int]
"""A job: its id, when it was submitted and how long it runs, in seconds, and its GPUs."""


class JobHistory(Protocol):
    """Jobs in order of time, which can be read again and again."""

    @property
    def integer_ids(self) -> bool:
        """Whether all ids are integers."""
        ...

    def __len__(self) -> int: ...

    def rows(self) -> Iterator[Row]:
        """Yield the jobs in order of time, equal times in the order in which they were written."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """A job history in memory: columns of one length, in any order of time.

    `job_id` is a column of integers or, as objects, of str. `submit_s` and `duration_s` are
    float64, `gpus` int64: a part of a GPU counts as a whole one.
    """

    job_id: NDArray[Any]
    submit_s: NDArray[np.float64]
    duration_s: NDArray[np.float64]
    gpus: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.job_id)

    @property
    def integer_ids(self) -> bool:
        """Whether all ids are integers."""
        return bool(self.job_id.dtype != object)

    def rows(self) -> Iterator[Row]:
        """Yield the jobs in order of time, equal times in the order in which they were written."""
        order = np.argsort(self.submit_s, kind="stable")
        for start in range(0, len(order), BATCH_ROWS):
            some = order[start : start + BATCH_ROWS]
            yield from zip(
                map(str, self.job_id[some].tolist()),
                self.submit_s[some].tolist(),
                self.duration_s[some].tolist(),
                self.gpus[some].tolist(),
                strict=True,
            )
