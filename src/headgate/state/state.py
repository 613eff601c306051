"""The state: every fact that the engine has accepted, and the few transitions that change it.

Only the machine changes it. Each transition updates the counters of its job, queue, node and
GPUs and asserts that the life-cycle tables allow it; one that they do not allow raises
`InvariantBroken` with the history of the object concerned.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence

from headgate.base.column import Column
from headgate.base.errors import InvariantBroken
from headgate.base.lists import Lists
from headgate.base.vectors import Vectors
from headgate.model import (
    BASE_KINDS,
    WHOLE,
    Bandwidth,
    Dataset,
    Job,
    Node,
    Queue,
    Shard,
    Task,
    part_sizes,
    result_ids,
)
from headgate.model.topology import ClusterTopology
from headgate.protocol import Hardened, NodeMemo, Refusal, RunStop, StopCause, Timer
from headgate.state.elastic import regroup, set_unit
from headgate.state.fleet import NO_FLEET
from headgate.state.ledger import Ledger
from headgate.state.life import ENDED, HOLDING, JOB_MOVES, TASK_MOVES, JobState, TaskState
from headgate.state.queued_jobs import QueuedJobs
from headgate.state.queues import labels_of, with_labels
from headgate.state.runtimes import classes_of, record
from headgate.state.snapshot import Snapshot
from headgate.state.stops import StopLog
from headgate.state.tables import (
    FOR_RUN,
    NO_EXIT,
    TABLES,
    GpuTable,
    GrantTable,
    InputTable,
    JobTable,
    NodeTable,
    QueueTable,
    RuntimeClassTable,
    ShardTable,
    TaskTable,
    empty,
    freeze,
    grow,
    memo,
)
from headgate.state.view import Names, View

_HISTORY_LENGTH = 4096
_IN_SNAPSHOTS = (
    "bandwidth", "datasets", "fleet", "hardened", "names", "next_job", "node_memos", "now",
    "origin", "policy_failures", "refusals", "timers", "topology", "version", "waiting_tasks",
)  # fmt: skip
_Place = TaskState | JobState | str  # of a task, job or node
LogEntry = tuple[float, str, int, _Place, _Place]
"""Time, kind of object (`task`, `job`, `node`), its row, old and new state."""
_LATEST_WEIGHT = 0.25  # of the last run in the mean of a runtime class: the last seven weigh 87 %
_UNKNOWN_BANDWIDTH = Bandwidth(
    disk_bytes_per_s=5e8, rack_bytes_per_s=1.25e8, cluster_bytes_per_s=3.125e7
)


def _state_name(place: _Place) -> str:
    return place if isinstance(place, str) else place.name.lower()


class State(View):
    """Tables, names and counters; see `headgate.state.tables` for the columns."""

    __slots__ = (
        "archived_rows", "bandwidth", "datasets", "dependents", "first_waiting_job", "fleet",
        "followers", "gpus", "grants", "hardened", "inputs", "jobs", "learns", "ledger", "log",
        "memos", "names", "next_job", "node_memos", "nodes", "now", "origin", "policy_failures",
        "queued_jobs", "queues", "refusals", "result_of", "results", "runtime_classes", "shards",
        "stops", "tasks", "timers", "topology", "user_rows", "version", "waiting_tasks",
    )  # fmt: skip

    def __init__(self) -> None:
        self.version = 0
        self.now = 0.0
        self.origin: Snapshot | None = None
        self.learns = True  # whether the ends of runs update runtime estimates
        self.tasks: TaskTable[Column] = empty(TaskTable)
        self.jobs: JobTable[Column] = empty(JobTable)
        self.queues: QueueTable[Column] = empty(QueueTable)
        self.nodes: NodeTable[Column, Vectors] = empty(NodeTable)
        self.gpus: GpuTable[Column] = empty(GpuTable)
        self.grants: GrantTable[Column] = empty(GrantTable)
        self.shards: ShardTable[Column, Lists] = empty(ShardTable)
        self.inputs: InputTable[Lists] = empty(InputTable)
        self.runtime_classes: RuntimeClassTable[Column] = empty(RuntimeClassTable)
        self.names = Names(
            jobs=[], job_rows={}, node_rows={}, racks=[], users=[], queue_rows={}, shards=[],
            shard_rows={}, input_rows={}, runtime_class_rows={}, resources=[*BASE_KINDS],
            demands=[], demand_rows={}, needs=[],
        )  # fmt: skip
        self.ledger = Ledger(self.names, self.nodes, self.gpus, self.grants)
        self.bandwidth = _UNKNOWN_BANDWIDTH
        self.topology: ClusterTopology | None = None
        self.fleet = NO_FLEET
        self.refusals: Sequence[Refusal] = ()
        self.datasets: Mapping[str, Dataset] = {}  # replaced, never changed in place
        self.next_job = 1  # number of the next job, for its id: above that of any earlier job
        self.archived_rows = 0  # of jobs and tasks that compaction drops
        self.waiting_tasks = 0
        self.first_waiting_job = 0
        self.user_rows: dict[str, int] = {}
        self.queued_jobs: list[QueuedJobs] = []  # of QUEUED jobs, by row of their queue
        self.followers: dict[int, list[int]] = {}  # job -> later jobs that wait for it
        self.memos: dict[str, Column] = {}  # memo of the policy, one row per job
        self.hardened: Hardened | None = None  # whose places are kept
        self.node_memos: NodeMemo = {}  # likewise by row of a node; never changed in place
        self.stops: StopLog = StopLog({})  # task -> why its last runs were stopped
        self.timers: Mapping[Timer, float] = {}  # timer -> its time; never changed in place
        self.policy_failures = 0  # in a row
        self.dependents: dict[int, tuple[int, ...]] = {}  # task -> later tasks, where there are any
        self.results: dict[int, tuple[int, ...]] = {}  # task -> shards of its result, if it has one
        self.result_of: dict[int, int] = {}  # shard -> task, the inverse of `results`
        self.log: deque[LogEntry] = deque(maxlen=_HISTORY_LENGTH)

    # --- reading -------------------------------------------------------------------------------

    def freeze(self) -> Snapshot:
        """Return the state as of now, in O(pages written since the last time)."""
        return Snapshot(
            **{name: freeze(getattr(self, name)) for name in TABLES},
            **{name: getattr(self, name) for name in _IN_SNAPSHOTS},
            memos={name: column.freeze() for name, column in self.memos.items()},
            first_waiting_job=self._first_waiting(),
            stops=self.stops.freeze(),
        )

    def _first_waiting(self) -> int:
        row, count = self.first_waiting_job, len(self.names.jobs)
        while row < count and not self.jobs.waiting[row] and not self.jobs.waiting_cpu[row]:
            row += 1
        self.first_waiting_job = row
        return row

    def history_of(self, kind: str, row: int) -> str:
        """Return the recent transitions of one `task`, `job` or `node`, one per line."""
        lines = [
            f"  at {at} s: {_state_name(a)} -> {_state_name(b)}"
            for at, k, r, a, b in self.log
            if (k, r) == (kind, row)
        ]
        return "\n".join([f"{kind} {self._label(kind, row)}:", *lines])

    def _label(self, kind: str, row: int) -> str:
        if kind == "task":
            return self.task_id(row)
        return self.job(row).id if kind == "job" else self.node(row).id

    def broken(self, law: str, kind: str, row: int) -> InvariantBroken:
        """Return the error that an invariant is violated for one object, with its history."""
        return InvariantBroken(f"{law}\n{self.history_of(kind, row)}")

    # --- cluster -------------------------------------------------------------------------------

    def set_queue(self, queue: Queue) -> None:
        """Add a queue, or change one."""
        row = self.names.queue_rows.get(queue.name)
        if row is not None:
            self.queues.spec[row] = queue
            return
        row = self.names.queue_rows[queue.name] = len(self.queued_jobs)
        self.queued_jobs.append(QueuedJobs())
        grow(self.queues)
        self.queues.spec[row] = queue

    def add_node(self, node: Node, *, kept: bool = False, without: Collection[str] = ()) -> int:
        """Bring a node up, all its GPUs free, and return its row; it must not be up already.

        A node that returns has none of its replicas, or, with `kept`, all that are still valid
        except the shards `without` (ids). O(shards) for one that returns.
        """
        row = self.names.node_rows.get(node.id)
        if row is None:
            row = self.names.node_rows[node.id] = len(self.nodes.spec)
            grow(self.nodes)
        if self.nodes.alive[row]:
            raise self.broken(f"node {node.id} joined while it is up", "node", row)
        self.nodes.spec[row] = node
        self.ledger.set_labels(row, self.fleet.labels.get(node.id, node.labels))
        self.nodes.alive[row], self.nodes.speed[row] = 1, node.speed
        self.nodes.rack[row] = self._rack(node.rack)
        self.ledger.add_node(row, node)
        self.nodes.idle_since[row], self.nodes.down_since[row] = self.now, math.nan
        self.log.append((self.now, "node", row, "down", "up"))
        for shard in self.shards.away.having(row).tolist():
            self.remove_replica(shard, row)
            if kept and self.names.shards[shard] not in without:
                self.add_replica(shard, row)
        return row

    def _rack(self, name: str) -> int:
        if name not in self.names.racks:
            self.names.racks.append(name)
        return self.names.racks.index(name)

    def remove_node(self, row: int) -> list[int]:
        """Take a node down, mask its replicas, and return the shards that had one there.

        They do not count while it is down; see `add_node`. No run may hold anything on it.
        O(shards).
        """
        try:
            self.ledger.remove_node(row)
        except InvariantBroken as error:
            raise self.broken(str(error), "node", row) from error
        self.nodes.alive[row] = 0
        self.nodes.actual[row], self.nodes.reported_at[row] = (), math.nan
        self.nodes.idle_since[row], self.nodes.down_since[row] = math.nan, self.now
        self.log.append((self.now, "node", row, "up", "down"))
        held: list[int] = self.shards.replicas.having(row).tolist()
        for shard in held:
            self.remove_replica(shard, row)
            self.add_replica(shard, row)
        return held

    # --- data ----------------------------------------------------------------------------------

    def shard(self, shard: Shard) -> int:
        """Return the row of a shard, adding it or updating its size if needed."""
        row = self.names.shard_rows.get(shard.id)
        if row is None:
            row = self.names.shard_rows[shard.id] = len(self.names.shards)
            self.names.shards.append(shard.id)
            grow(self.shards)
            self.shards.size_bytes[row] = shard.size_bytes
        elif shard.size_bytes != self.shards.size_bytes[row]:
            self.shards.size_bytes[row] = shard.size_bytes
        return row

    def add_replica(self, shard: int, node: int) -> None:
        """Add a node to the holders of a shard; the copy counts while the node is up."""
        lists = self.shards.replicas if self.nodes.alive[node] else self.shards.away
        if node not in lists[shard]:
            lists[shard] = tuple(sorted((*lists[shard], node)))

    def set_replica(self, shard: int, node: int) -> None:
        """Set a node as the only holder of a shard; copies of earlier content are void."""
        self.shards.replicas[shard] = (node,)
        self.shards.shared[shard] = 0
        self.forget_away(shard)

    def remove_replica(self, shard: int, node: int) -> None:
        """Remove a node, up or down, from the holders of a shard."""
        for lists in (self.shards.replicas, self.shards.away):
            if node in lists[shard]:
                lists[shard] = tuple(n for n in lists[shard] if n != node)

    def forget_away(self, shard: int) -> None:
        """Void the copies of a shard on nodes that are down."""
        self.shards.away[shard] = ()

    # --- jobs ----------------------------------------------------------------------------------

    def add_job(self, job: Job) -> int:
        """Add a job, QUEUED, with its tasks HELD, and return its row."""
        if job.id in self.names.job_rows:
            raise InvariantBroken(f"job {job.id} was submitted twice")
        if job.queue not in self.names.queue_rows:
            raise InvariantBroken(
                f"job {job.id} was submitted to queue {job.queue}, which does not exist"
            )
        row = self.names.job_rows[job.id] = len(self.names.jobs)
        number = max(self.next_job, job.number)
        self.next_job = number + 1
        self.names.add_job(job)
        user = self.user_rows.setdefault(job.user, len(self.user_rows))
        if user == len(self.names.users):
            self.names.users.append(job.user)
        queue = self.names.queue_rows[job.queue]
        first, count = len(self.tasks.state), len(job.tasks)
        jobs = self.jobs
        grow(jobs)
        jobs.number[row], jobs.queue[row], jobs.user[row] = number, queue, user
        jobs.priority[row] = job.priority
        set_unit(jobs, row, job)
        jobs.first_task[row], jobs.task_count[row] = first, count
        jobs.unfinished[row], jobs.submitted_at[row] = count, self.now
        if job.declared_s is not None:
            jobs.estimated_s[row] = job.declared_s
        if job.time_limit_s is not None:
            jobs.time_limit_s[row] = job.time_limit_s
        for column in self.memos.values():
            column.grow()
        for shard in job.shards:
            self.shard(shard)
        self._add_tasks(row, first, job)
        self.enqueue(row)
        self.queues.queued[queue] += 1
        self.log.append((self.now, "job", row, "new", "queued"))
        return row

    def enqueue(self, row: int) -> None:
        """Add a QUEUED job to those that may be activated, unless it waits for other jobs."""
        awaited = self.awaited_jobs(row)
        for before in awaited:
            self.followers.setdefault(before, []).append(row)
        if not awaited:
            queued = self.queued_jobs[self.jobs.queue[row]]
            queued.add(row, self.jobs.user[row], self.jobs.priority[row])

    def _add_tasks(self, job_row: int, first: int, job: Job) -> None:
        count, tasks = len(job.tasks), self.tasks
        labels = labels_of(self, self.jobs.queue[job_row])
        demands = [self.names.demand(with_labels(task.demand, labels)) for task in job.tasks]
        grow(tasks, count)
        unit = job.unit_tasks
        milli = [t.demand.gpus_milli for t in job.tasks if t.demand.gpus]
        at_least = sum(milli[:unit]) if unit > 1 else min(milli, default=0)
        self.jobs.unit_gpus_milli[job_row] = at_least
        tasks.job.write(first, job_row, count)
        for column, values in (
            (tasks.gpus, [t.demand.gpus for t in job.tasks]),
            (tasks.memory_bytes, [t.demand.gpu_memory_bytes for t in job.tasks]),
            (tasks.demand, demands),
            (tasks.blockers, [len(t.after) for t in job.tasks]),
            (tasks.checkpoint_s, [t.checkpoint_s for t in job.tasks]),
        ):
            if any(values):
                column.write(first, values, count)
        dependents: dict[int, list[int]] = {}
        groups: dict[tuple[int, int], int] = {}
        width = sum(t.demand.gpus for t in job.tasks) if job.gang else 0
        for ordinal, task in enumerate(job.tasks):
            reads = self._reads_of(task) if task.reads else ()
            tasks.input[first + ordinal] = row = self._input(reads)
            needs = (demands[ordinal], row)
            tasks.task_group[first + ordinal] = groups.setdefault(needs, first + ordinal)
            read_bytes = sum(self.shards.size_bytes[shard] for shard in reads)
            kind, estimate_class = classes_of(
                self.names, self.runtime_classes, job, task, width or task.demand.gpus, read_bytes
            )
            tasks.runtime_class[first + ordinal] = kind
            tasks.estimate_class[first + ordinal] = estimate_class
            for before in task.after:
                dependents.setdefault(first + before, []).append(first + ordinal)
        for before, after in dependents.items():
            self.dependents[before] = tuple(after)
            self.keep_result(
                before,
                part_sizes(job.tasks[before - first].output_bytes, job.tasks[before - first].parts),
            )

    def _reads_of(self, task: Task) -> tuple[int, ...]:
        rows = self.names.shard_rows
        return tuple(
            rows[s] if s in rows else self.shard(Shard(id=s, size_bytes=0)) for s in task.reads
        )

    def _input(self, reads: tuple[int, ...]) -> int:
        """Return the row in `inputs` of these shards, adding it if new."""
        row = self.names.input_rows.setdefault(reads, len(self.names.input_rows))
        if row == len(self.inputs.shards):
            self.inputs.shards.append(reads)
        return row

    def record_runtime(self, task: int) -> None:
        """Update the runtime estimates with a finished task's computing time, at a speed of 1."""
        started_at = self.tasks.started_at[task]
        if not self.learns or math.isnan(started_at):
            return  # nothing to learn from; or it ended before its start was reported
        row, saved_s = self.tasks.runtime_class[task], self.tasks.progress_s[task]
        ran_s = max(0.0, self.now - started_at - self.tasks.read_s[task])
        learnt, speed = self.runtime_classes, self.speed(task)
        held_s = saved_s + self.now - self.tasks.launched_at[task] + ran_s * (speed - 1)
        compute_s = saved_s + ran_s * speed
        for column, took_s in ((learnt.compute_s, compute_s), (learnt.held_s, held_s)):
            mean_s = column[row]
            known = not math.isnan(mean_s)
            column[row] = mean_s + _LATEST_WEIGHT * (took_s - mean_s) if known else took_s
        job_row = self.tasks.job[task]
        if not self.jobs.gang[job_row] or not self.jobs.unfinished[job_row]:
            job = self.names.jobs[job_row]  # of a gang, the run that ends last is the one sample
            record(learnt, job, row, self.tasks.estimate_class[task], compute_s)

    def keep_result(self, task: int, sizes_bytes: tuple[int, ...]) -> tuple[int, ...]:
        """Add the shards of a task's result, one per part, and return their rows."""
        job, ordinal = self.job(self.tasks.job[task]), self.ordinal(task)
        names = result_ids(job.id, ordinal, job.tasks[ordinal].parts)
        rows = tuple(
            self.shard(Shard(id=name, size_bytes=size_bytes))
            for name, size_bytes in zip(names, sizes_bytes, strict=True)
        )
        self.results[task] = rows
        for shard in rows:
            self.result_of[shard] = task
        return rows

    def is_kept(self, shard: int) -> bool:
        """Return whether any node, or the job's shared path, holds a copy of a result."""
        return bool(self.shards.replicas[shard]) or bool(self.shards.shared[shard])

    def archive(self, job: int) -> None:
        """Mark an ended job as archived: the next compaction drops its rows."""
        if self.jobs.state[job] not in ENDED:
            raise self.broken("a job in flight was archived", "job", job)
        self.jobs.archived[job] = 1
        self.archived_rows += 1 + self.jobs.task_count[job]

    def write_memo(self, columns: Mapping[str, Mapping[str, float]]) -> None:
        """Write changes of a policy's memo: column -> job -> number."""
        for name, values in columns.items():
            column = self.memos.get(name)
            if column is None:
                column = self.memos[name] = memo()
                column.grow(len(self.names.jobs))
            for job, value in values.items():
                column[self.names.job_rows[job]] = value

    def move_job(self, row: int, to: JobState, message: str | None = None) -> None:
        """Move a job along its table, keeping its queue's counters."""
        before = JobState(self.jobs.state[row])
        if to not in JOB_MOVES[before]:
            raise self.broken(f"job cannot go from {before.name} to {to.name}", "job", row)
        queue = self.jobs.queue[row]
        if before is JobState.QUEUED:
            self.queues.queued[queue] -= 1
            self.queued_jobs[queue].remove(row)
        if to is JobState.ACTIVE:
            self.queues.in_flight[queue] += 1
        if to in ENDED:
            self.jobs.ended_at[row] = self.now
            self._forget_lineage(row)
            if before is not JobState.QUEUED:
                self.queues.in_flight[queue] -= 1
        self.jobs.state[row] = to
        if message is not None:
            self.jobs.message[row] = message
        self.log.append((self.now, "job", row, before, to))

    def skip_numbers(self, count: int) -> None:
        """Skip the next `count` numbers of jobs, and of runs of tasks that may run again.

        O(tasks).
        """
        self.next_job += count
        numbers = self.tasks.next_attempt
        for task, state in enumerate(self.tasks.state.array().tolist()):
            if state not in (TaskState.FAILED, TaskState.CANCELLED):
                numbers[task] += count

    def _forget_lineage(self, job: int) -> None:
        """Drop the dependencies of an ended job: none of its tasks runs again."""
        for task in self.tasks_of(job):
            self.dependents.pop(task, None)
            for shard in self.results.pop(task, ()):
                del self.result_of[shard]

    # --- tasks ---------------------------------------------------------------------------------

    def launch(self, task: int, node: int, gpus: tuple[int, ...], attempt: int) -> None:
        """Grant a WAITING task its demand on a node for its next run; it is STARTING then."""
        job = self.tasks.job[task]
        if attempt != (expected := self.tasks.next_attempt[task]):
            raise self.broken(f"its next run is {expected}, not {attempt}", "task", task)
        self.tasks.grant[task] = self.take(task, node, gpus)
        peak_milli = self.jobs.peak_gpus_milli
        peak_milli[job] = max(self.count_gpus(task, 1), peak_milli[job])
        if math.isnan(self.jobs.started_at[job]):
            self.jobs.started_at[job] = self.now
        self.begin_run(task, node)

    def take(self, task: int, node: int, gpus: tuple[int, ...], purpose: int = FOR_RUN) -> int:
        """Grant a task its demand on a node, and return the row of the grant."""
        self.nodes.idle_since[node] = math.nan
        try:
            return self.ledger.take(task, self.tasks.demand[task], node, gpus, purpose)
        except InvariantBroken as error:
            raise self.broken(str(error), "task", task) from error

    def begin_run(self, task: int, node: int) -> None:
        """Begin the next run of a task on the node of its grant: it is STARTING."""
        attempt = self.tasks.next_attempt[task]
        self.tasks.node[task], self.tasks.run_gpus[task] = node, self.held_gpus(task)
        self.tasks.exit_status[task] = NO_EXIT
        self.tasks.attempts[task], self.tasks.next_attempt[task] = attempt, attempt + 1
        self.tasks.launched_at[task] = self.now
        self.tasks.speed[task] = self.nodes.speed[node] * self.jobs.speed[self.tasks.job[task]]
        self.tasks.read_s[task] = self.expected_read_s(task, node)
        self.tasks.started_at[task] = self.tasks.ended_at[task] = math.nan
        self.move_task(task, TaskState.STARTING)

    def release(self, task: int, to: TaskState) -> None:
        """End the run of a task that holds something, free what it held, and move it on."""
        try:
            self.free(self.tasks.grant[task])
        except InvariantBroken as error:
            raise self.broken(str(error), "task", task) from error
        self.tasks.grant[task] = -1
        if to is TaskState.FINISHED:
            self.tasks.ended_at[task] = self.now
            self.stops.withdraw(task, self.tasks.attempts[task])
        else:
            self.lose_run(task)
        self.tasks.over_bytes[task] = self.tasks.over_gpu_bytes[task] = 0
        self.count_gpus(task, -1)
        self.move_task(task, to)

    def free(self, grant: int) -> None:
        """Free all that a grant holds; its node may be idle then."""
        self.ledger.release(grant)
        node = self.grants.node[grant]
        if self.ledger.is_idle(node):
            self.nodes.idle_since[node] = self.now

    def lose_run(self, task: int) -> None:
        """Record the end of a run without a result.

        What it has computed since its last checkpoint is lost, and the rest of the time that it
        held its GPUs.
        """
        self.tasks.ended_at[task] = self.now
        lost = self.tasks.state[task] != TaskState.STOPPING
        gained_s, lost_s = self.checkpoint_progress_s(task, self.now, lost=lost), 0.0
        self.tasks.progress_s[task] += gained_s
        if self.job(self.tasks.job[task]).elastic is None:  # its units lose nothing
            lost_s = self.now - self.tasks.launched_at[task] - gained_s / self.speed(task)
        lost_gpu_s = lost_s * (self.demand(task).gpus_milli / WHOLE)
        self.jobs.lost_gpu_s[self.tasks.job[task]] += lost_gpu_s
        stop = self.stops.of_run(task, self.tasks.attempts[task])
        if stop is not None:
            self.stops.record(task, stop._replace(lost_gpu_s=lost_gpu_s))
            if stop.cause.lender:
                lender = self.names.queue_rows[stop.cause.lender]
                self.queues.taken_back_runs[lender] += 1
                self.queues.taken_back_gpu_s[lender] += lost_gpu_s

    def record_stop(self, task: int, cause: StopCause, *, now: bool = False, end: str = "") -> None:
        """Record why the last run of a task is, or was, stopped; see `RunStop`."""
        stop = RunStop(self.tasks.attempts[task], self.now, cause, now, end)
        self.stops.record(task, stop)

    def count_gpus(self, task: int, sign: int) -> int:
        """Count the GPUs that a task begins or ceases to hold; return what its job holds in all."""
        job, milli = self.tasks.job[task], sign * self.demand(task).gpus_milli
        self.queues.held_gpus_milli[self.jobs.queue[job]] += milli
        held: int = self.jobs.held_gpus_milli[job] + milli
        self.jobs.held_gpus_milli[job] = held
        return held

    def move_task(self, task: int, to: TaskState) -> None:
        """Move a task along its table, keeping its job's counters."""
        before = TaskState(self.tasks.state[task])
        if to not in TASK_MOVES[before]:
            raise self.broken(f"task cannot go from {before.name} to {to.name}", "task", task)
        job, on_gpu = self.tasks.job[task], bool(self.tasks.gpus[task])
        if (before in HOLDING) != (to in HOLDING):
            running = self.jobs.running if on_gpu else self.jobs.running_cpu
            running[job] += 1 if to in HOLDING else -1
            if self.jobs.elastic[job]:
                regroup(self, job)
        if TaskState.WAITING in (before, to):
            step = 1 if to is TaskState.WAITING else -1
            waiting = self.jobs.waiting if on_gpu else self.jobs.waiting_cpu
            waiting[job] += step
            self.waiting_tasks += step
            if step == 1:
                self.first_waiting_job = min(self.first_waiting_job, job)
        if TaskState.FINISHED in (before, to):
            self.jobs.unfinished[job] += 1 if before is TaskState.FINISHED else -1
        if before is TaskState.FINISHED:
            self.tasks.progress_s[task] = 0.0  # its result is lost: it starts from the beginning
            for shard in self.results.get(task, ()):
                self.forget_away(shard)
        elif to in (TaskState.FAILED, TaskState.CANCELLED):
            gpus = self.demand(task).gpus_milli / WHOLE
            self.jobs.lost_gpu_s[job] += self.tasks.progress_s[task] * gpus
            self.tasks.progress_s[task] = 0.0
        self.tasks.state[task] = to
        self.log.append((self.now, "task", task, before, to))

    def unfinished_before(self, task: int) -> int:
        """Return how many of the tasks that must finish before a task have not."""
        first = self.jobs.first_task[self.tasks.job[task]]
        return sum(
            self.tasks.state[first + before] != TaskState.FINISHED
            for before in self.task(task).after
        )
