"""Tiresias: least attained GPU time first, in queues, with the width that the user requested."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from headgate.planning.deadlines.jobs import Allocation, TrainingJob

_LIMITS_GPU_S = (3250.0, 7200.0)  # of the queues in ElasticFlow's simulator


class TiresiasQueues:
    """Runs jobs of the queue with least GPU time first, each at the requested width.

    Gu et al., NSDI 2019, with discretised two-dimensional service, as ElasticFlow's simulator has
    it: queues up to 3,250 and 7,200 GPU seconds, and one above. In a queue, jobs that run come
    before those that wait, both in order of arrival; who does not fit is passed over. All jobs are
    admitted. Deviation: a width that was not measured is the next narrower one.
    """

    best_effort = False

    def __init__(self, *, gpus: int, slot_s: float = 0.0) -> None:
        """Divide so many GPUs; the widths of now do not depend on slots."""
        del slot_s
        self._gpus = gpus

    def decide(self, jobs: Sequence[TrainingJob], now_s: float) -> Allocation:
        """Return the widths; the plan reaches to when the next job changes its queue."""
        order = sorted(
            range(len(jobs)),
            key=lambda row: (_queue(jobs[row]), jobs[row].width == 0, jobs[row].key),
        )
        widths, free, change_s = [0] * len(jobs), self._gpus, math.inf
        for row in order:
            job = jobs[row]
            width = job.curve.widest(job.requested) or job.curve.widths[0]
            if width > free:
                continue
            widths[row] = width
            free -= width
            if _queue(job) < len(_LIMITS_GPU_S):
                left = _LIMITS_GPU_S[_queue(job)] - job.attained_gpu_s
                change_s = min(change_s, now_s + left / width)
        later_s = change_s if change_s > now_s else math.inf
        return Allocation.unplanned(jobs, widths, order, now_s, later_s)


def _queue(job: TrainingJob) -> int:
    return bisect_right(_LIMITS_GPU_S, job.attained_gpu_s)
