"""The jobs of a trace as submissions of a simulation, built one by one while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import compress

from headgate.model import Job, Node, Queue, Task
from headgate.planning.submission_check import never_fits
from headgate.ports import Policy
from headgate.protocol import Reason
from headgate.traces import JobHistory


class TraceJobs:
    """The jobs of a trace that can run, in order of time.

    Each is one gang of its GPUs: one task where a node can hold them, else tasks as large as the
    largest node. `rejected` counts the jobs that cannot run, by reason. Holds one byte a job.
    """

    def __init__(
        self, trace: JobHistory, *, queue: Queue, nodes: Sequence[Node], policy: Policy
    ) -> None:
        """Read the trace once, to find the jobs that cannot run.

        O(jobs + sizes of jobs x nodes).
        """
        total = sum(len(node.gpus) for node in nodes)
        self.rejected: Counter[str] = Counter()
        self._trace = trace
        self._queue = queue.name
        self._most_gpus = max((len(node.gpus) for node in nodes), default=1) or 1
        self._accepted = bytearray()
        unfit: dict[int, Reason | None] = {}  # by GPUs
        for job_id, _, duration_s, gpus in trace.rows():
            if gpus > total:
                code: str | None = "NothingFits"
            else:
                job = self._gang(job_id, gpus, duration_s)
                if gpus not in unfit:
                    unfit[gpus] = never_fits(job, queue, nodes)
                reason = policy.refuses(job) or unfit[gpus]
                code = None if reason is None else reason.code
            self._accepted.append(code is None)
            if code is not None:
                self.rejected[code] += 1

    def __len__(self) -> int:
        return len(self._accepted) - self.rejected.total()

    def __iter__(self) -> Iterator[tuple[float, Job]]:
        """Read the trace and yield (time of submission, job)."""
        for job_id, submit_s, duration_s, gpus in compress(self._trace.rows(), self._accepted):
            yield submit_s, self._gang(job_id, gpus, duration_s)

    def _gang(self, job_id: str, gpus: int, duration_s: float) -> Job:
        most = self._most_gpus
        parts = [most] * (gpus // most) + [gpus % most] * (gpus % most > 0)
        tasks = tuple(Task(gpus=part, compute_s=duration_s) for part in parts or [0])
        return Job(id=job_id, name=job_id, user="user", queue=self._queue, tasks=tasks, gang=True)
