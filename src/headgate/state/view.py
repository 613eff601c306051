"""The reading interface that the state and its snapshots share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headgate.base.column import Array
from headgate.model import (
    CPUS,
    MEMORY,
    WHOLE,
    Bandwidth,
    Dataset,
    Demand,
    Job,
    Locality,
    Node,
    Queue,
    Read,
    RunId,
    Shard,
    Task,
    result_id,
)
from headgate.model.topology import ClusterTopology
from headgate.protocol import Hardened, NodeMemo, Refusal, RunStop
from headgate.state.fleet import Fleet
from headgate.state.life import HOLDING, JobState, TaskState
from headgate.state.tables import (
    DRAINING,
    GPU_FREE,
    GPU_GONE,
    OTHERS,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Append-only lists and indexes that every snapshot shares with the state.

    Rows past the end of a snapshot's tables may exist already; they are not part of it.
    """

    jobs: list[Job]
    job_rows: dict[str, int]
    node_rows: dict[str, int]
    racks: list[str]
    users: list[str]
    queue_rows: dict[str, int]
    shards: list[str]
    shard_rows: dict[str, int]
    input_rows: dict[tuple[int, ...], int]
    runtime_class_rows: dict[tuple[object, ...], int]
    resources: list[str]
    demands: list[Demand]
    demand_rows: dict[Demand, int]
    needs: list[tuple[tuple[int, int], ...]]
    models: list[str] = field(default_factory=lambda: [""])
    """The models of GPUs, the first one unknown."""
    label_sets: list[tuple[str, ...]] = field(default_factory=lambda: [()])
    """The sets of labels of nodes, the first one empty."""
    leases: list[int] = field(init=False)
    """The rows of the jobs with items, ascending."""
    elastic: list[int] = field(init=False)
    """The rows of the elastic jobs, ascending."""
    training: list[int] = field(init=False)
    """The rows of the training jobs, ascending."""

    def __post_init__(self) -> None:
        leases = [row for row, job in enumerate(self.jobs) if job.items is not None]
        elastic = [row for row, job in enumerate(self.jobs) if job.elastic is not None]
        object.__setattr__(self, "leases", leases)
        object.__setattr__(self, "elastic", elastic)
        training = [row for row, job in enumerate(self.jobs) if job.training is not None]
        object.__setattr__(self, "training", training)

    def add_job(self, job: Job) -> None:
        """Add a job, whose row is the next one."""
        if job.items is not None:
            self.leases.append(len(self.jobs))
        if job.elastic is not None:
            self.elastic.append(len(self.jobs))
        if job.training is not None:
            self.training.append(len(self.jobs))
        self.jobs.append(job)

    def resource(self, name: str) -> int:
        """Return the number of a kind of resource, adding it if new."""
        if name not in self.resources:
            self.resources.append(name)
        return self.resources.index(name)

    def model(self, name: str) -> int:
        """Return the row of a model of GPUs, adding it if new."""
        if name not in self.models:
            self.models.append(name)
        return self.models.index(name)

    def label_set(self, labels: tuple[str, ...]) -> int:
        """Return the row of a set of labels, adding it if new."""
        if labels not in self.label_sets:
            self.label_sets.append(labels)
        return self.label_sets.index(labels)

    def demand(self, demand: Demand) -> int:
        """Return the row of a demand, adding it if new."""
        row = self.demand_rows.get(demand)
        if row is None:
            row = self.demand_rows[demand] = len(self.demands)
            self.needs.append(self._needs(demand))
            self.demands.append(demand)
        return row

    def _needs(self, demand: Demand) -> tuple[tuple[int, int], ...]:
        """Return the amounts that a demand takes of a node: (kind, amount) pairs."""
        amounts = [(CPUS, demand.cpus_milli), (MEMORY, demand.memory_bytes)]
        amounts += [(self.resource(name), milli) for name, milli in demand.custom]
        return tuple((kind, amount) for kind, amount in amounts if amount)


_SAME_INSTANT = 1e-9  # of a checkpoint's interval: the error of sums of times


def saved_s(computed_s: Any, checkpoint_s: Any) -> Any:
    """Return the seconds of computing that checkpoints have saved; numbers or arrays.

    All up to the last whole checkpoint, one at this instant included. NaN and negative values
    count as 0.
    """
    every_s = np.where(np.equal(checkpoint_s, 0.0), np.inf, checkpoint_s)
    steps = np.floor(np.fmax(computed_s, 0.0) / every_s + _SAME_INSTANT)
    return steps * checkpoint_s


