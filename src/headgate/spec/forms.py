"""Forms of jobs: which tasks a job has, what each of them reads, and what it comes after.

Each function returns the tasks by ordinal, made of a model `task` that says what one of them needs.
A task reads first what it was given, then the results of earlier tasks. They chain: what one
returns is what `merged` takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headgate.model import Task, result_id, result_ids

MOST_TASKS = 1_000_000
"""Tasks of a job, shards that they read, and results that its `reduce` tasks read, at most."""


def excess(groups: int, *, width: int = 1, iterations: int = 0, merges: int = 0) -> str:
    """Return which limit a job of groups of `width` shards (or cells) exceeds, "" for none.

    Called before any task is made: a short file may describe more tasks than fit in memory.
    """
    shards = groups * width * max(1, iterations)
    tasks = (groups + 1) * iterations if iterations else groups
    reads = (1 if iterations else groups) * merges
    if tasks > MOST_TASKS:
        return f"these are {tasks} tasks, and a job has at most {MOST_TASKS}"
    if shards > MOST_TASKS:
        return f"its tasks read {shards} shards, and those of a job read at most {MOST_TASKS}"
    if reads > MOST_TASKS:
        return (
            f"its reduce tasks read {reads} results, and those of a job read at most {MOST_TASKS}"
        )
    return ""


def mapped(reads: Sequence[tuple[str, ...]], *, task: Task) -> tuple[Task, ...]:
    """Return y = F(x): one task for each group of shards, one object for all that read nothing."""
    return tuple(task if row == task.reads else replace(task, reads=row) for row in reads)


def merged(
    job: str,
    tasks: Sequence[Task],
    *,
    count: int,
    task: Task,
    partitioned: bool = False,
    of: Sequence[int] | None = None,
) -> tuple[Task, ...]:
    """Return some tasks and `count` more, each after all of them and reading all their results.

    `partitioned`: the results come in `count` parts, and merge task i reads part i of each. `of`
    are the ordinals of the tasks that are merged where not all are; no other task may read a
    result that comes in parts.
    """
    sources = tuple(range(len(tasks)) if of is None else of)
    parts = count if partitioned else 1
    before = list(tasks)
    for ordinal in sources if partitioned else ():
        before[ordinal] = replace(before[ordinal], parts=parts)
    results = [result_ids(job, ordinal, before[ordinal].parts) for ordinal in sources]
    if partitioned:
        reads = list(zip(*results, strict=True))
    else:
        reads = [tuple(result for row in results for result in row)] * count
    return (*before, *(replace(task, reads=row, after=sources) for row in reads))


def wavefront(
    job: str,
    rows: int,
    columns: int,
    *,
    task: Task,
    reads: Sequence[tuple[str, ...]] | None = None,
) -> tuple[Task, ...]:
    """Return z[i,j] = G(z[i-1,j], z[i,j-1]): a task for every cell, cell (i, j) is i * columns + j.

    It comes after the cell above and the one to the left, where there are such, and reads their
    results, in this order. `reads` are the other inputs of the cells, row by row.
    """
    cells = []
    for ordinal in range(rows * columns):
        i, j = divmod(ordinal, columns)
        above = (ordinal - columns,) if i else ()
        left = (ordinal - 1,) if j else ()
        results = tuple(result_id(job, earlier) for earlier in (*above, *left))
        own = reads[ordinal] if reads is not None else ()
        cells.append(replace(task, reads=(*own, *results), after=(*above, *left)))
    return tuple(cells)


def iterated(
    job: str, reads: Sequence[tuple[str, ...]], iterations: int, *, task: Task, update: Task
) -> tuple[Task, ...]:
    """Return `iterations` rounds, each of one task for each group of shards and then an update.

    The update of a round comes after its tasks and reads all their results; the tasks of the next
    round come after it and also read its result. So with n groups, task i of round k is
    k * (n + 1) + i, the update of round k is k * (n + 1) + n, and the last task is the last update.
    """
    width = len(reads) + 1
    tasks: list[Task] = []
    for first in range(0, iterations * width, width):
        before = (first - 1,) if first else ()
        state = tuple(result_id(job, ordinal) for ordinal in before)
        tasks += (replace(task, reads=(*row, *state), after=before) for row in reads)
        members = tuple(range(first, first + len(reads)))
        results = tuple(result_id(job, ordinal) for ordinal in members)
        tasks.append(replace(update, reads=results, after=members))
    return tuple(tasks)
