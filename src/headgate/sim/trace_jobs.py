"""The jobs of a trace as submissions of a simulation, built one by one while it runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import NamedTuple

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.model import Communication, Demand, Job, Node, Queue, Task
from headgate.model.queue import above
from headgate.planning.place.submission_check import never_fits
from headgate.ports import Policy
from headgate.protocol import Reason
from headgate.sim.estimated import Estimated
from headgate.sim.user_estimates import user_estimate_s
from headgate.traces import JobHistory, TraceJob

USER = "user"
"""The user of all jobs of a trace that names none."""

_QUEUE = "default"  # of those without one
_ALWAYS_S = 2.0**-20  # between checkpoints: about 1 us; whole seconds are multiples of it


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceModel:
    """How the jobs of a trace are simulated.

    A preempted job continues where it was, `resume_s` seconds after each start but its first; with
    None, it starts from the beginning. Those on several GPUs communicate as `communication` says.
    """

    estimated: Estimated = Estimated.LEARNT
    resume_s: float | None = None
    communication: Communication | None = None
    seed: int = 0
    """Of the estimates that are modelled."""


class TraceWork(NamedTuple):
    """Per job: seconds on all its GPUs, these, and the group that shares fairly with others.

    Groups are the jobs of one `vc`, or, without, of one user.
    """

    compute_s: Floats
    gpus: Ints
    group: Ints


class TraceJobs:
    """The jobs of a trace that can run, in order of time.

    Each is one gang of its GPUs: one task where a node can hold them, else tasks as large as the
    largest node. `queues` are those given, and one of weight 1 for every other that a job is in.
    `rejected` counts the jobs that cannot run, by reason. Holds one byte a job.
    """

    def __init__(
        self,
        trace: JobHistory,
        *,
        queues: Iterable[Queue],
        nodes: Sequence[Node],
        policy: Policy,
        model: TraceModel,
    ) -> None:
        """Read the trace once, to find the jobs that cannot run.

        O(jobs + queues x sizes of jobs x nodes).
        """
        self._trace, self._estimated, self._seed = trace, model.estimated, model.seed
        total = sum(len(node.gpus) for node in nodes)
        known = {queue.name: self._with_estimate(queue) for queue in queues}
        self.rejected: Counter[str] = Counter()
        self._communication = model.communication
        self._checkpoint_s = 0.0 if model.resume_s is None else _ALWAYS_S
        self._most_gpus = max((len(node.gpus) for node in nodes), default=1) or 1
        self._accepted = bytearray()
        unfit: dict[tuple[str, int], Reason | None] = {}  # by queue and GPUs
        for row in trace.rows():
            name = row.queue or _QUEUE
            known.setdefault(name, self._with_estimate(Queue(name=name)))
            if row.gpus > total:
                code: str | None = "NothingFits"
            else:
                job = self._gang(row)
                if (name, row.gpus) not in unfit:
                    unfit[name, row.gpus] = never_fits(job, [*above(known, name)], nodes)
                reason = policy.refuses(job) or unfit[name, row.gpus]
                code = None if reason is None else reason.code
            self._accepted.append(code is None)
            if code is not None:
                self.rejected[code] += 1
        self.queues = tuple(known.values())

    def __len__(self) -> int:
        return len(self._accepted) - self.rejected.total()

    def __iter__(self) -> Iterator[tuple[float, Job]]:
        """Read the trace and yield (time of submission, job)."""
        for row in self._rows():
            yield row.submit_s, self._gang(row)

    def history(self) -> TraceWork:
        """Read the trace and return what figures need of each job, in order of time."""
        numbers: dict[tuple[str, str], int] = {}
        compute_s = np.zeros(len(self))
        gpus, group = np.zeros((2, len(self)), np.int64)
        for number, row in enumerate(self._rows()):
            compute_s[number], gpus[number] = row.duration_s, row.gpus
            key = (row.vc, "" if row.vc else row.user)
            group[number] = numbers.setdefault(key, len(numbers))
        return TraceWork(compute_s, gpus, group)

    def _rows(self) -> Iterator[TraceJob]:
        return compress(self._trace.rows(), self._accepted)

    def _gang(self, row: TraceJob) -> Job:
        most, gpus = self._most_gpus, row.gpus
        parts = [most] * (gpus // most) + [gpus % most] * (gpus % most > 0)
        tasks = tuple(
            Task(
                demand=Demand.of(gpus=part),
                compute_s=row.duration_s,
                checkpoint_s=self._checkpoint_s,
            )
            for part in parts or [0]
        )
        return Job(
            id=row.job_id,
            name=row.job_id,
            user=row.user or USER,
            queue=row.queue or _QUEUE,
            tasks=tasks,
            gang=True,
            runtime_class=row.kind,
            estimated_s=self._declared_s(row),
            communication=self._communication if gpus > 1 else None,
        )

    def _with_estimate(self, queue: Queue) -> Queue:
        return replace(queue, estimate="declared") if self._estimated.as_declared else queue

    def _declared_s(self, row: TraceJob) -> float | None:
        if self._estimated is Estimated.LEARNT:
            return None
        if self._estimated is Estimated.MODELLED:
            return user_estimate_s(self._seed, row.job_id, row.duration_s)
        declared_s = row.duration_s if self._estimated is Estimated.EXACT else row.estimate_s
        return None if math.isnan(declared_s) else declared_s
