"""The workloads with a stated duration: the real kernel, then sleep until that time has passed.

For comparisons where many virtual GPUs share few cores: how long a task computes must then not
depend on how many compute at once. The parameter `stated_s` is the duration from the function's
start, the others are the kernel's own. A kernel that takes longer than stated says so in its log;
`nothing` has none and writes no result.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import wraps

from headgate.workloads import kmeans, matmul, occurrence, primes, sort, sparse
from headgate.workloads.records import wrong
from headgate.workloads.task import TaskContext, TaskFunction

STATED = "stated_s"


def _padded(kernel: TaskFunction) -> TaskFunction:
    @wraps(kernel)
    def run(task: TaskContext) -> None:
        started_s = time.monotonic()
        params = dict(task.params)
        stated_s = params.pop(STATED, None)
        if not isinstance(stated_s, int | float) or stated_s < 0:
            raise wrong(STATED, f"must be seconds, not {stated_s!r}")
        kernel(replace(task, params=params))
        left_s = stated_s - (time.monotonic() - started_s)
        if left_s < 0:
            print(f"the kernel took {-left_s:.3f} s longer than stated")
        time.sleep(max(0.0, left_s))

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
