"""Jobs of a trace as submissions: which of them can run."""

from __future__ import annotations

from collections import UserList
from collections.abc import Iterator

import numpy as np

from headgate.model import Gpu, Node, Queue
from headgate.policies.fifo import FirstInFirstOut
from headgate.sim.trace_jobs import TraceJobs
from headgate.traces import Trace


class CountedNodes(UserList[Node]):
    """Nodes that count how often they are iterated."""

    iterations = 0

    def __iter__(self) -> Iterator[Node]:
        self.iterations += 1
        return iter(self.data)


def trace_of(*gpus: int) -> Trace:
    times_s = np.arange(len(gpus), dtype=np.float64)
    ids = np.array([f"j{number}" for number in range(len(gpus))], object)
    return Trace(job_id=ids, submit_s=times_s, duration_s=times_s, gpus=np.array(gpus))


def jobs_of(trace: Trace) -> tuple[TraceJobs, int]:
    """Return the jobs on two nodes of two GPUs, and how often these were iterated."""
    nodes = CountedNodes(
        Node(id=f"n{number}", rack="r", gpus=(Gpu(memory_bytes=1),) * 2) for number in range(2)
    )
    jobs = TraceJobs(
        trace, queue=Queue(name="q", max_gpus=3), nodes=nodes, policy=FirstInFirstOut()
    )
    return jobs, nodes.iterations


def test_jobs_that_can_never_run_are_counted_by_reason() -> None:
    jobs, _ = jobs_of(trace_of(1, 5, 4, 3, 0, 4))
    assert [job.id for _, job in jobs] == ["j0", "j3", "j4"]
    assert jobs.rejected == {"NothingFits": 1, "QueueTooSmall": 2}
    assert len(jobs) == 3


def test_nodes_are_searched_once_per_size_of_job() -> None:
    _, few = jobs_of(trace_of(1, 2, 3))
    _, many = jobs_of(trace_of(*[1, 2, 3] * 50))
    assert few == many > 0