class View:
    """Tables and names, and frequent queries of them."""

    __slots__ = ()

    version: int
    now: float
    origin: View | None
    tasks: TaskTable[Any]
    jobs: JobTable[Any]
    queues: QueueTable[Any]
    nodes: NodeTable[Any, Any]
    gpus: GpuTable[Any]
    grants: GrantTable[Any]
    shards: ShardTable[Any, Any]
    inputs: InputTable[Any]
    runtime_classes: RuntimeClassTable[Any]
    names: Names
    bandwidth: Bandwidth
    topology: ClusterTopology | None
    fleet: Fleet
    hardened: Hardened | None
    refusals: Sequence[Refusal]
    datasets: Mapping[str, Dataset]
    memos: Mapping[str, Any]
    node_memos: NodeMemo
    stops: Mapping[int, tuple[RunStop, ...]]

    @property
    def hypothetical(self) -> bool:
        """Whether it is of a hypothetical state, which began as `origin`."""
        return self.origin is not None

    def job(self, row: int) -> Job:
        """Return a job as it was submitted."""
        return self.names.jobs[row]

    def task(self, row: int) -> Task:
        """Return a task as it was submitted."""
        job: Job = self.names.jobs[self.tasks.job[row]]
        return job.tasks[self.ordinal(row)]

    def ordinal(self, row: int) -> int:
        """Return a task's place in its job, from 0."""
        first: int = self.jobs.first_task[self.tasks.job[row]]
        return row - first

    def task_id(self, row: int) -> str:
        """Return the id of a task: also that of its result, if that is in one part."""
        return result_id(self.job(self.tasks.job[row]).id, self.ordinal(row))

    def run_id(self, row: int) -> RunId:
        """Return the RunId of a task's current or last run."""
        job = self.tasks.job[row]
        ordinal: int = row - self.jobs.first_task[job]
        return RunId(self.names.jobs[job].id, ordinal, self.tasks.attempts[row])

    def run_row(self, run: RunId) -> int | None:
        """Return the row of the task whose current or last run this is; None for any other run."""
        job = self.names.job_rows.get(run.job)
        if job is None or not 0 <= run.ordinal < self.jobs.task_count[job]:
            return None
        row: int = self.jobs.first_task[job] + run.ordinal
        return row if self.tasks.attempts[row] == run.attempt else None

    def holding(self) -> list[int]:
        """Return the rows of the tasks with a grant, ascending; O(tasks)."""
        rows: list[int] = np.flatnonzero(np.isin(self.tasks.state.array(), HOLDING)).tolist()
        return rows

    def memo(self, name: str) -> Array:
        """Return one column of the policy's memo, `[jobs]`; NaN where none is set."""
        column = self.memos.get(name)
        return np.full(len(self.jobs.state), np.nan) if column is None else column.array()

    def node_memo(self, name: str) -> Array:
        """Return one column of the policy's memo by node, `[nodes]`; 0 where none is set."""
        column = np.zeros(len(self.nodes.alive))
        for row, value in self.node_memos.get(name, {}).items():
            column[row] = value
        return column

    def last_run(self, task: int) -> tuple[int, str]:
        """Return the attempt of a task's last run, and its node."""
        return self.tasks.attempts[task], self.node(self.tasks.node[task]).id

    def node(self, row: int) -> Node:
        """Return a node as it last joined."""
        spec: Node = self.nodes.spec[row]
        return spec

    def queue(self, row: int) -> Queue:
        """Return a queue as last changed."""
        spec: Queue = self.queues.spec[row]
        return spec

    def live_nodes(self) -> list[int]:
        """Return the rows of the nodes that are up, in order of arrival."""
        rows: list[int] = self.nodes.alive.array().nonzero()[0].tolist()
        return rows

    def tasks_of(self, job: int) -> range:
        """Return the rows of a job's tasks."""
        first = self.jobs.first_task[job]
        return range(first, first + self.jobs.task_count[job])

    def awaited_jobs(self, job: int) -> list[int]:
        """Return the rows of the jobs that a job comes after and that have not finished.

        A job that is known no more has finished: it is archived.
        """
        rows = self.names.job_rows
        earlier = (rows.get(name, job) for name in self.job(job).after)
        return [row for row in earlier if row < job and self.jobs.state[row] != JobState.FINISHED]

    def waiting_of(self, job: int) -> Array:
        """Return the rows of a job's WAITING tasks, ascending."""
        rows = self.tasks_of(job)
        states = self.tasks.state.span(rows.start, rows.stop)
        waiting: Array = (states == TaskState.WAITING).nonzero()[0] + rows.start
        return waiting

    def held_gpus(self, task: int) -> tuple[int, ...]:
        """Return the indices of the GPUs that a task holds on its node; none when it holds none."""
        grant: int = self.tasks.grant[task]
        gpus: tuple[int, ...] = self.grants.gpus[grant] if grant >= 0 else ()
        return gpus

    def gpus_of_jobs(self) -> Array:
        """Return the GPUs that each job holds, `[jobs]`, parts of one rounded up."""
        gpus: Array = -(-self.jobs.held_gpus_milli.array() // WHOLE)
        return gpus

    def gpus_of_queues(self) -> Array:
        """Return the GPUs that each queue holds, `[queues]`, parts of one rounded up."""
        gpus: Array = -(-self.queues.held_gpus_milli.array() // WHOLE)
        return gpus

    def demand(self, task: int) -> Demand:
        """Return all that a run of a task holds."""
        row: int = self.tasks.demand[task]
        return self.names.demands[row]

    def free_gpus_of(self, node: int) -> Array:
        """Return the indices of a node's free GPUs, ascending; none when the node is not up."""
        first = self.nodes.first_gpu[node]
        holders = self.gpus.task.span(first, first + self.nodes.gpu_count[node])
        indices: Array = (holders == GPU_FREE).nonzero()[0]
        return indices

    def withheld_gpus_of(self, node: int, why: int = OTHERS | DRAINING) -> tuple[int, ...]:
        """Return the indices of a node's GPUs on which no run may start, for that, ascending."""
        first = self.nodes.first_gpu[node]
        withheld = self.gpus.withheld.span(first, first + self.nodes.gpu_count[node]) & why
        return tuple(withheld.nonzero()[0].tolist())

    def unavailable_gpus_of(self, node: int) -> tuple[int, ...]:
        """Return the indices of a node's GPUs that are withheld and no run holds, ascending."""
        first = self.nodes.first_gpu[node]
        gone = self.gpus.task.span(first, first + self.nodes.gpu_count[node]) == GPU_GONE
        return tuple(gone.nonzero()[0].tolist())

    def gpu_count(self) -> int:
        """Return the GPUs that are capacity: of nodes that are up, and not withheld."""
        return int((self.gpus.task.array() != GPU_GONE).sum())

    def gpu_memory_bytes_of(self, node: int) -> Array:
        """Return the memory of each GPU of a node, by index."""
        first = self.nodes.first_gpu[node]
        memory: Array = self.gpus.memory_bytes.span(first, first + self.nodes.gpu_count[node])
        return memory

    def reads(self, task: int) -> tuple[int, ...]:
        """Return the rows of the shards that a task reads, in order."""
        shards: tuple[int, ...] = self.inputs.shards[self.tasks.input[task]]
        return shards

    def replicas(self, shard: int) -> tuple[int, ...]:
        """Return the rows of the nodes that are up and hold a shard, ascending."""
        nodes: tuple[int, ...] = self.shards.replicas[shard]
        return nodes

    def expected_read_s(self, task: int, node: int) -> float:
        """Return the expected seconds of reading a task's shards on a node, without contention.

        Flow paper, section 3 (without its penalty coefficients): each shard at the bandwidth of its
        nearest replica; one without a replica as from another rack.
        """
        bytes_per_s = {
            Locality.NODE: self.bandwidth.disk_bytes_per_s,
            Locality.RACK: self.bandwidth.rack_bytes_per_s,
            Locality.CLUSTER: self.bandwidth.cluster_bytes_per_s,
        }
        return sum(
            r.shard.size_bytes / bytes_per_s[r.locality] for r in self.planned_reads(task, node)
        )

    def expected_end(self, task: int) -> float:
        """Return when a run is expected to end, in seconds of the world's clock; NaN if unknown.

        From its launch on it reads, for the time expected then, and computes for the mean time of
        its runtime class, less the progress saved by earlier runs. An overdue run is expected to
        take the overdue time once more.
        """
        whole_s: float = self.runtime_classes.compute_s[self.tasks.runtime_class[task]]
        compute_s = (whole_s - min(whole_s, self.tasks.progress_s[task])) / self.speed(task)
        launched_at: float = self.tasks.launched_at[task]
        end: float = launched_at + self.tasks.read_s[task] + compute_s
        return end if math.isnan(end) else self.now + abs(end - self.now)

    def speed(self, task: int) -> float:
        """Return the speed of a task's last run: seconds of computing at speed 1 in one second."""
        return float(self.tasks.speed[task])

    def checkpoint_progress_s(self, task: int, now: float, *, lost: bool = False) -> float:
        """Return what a run has saved if it ends now without a result: after notice, or `lost`.

        Training saves its progress then, other programs have at their last checkpoint.
        In seconds of computing at speed 1, as everything that is saved.
        """
        tasks = self.tasks
        computed_s = now - tasks.started_at[task] - tasks.read_s[task]
        if not lost and self.job(tasks.job[task]).training is not None:
            return max(0.0, float(np.nan_to_num(computed_s))) * self.speed(task)
        if not tasks.checkpoint_s[task]:
            return 0.0
        return float(saved_s(computed_s * self.speed(task), tasks.checkpoint_s[task]))

    def planned_reads(self, task: int, node: int) -> tuple[Read, ...]:
        """Return the reads of a run of a task on a node, from the nearest replicas only.

        The first of equally near replicas depends on the task's ordinal, so that readers spread
        over the copies.
        """
        turn = self.ordinal(task)
        return tuple(self._planned_read(shard, node, turn) for shard in self.reads(task))

    def _planned_read(self, shard: int, node: int, turn: int) -> Read:
        value = Shard(id=self.names.shards[shard], size_bytes=self.shards.size_bytes[shard])
        holders = self.replicas(shard)
        locality = Locality.CLUSTER
        if node in holders:
            locality, holders = Locality.NODE, (node,)
        else:
            rack = self.nodes.rack[node]
            near = tuple(n for n in holders if self.nodes.rack[n] == rack)
            if near:
                locality, holders = Locality.RACK, near
        start = turn % len(holders) if holders else 0
        sources = tuple(self.node(n).id for n in holders[start:] + holders[:start])
        return Read(shard=value, locality=locality, sources=sources)
