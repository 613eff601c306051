"""A snapshot: the state as of one version, immutable, shared with the writer without copying."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headgate.base.column import FrozenColumn
from headgate.base.lists import FrozenLists
from headgate.base.vectors import FrozenVectors
from headgate.model import Bandwidth, Dataset
from headgate.model.topology import ClusterTopology
from headgate.protocol import Hardened, NodeMemo, Refusal, RunStop, Timer
from headgate.state.changes import Changes
from headgate.state.fleet import NO_FLEET, Fleet
from headgate.state.tables import (
    GpuTable,
    GrantTable,
    InputTable,
    JobTable,
    NodeTable,
    QueueTable,
    RuntimeClassTable,
    ShardTable,
    TaskTable,
)
from headgate.state.view import Names, View


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(View):
    """The input of a policy; see `headgate.state.tables` for the columns.

    `waiting_tasks` counts WAITING tasks of all jobs; no job before `first_waiting_job` has any.
    `origin` is what a hypothetical one began as, None for a real one.
    """

    version: int
    now: float
    origin: Snapshot | None
    tasks: TaskTable[FrozenColumn]
    jobs: JobTable[FrozenColumn]
    queues: QueueTable[FrozenColumn]
    nodes: NodeTable[FrozenColumn, FrozenVectors]
    gpus: GpuTable[FrozenColumn]
    grants: GrantTable[FrozenColumn]
    shards: ShardTable[FrozenColumn, FrozenLists]
    inputs: InputTable[FrozenLists]
    runtime_classes: RuntimeClassTable[FrozenColumn]
    names: Names
    bandwidth: Bandwidth
    topology: ClusterTopology | None = None
    fleet: Fleet = NO_FLEET
    refusals: Sequence[Refusal]
    datasets: Mapping[str, Dataset]
    memos: Mapping[str, FrozenColumn]
    node_memos: NodeMemo
    hardened: Hardened | None = None
    waiting_tasks: int
    first_waiting_job: int
    next_job: int
    stops: Mapping[int, tuple[RunStop, ...]]
    timers: Mapping[Timer, float]
    policy_failures: int

    def changes(self, before: Snapshot) -> Changes | None:
        """Return the changes since an earlier snapshot of the same history of states, or None.

        That of a hypothetical state continues that of its origin. None also when `before` is of
        another history: read from bytes, or of another hypothetical state.
        """
        if before.names is self.names:
            return Changes(before, self) if before.version <= self.version else None
        follows = self.origin is not None and self.origin.changes(before) is not None
        return Changes(before, self) if follows else None

    def unexplained(self) -> Snapshot:
        """Return the snapshot without refusals, which may keep objects of earlier rounds alive."""
        return replace(self, refusals=())

    def waiting_jobs(self) -> Iterator[int]:
        """Yield the rows of jobs with WAITING tasks in order of arrival, lazily, page by page."""
        cpu_pages = self.jobs.waiting_cpu.pages(self.first_waiting_job)
        gpu_pages = self.jobs.waiting.pages(self.first_waiting_job)
        for (base, cpu), (_, gpu) in zip(cpu_pages, gpu_pages, strict=True):
            yield from ((cpu + gpu).nonzero()[0] + base).tolist()

    def waiting_cpu_jobs(self) -> Iterator[int]:
        """Yield the rows of jobs with WAITING tasks that need no GPU, in order of arrival."""
        for base, waiting in self.jobs.waiting_cpu.pages(self.first_waiting_job):
            yield from (waiting.nonzero()[0] + base).tolist()
