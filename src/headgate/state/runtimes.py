"""What is learnt from the run times of tasks: classes of tasks, and the statistics of each.

A sample is the natural logarithm of a task's computing time in seconds, or, if its job declares a
time, of the ratio of the computing time to that. A task has a chain of classes, each wider than the
one before, and its sample counts in all of them:

1. the tasks of its kind (`_kind`) of its user, in its queue, with its width: the GPUs of its gang,
   or of the task if it is in none;
2. the tasks of its kind, of all users. Without a named kind, these are tasks of its job, and
   class 1 is left out;
3. the tasks of its user, in its queue, with its width;
4. those of its queue and width;
5. all tasks.

If its job declares a time, the chain is: its user's tasks in such jobs, all tasks in such jobs.
"""

from __future__ import annotations

import math

from headgate.base.column import Column
from headgate.model import Job, Task
from headgate.model.gpu_models import words_of
from headgate.state.tables import RuntimeClassTable, grow
from headgate.state.view import Names

MOST_SAMPLES = 60.0
"""The weight of the samples of a class, at most, that of the last one being 1."""

SHORTEST_S = 1e-3
"""A computing time below it counts as it: a time of 0 has no logarithm."""

_FADING = 1 - 1 / MOST_SAMPLES
_EXACT = 1e-6  # relative, and in seconds: the error of sums of times

Learnt = RuntimeClassTable[Column]
_Key = tuple[object, ...]


def classes_of(
    names: Names, learnt: Learnt, job: Job, task: Task, width: int, read_bytes: float
) -> tuple[int, int]:
    """Return the rows of a task's kind and of the first class of its chain, adding missing ones.

    The chain continues along `RuntimeClassTable.parent`; the kind, where it is in it, comes second.
    """
    key = _kind(job, task, read_bytes)
    kind = _row(names, learnt, key)
    if job.estimated_s is not None:
        every = _row(names, learnt, ("declared",))
        return kind, _row(names, learnt, ("declared", job.user), every)
    if not job.runtime_class:
        if learnt.parent[kind] < 0:
            learnt.parent[kind] = _group(names, learnt, job, width)
        return kind, kind
    own = (*key, job.user, job.queue, width)
    row = names.runtime_class_rows.get(own)
    if row is None:
        row = _row(names, learnt, own, _group(names, learnt, job, width))
    return kind, row


def _kind(job: Job, task: Task, read_bytes: float) -> _Key:
    """Return the key of a task's kind: what its job runs, its GPUs, its stage, its size of input.

    Sizes are grouped by powers of two; results of earlier tasks, still unknown, count as 0. Tasks
    for certain models of GPUs are of another kind than those for others, or for all.
    """
    whose = job.runtime_class or (job.id,)
    key = (whose, task.demand.gpus, bool(task.after), int(read_bytes).bit_length())
    models = sorted({"".join(words_of(model)) for model in task.demand.gpu_models})
    return (*key, "|".join(models)) if models else key


def _group(names: Names, learnt: Learnt, job: Job, width: int) -> int:
    """Return the row of the tasks of a user, in a queue, with a width."""
    key = (job.user, job.queue, width)
    row = names.runtime_class_rows.get(key)
    if row is None:
        every = _row(names, learnt, ("all",))
        row = _row(names, learnt, key, _row(names, learnt, (job.queue, width), every))
    return row


def _row(names: Names, learnt: Learnt, key: _Key, parent: int = -1) -> int:
    rows = names.runtime_class_rows
    row = rows.setdefault(key, len(rows))
    if row == len(learnt.compute_s):
        grow(learnt)
        learnt.parent[row] = parent
    return row


def record(learnt: Learnt, job: Job, kind: int, row: int, compute_s: float) -> None:
    """Count a computing time in a task's chain of classes, which begins at `row`.

    O(classes of the chain).
    """
    sample = math.log(max(compute_s, SHORTEST_S))
    if job.estimated_s is None:
        chain = [row] if kind == row else [row, kind]
    else:
        if job.runtime_class:
            _count(learnt, [kind], sample)  # for jobs of this kind that declare nothing
        chain = [row]
        sample -= math.log(max(job.estimated_s, SHORTEST_S))
        if math.isclose(compute_s, job.estimated_s, rel_tol=_EXACT, abs_tol=_EXACT):
            sample = 0.0
    wider: int = learnt.parent[row]
    while wider >= 0:
        chain.append(wider)
        wider = learnt.parent[wider]
    _count(learnt, chain, sample)


def _count(learnt: Learnt, chain: list[int], sample: float) -> None:
    """Count a sample in classes, each wider than the one before.

    Its deviation from a class's mean so far, corrected for the error of that mean, also counts
    for the variance within the classes below the next one.
    """
    within: float | None = None
    for row in chain:
        if within is not None:
            count = learnt.within_count[row] * _FADING + 1
            learnt.within_count[row] = count
            learnt.within_var[row] += (within - learnt.within_var[row]) / count
        before = learnt.count[row] * _FADING
        count = before + 1
        delta = sample - learnt.log_mean[row]
        learnt.count[row] = count
        learnt.log_mean[row] += delta / count
        learnt.log_var[row] = before / count * (learnt.log_var[row] + delta * delta / count)
        within = delta * delta * before / count if before else None
