"""The reasons why tasks wait after all offers of a round, one per group of jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from headgate.planning.place.limits import behind_head, queue_limit
from headgate.planning.place.line import Line
from headgate.planning.place.why import no_free_gpu, no_gpu_of_type
from headgate.planning.shares.standing import Standing
from headgate.protocol import Reason, Refusal, Start
from headgate.protocol.reasons import NoFreeGpu
from headgate.state.quotas import Quotas, amounts_of
from headgate.state.tables import GPU_FREE

UserQueue = tuple[int, int]
"""The rows of a queue and of a user in it."""


def refusals(
    standing: Standing,
    *,
    user_queues: Mapping[UserQueue, Sequence[tuple[int, Sequence[int]]]],
    fifo_within_user: bool,
    placed: Sequence[Start],
    line: Line,
) -> Iterator[Refusal]:
    """Yield one refusal per reason, with all jobs that wait for it.

    `user_queues` are the jobs that waited, in order, each with its tasks on one whole GPU, all as
    rows; with `fifo_within_user`, a user's jobs wait behind the first one. `placed` are all starts;
    free GPUs may be kept for a multi-GPU unit, the first in `line`.
    """
    after, snapshot = _AfterOffers(standing, placed, line), standing.snapshot
    groups: dict[Reason, list[int]] = {}
    for user_queue in user_queues.values():
        head: int | None = None
        for job, tasks in user_queue:
            reason = after.reason(job, tasks)
            if fifo_within_user and isinstance(reason, NoFreeGpu):
                if head is not None and head < job:
                    reason = behind_head(snapshot.job(head).id)
                head = job if head is None else head
            if reason is not None:
                groups.setdefault(reason, []).append(job)
    for reason, jobs in groups.items():
        yield Refusal(reason=reason, jobs=tuple(sorted(jobs)))


class _AfterOffers:
    """The state after the round's placements."""

    def __init__(self, standing: Standing, placed: Sequence[Start], line: Line) -> None:
        snapshot = standing.snapshot
        self._standing, self._line, self._snapshot = standing, line, snapshot
        self._placed = dict.fromkeys(p.task for p in placed)
        self._quotas = Quotas(snapshot)
        for task in self._placed:
            job = snapshot.tasks.job[task]
            amounts = amounts_of(snapshot.names, snapshot.tasks.demand[task])
            self._quotas.add(self._quotas.row_of(job), amounts)
        free = snapshot.gpus.task.array() == GPU_FREE
        free[[snapshot.nodes.first_gpu[p.node] + gpu for p in placed for gpu in p.gpus]] = False
        free[np.isin(snapshot.gpus.node.array(), line.kept)] = False
        classes = len(standing.class_bytes)
        self._free = np.bincount(standing.hardware.gpu_class[free], minlength=classes)
        self._fits = standing.types_on(self._free)

    def reason(self, job: int, tasks: Sequence[int]) -> Reason | None:
        """Return the reason why tasks of a job wait, or None if none of them is left."""
        standing, snapshot = self._standing, self._snapshot
        left = [t for t in tasks if t not in self._placed]
        if not left:
            return None
        task_type, _, demand = min(map(self._need, left))
        why = no_gpu_of_type(standing, task_type, snapshot.names.demands[demand], self._free)
        if task_type == len(standing.accepts):
            return why
        row, amounts = self._quotas.row_of(job), amounts_of(snapshot.names, demand)
        if self._quotas.at_limit(row, amounts) is not None:
            return queue_limit(snapshot, self._quotas, row, amounts)
        by_model = task_type >= len(standing.kinds.memories)
        if self._free.any() or (by_model and not self._fits[task_type]):
            return why
        return self._line.why_row(job) or no_free_gpu(0, int(standing.gpus.sum()))

    def _need(self, task: int) -> tuple[int, int, int]:
        """Return the type of a task, the GPU memory that it needs, and its demand."""
        demand = self._snapshot.tasks.demand[task]
        memory_bytes = self._snapshot.tasks.memory_bytes[task]
        return int(self._standing.kinds.of_demand[demand]), memory_bytes, demand
