"""The workloads with a stated duration: the real kernel, then sleep until that time has passed.

For comparisons where many virtual GPUs share few cores: the computing time of a task must then not
depend on the number of tasks that compute at the same time. The parameter `stated_s` gives the
duration, see `duration_s`; the others are the kernel's own. A kernel that takes longer than stated
says so in its log; `nothing` has none and writes no result.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

from headgate.workloads import kmeans, matmul, occurrence, primes, sort, sparse
from headgate.workloads.records import wrong
from headgate.workloads.task import TaskContext, TaskFunction

STATED = "stated_s"

_SPREAD = 0.5
_GOLDEN = (5**0.5 - 1) / 2


def duration_s(params: Mapping[str, Any], index: int) -> float:
    """Return the seconds of a task from its function's start: `stated_s` to 1.5 times that.

    Tasks of a stage differ, evenly spread, so that they do not all end at the same moment.
    """
    stated_s = params.get(STATED)
    if not isinstance(stated_s, int | float) or stated_s < 0:
        raise wrong(STATED, f"must be seconds, not {stated_s!r}")
    return stated_s * (1 + _SPREAD * (index * _GOLDEN % 1))


def _padded(kernel: TaskFunction) -> TaskFunction:
    @wraps(kernel)
    def run(task: TaskContext) -> None:
        started_s = time.monotonic()  # noqa: TID251  # a task runs in real time
        wanted_s = duration_s(task.params, task.index)
        params = {key: value for key, value in task.params.items() if key != STATED}
        kernel(replace(task, params=params))
        left_s = wanted_s - (time.monotonic() - started_s)  # noqa: TID251  # the same
        if left_s < 0:
            print(f"the kernel took {-left_s:.3f} s longer than stated")
        time.sleep(max(0.0, left_s))  # noqa: TID251  # padding is its purpose

    return run


def _nothing(task: TaskContext) -> None:
    """Compute nothing."""
    del task


add = _padded(sparse.add)
add_strips = _padded(matmul.add_strips)
assign = _padded(kmeans.assign)
count = _padded(occurrence.count)
find = _padded(primes.find)
merge = _padded(occurrence.merge)
merge_range = _padded(sort.merge_range)
multiply = _padded(matmul.multiply)
multiply_sparse = _padded(sparse.multiply)
nothing = _padded(_nothing)
sort_part = _padded(sort.sort_part)
update = _padded(kmeans.update)
