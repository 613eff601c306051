"""The engine: `handle(*events) -> list[Command]` is the only code that changes scheduler state.

It has no clock, no I/O, no thread and no randomness of its own. All events of one call belong to
one instant: they are applied in order, then at most one `Decide` is asked for.

An answer to a command that is no longer held (a run that was given up, a plan that came twice) is
counted in `stale` and dropped; an event that the life-cycle tables do not allow raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from headgate.engine import admission, lineage
from headgate.model import SHARED
from headgate.protocol import (
    BandwidthMeasured,
    Command,
    DatasetAdded,
    DatasetRemoved,
    Decide,
    Event,
    FailureKind,
    JobCancelled,
    JobSubmitted,
    LaunchGang,
    LaunchTask,
    NodeJoined,
    NodeLost,
    PlanFailed,
    PlanReady,
    QueueChanged,
    Refusal,
    ReplicaAdded,
    ReplicaLost,
    ResultsExpired,
    StopTask,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    TaskStopped,
    TimerFired,
    WakeAt,
)
from headgate.protocol.reasons import PolicyBroke
from headgate.state import JobState, Snapshot, State, TaskState
from headgate.state.life import ENDED

_RETRY_S_MAX = 60.0  # reached after six failures in a row


class Engine:
    """State, and the commands that are held until the world answers them."""

    __slots__ = (
        "_again", "_deciding", "_dirty", "_launches", "_next_command", "_out", "_policy_failures",
        "_stops", "_timer", "stale", "state",
    )  # fmt: skip

    def __init__(self) -> None:
        self.state = State()
        self.stale = 0
        self._next_command = 1
        self._launches: dict[int, int] = {}  # id of a held LaunchTask -> its task
        self._stops: dict[int, int] = {}  # id of a held LaunchTask -> id of the StopTask for it
        self._deciding: int | None = None  # id of the held Decide
        self._timer: tuple[int, float] | None = None  # after a failure: the held WakeAt's id, time
        self._again: tuple[int, float] | None = None  # the same, as the last plan asked for
        self._policy_failures = 0  # in a row
        self._dirty = False  # capacity, shares or the line have changed since the last Decide
        self._out: list[Command] = []

    # --- the door in, the door out ---------------------------------------------------------------

    def handle(self, *events: Event) -> list[Command]:
        """Apply the facts of one instant, in order, and return the wishes that follow."""
        self._out = []
        for event in events:
            apply = _APPLY.get(type(event))
            if apply is None:
                raise TypeError(f"no such event: {event!r}")
            self.state.now = max(self.state.now, event.at)
            self.state.version += 1
            apply(self, event)
        waits = self.state.waiting_tasks and self._timer is None
        if self._dirty and self._deciding is None and waits:
            self._dirty = False
            self._deciding = self._id()
            self._out.append(Decide(id=self._deciding, seen=self.state.version))
        return self._out

    def snapshot(self) -> Snapshot:
        """Return the state as of now, frozen; taken when `Decide` asks for it."""
        return self.state.freeze()

    def outstanding(self) -> list[Command]:
        """Return every command that no event has answered yet, for a world that lost them.

        Launches name today's sources. Asking a world twice is safe: it does a command once.
        """
        held: list[Command] = []
        gangs: dict[int, list[LaunchTask]] = {}
        for launch_id, task in self._launches.items():
            launch = self._launch_command(launch_id, task)
            job = self.state.tasks.job[task]
            if self.state.job(job).gang:
                gangs.setdefault(job, []).append(launch)
            else:
                held.append(launch)
        held += [LaunchGang(id=m[0].id, members=tuple(m)) for m in gangs.values()]
        for launch_id, stop_id in self._stops.items():
            held.append(self._stop_command(stop_id, launch_id, self._launches[launch_id]))
        for timer in (self._timer, self._again):
            if timer is not None:
                held.append(WakeAt(id=timer[0], at=timer[1]))
        if self._deciding is not None:
            held.append(Decide(id=self._deciding, seen=self.state.version))
        return held

    def _id(self) -> int:
        number = self._next_command
        self._next_command += 1
        return number

    # --- jobs ------------------------------------------------------------------------------------

    def _job_submitted(self, event: JobSubmitted) -> None:
        row = self.state.add_job(event.job)
        self._activate(self.state.jobs.queue[row])

    def _activate(self, queue: int) -> None:
        """Bring queued jobs into flight while the queue may have more.

        In order of arrival; but among the jobs of the user whose turn it is, priority goes first.
        """
        state, limit = self.state, self.state.queue(queue).max_jobs_in_flight
        while state.queued_jobs[queue] and (limit is None or state.queues.in_flight[queue] < limit):
            line = state.queued_jobs[queue]
            user = state.jobs.user[line[0]]
            row = max(
                (r for r in line if state.jobs.user[r] == user),
                key=lambda r: (state.jobs.priority[r], -r),
            ) if limit is not None else line[0]  # fmt: skip
            state.move_job(row, JobState.ACTIVE)
            for task in state.tasks_of(row):
                blocked = state.tasks.blockers[task] > 0
                state.move_task(task, TaskState.BLOCKED if blocked else TaskState.WAITING)
            self._dirty = True

    def _job_cancelled(self, event: JobCancelled) -> None:
        row = self.state.names.job_rows.get(event.job)
        if row is None or self.state.jobs.state[row] in (*ENDED, JobState.STOPPING):
            self.stale += 1
            return
        self._end_job(row, f"cancelled by {event.by}", cancelled=True)

    def _end_job(self, row: int, message: str, *, cancelled: bool) -> None:
        """End a job before its time: what waits is cancelled, what runs is stopped."""
        state = self.state
        queued = state.jobs.state[row] == JobState.QUEUED
        if not queued:
            state.move_job(row, JobState.STOPPING, message)
        for task in state.tasks_of(row):
            at = state.tasks.state[task]
            if at in (TaskState.HELD, TaskState.BLOCKED, TaskState.WAITING):
                state.move_task(task, TaskState.CANCELLED)
            elif at in (TaskState.STARTING, TaskState.RUNNING):
                self._stop(task)
        if queued:
            state.move_job(row, JobState.CANCELLED, message)
        else:
            self._settle(row, JobState.CANCELLED if cancelled else JobState.FAILED)
        self._dirty = True

    def _settle(self, row: int, outcome: JobState | None = None) -> None:
        """Close a job once nothing of it runs or waits any more."""
        state = self.state
        at = state.jobs.state[row]
        if at == JobState.ACTIVE and state.jobs.unfinished[row] == 0:
            state.move_job(row, JobState.FINISHED)
        elif at == JobState.STOPPING and not (
            state.jobs.running[row] or state.jobs.running_cpu[row]
        ):
            if outcome is None:
                failed = any(state.tasks.state[t] == TaskState.FAILED for t in state.tasks_of(row))
                outcome = JobState.FAILED if failed else JobState.CANCELLED
            state.move_job(row, outcome)
        else:
            return
        self._dirty = True
        self._activate(state.jobs.queue[row])

    # --- cluster and data ------------------------------------------------------------------------

    def _queue_changed(self, event: QueueChanged) -> None:
        self.state.set_queue(event.queue)
        self._activate(self.state.names.queue_rows[event.queue.name])
        self._dirty = True

    def _node_joined(self, event: NodeJoined) -> None:
        row = self.state.names.node_rows.get(event.node.id)
        if row is not None and self.state.nodes.alive[row]:
            self._lose(row)  # it came back before anyone saw it go: what it ran is gone
        self.state.add_node(event.node)
        self._dirty = True

    def _node_lost(self, event: NodeLost) -> None:
        row = self.state.names.node_rows.get(event.node)
        if row is None or not self.state.nodes.alive[row]:
            self.stale += 1
            return
        self._lose(row)

    def _lose(self, node: int) -> None:
        """Give up a node: its runs wait again (or end, when stopping), its replicas are gone."""
        state = self.state
        here = [(i, t) for i, t in self._launches.items() if state.tasks.node[t] == node]
        for launch_id, task in here:
            self._forget(launch_id)
            self._requeue(task)
        state.remove_node(node)
        again = [t for _, t in here] + lineage.revive(state)
        for job in dict.fromkeys(state.tasks.job[t] for t in again):
            self._disband(job)
            self._settle(job)
        self._dirty = True

    def _bandwidth_measured(self, event: BandwidthMeasured) -> None:
        if event.bandwidth != self.state.bandwidth:
            self.state.bandwidth = event.bandwidth
            self._dirty = True

    def _replica_added(self, event: ReplicaAdded) -> None:
        if event.node == SHARED:
            self.state.shards.shared[self.state.shard(event.shard)] = 1
            return
        node = self.state.names.node_rows.get(event.node)
        if node is None or not self.state.nodes.alive[node]:
            self.stale += 1
            return
        self.state.add_replica(self.state.shard(event.shard), node)
        self._dirty = True

    def _replica_lost(self, event: ReplicaLost) -> None:
        node = self.state.names.node_rows.get(event.node)
        shard = self.state.names.shard_rows.get(event.shard)
        if shard is None or (node is None and event.node != SHARED):
            self.stale += 1
            return
        if node is None:
            self.state.shards.shared[shard] = 0
        else:
            self.state.remove_replica(shard, node)
        for task in lineage.revive(self.state):
            self._disband(self.state.tasks.job[task])
        self._dirty = True

    def _results_expired(self, event: ResultsExpired) -> None:
        row = self.state.names.job_rows.get(event.job)
        jobs = self.state.jobs
        if row is None or jobs.state[row] not in ENDED or not math.isnan(jobs.expired_at[row]):
            self.stale += 1
            return
        self.state.expire(row)

    def _dataset_added(self, event: DatasetAdded) -> None:
        self.state.datasets = {**self.state.datasets, event.dataset.name: event.dataset}
        for shard in event.dataset.shards:
            self.state.shard(shard)

    def _dataset_removed(self, event: DatasetRemoved) -> None:
        if event.name not in self.state.datasets:
            self.stale += 1
            return
        kept = {n: d for n, d in self.state.datasets.items() if n != event.name}
        self.state.datasets = kept

    # --- runs ------------------------------------------------------------------------------------

    def _held(self, cause: int) -> int | None:
        """Return the task of a held launch; count an answer to one that is not held."""
        task = self._launches.get(cause)
        if task is None:
            self.stale += 1
        return task

    def _forget(self, launch_id: int) -> None:
        del self._launches[launch_id]
        self._stops.pop(launch_id, None)

    def _requeue(self, task: int) -> None:
        """End a run without a result: the task waits again, or ends when its job is ending."""
        state = self.state
        if state.jobs.state[state.tasks.job[task]] == JobState.STOPPING:
            state.release(task, TaskState.CANCELLED)
        else:
            blocked = state.unfinished_before(task)
            state.tasks.blockers[task] = blocked
            state.release(task, TaskState.BLOCKED if blocked else TaskState.WAITING)

    def _disband(self, job: int) -> None:
        """Stop what still runs of a gang that lost a member; it starts again whole."""
        state = self.state
        if not state.job(job).gang or state.jobs.state[job] != JobState.ACTIVE:
            return
        for task in state.tasks_of(job):
            at = state.tasks.state[task]
            if at == TaskState.FINISHED:
                state.move_task(task, TaskState.WAITING)
            elif at in (TaskState.STARTING, TaskState.RUNNING):
                self._stop(task)
        for task in state.tasks_of(job):
            lineage.reblock(state, task)

    def _stop(self, task: int) -> None:
        self.state.move_task(task, TaskState.STOPPING)
        launch_id = self.state.tasks.launch[task]
        self._stops[launch_id] = self._id()
        self._out.append(self._stop_command(self._stops[launch_id], launch_id, task))

    def _task_started(self, event: TaskStarted) -> None:
        task = self._held(event.cause)
        if task is None:
            return
        if self.state.tasks.state[task] == TaskState.STARTING:
            self.state.tasks.started_at[task] = event.at
            self.state.move_task(task, TaskState.RUNNING)
        else:
            self.stale += 1  # said twice, or already asked to stop

    def _run_over(self, event: TaskFinished | TaskFailed | TaskStopped) -> int | None:
        """Close the books of a held run, however it ended, and return its task."""
        task = self._held(event.cause)
        if task is not None:
            self.state.note_usage(task, event.usage)
            self._forget(event.cause)
            self._dirty = True
        return task

    def _task_finished(self, event: TaskFinished) -> None:
        task = self._run_over(event)
        if task is None:
            return
        state = self.state
        job = state.tasks.job[task]
        if state.tasks.state[task] == TaskState.STOPPING:
            self._requeue(task)  # its end came too late to count
        else:
            state.release(task, TaskState.FINISHED)
            state.learn(task)
            lineage.finished(state, task, event.output_bytes, event.part_bytes)
        self._settle(job)

    def _task_failed(self, event: TaskFailed) -> None:
        task = self._run_over(event)
        if task is None:
            return
        state = self.state
        job = state.tasks.job[task]
        if state.tasks.state[task] == TaskState.STOPPING or event.kind is FailureKind.LOST:
            self._give_back(task)
            return
        failures = state.tasks.failures[task] + 1
        state.tasks.failures[task] = failures
        if failures <= state.job(job).retries:
            self._requeue(task)
            self._disband(job)
            return
        state.release(task, TaskState.FAILED)
        times = f"{failures} times" if failures > 1 else "once"
        text = f"task {state.ordinal(task)} failed {times}: {event.message}"
        self._end_job(job, text, cancelled=False)

    def _task_stopped(self, event: TaskStopped) -> None:
        task = self._run_over(event)
        if task is not None:
            self._give_back(task)

    def _give_back(self, task: int) -> None:
        """Take note of a run that ended without a result, through no fault of its program."""
        job = self.state.tasks.job[task]
        self._requeue(task)
        self._disband(job)
        self._settle(job)

    def _launch_command(self, launch_id: int, task: int) -> LaunchTask:
        state = self.state
        node = state.tasks.node[task]
        return LaunchTask(
            id=launch_id,
            job=state.job(state.tasks.job[task]).id,
            ordinal=state.ordinal(task),
            attempt=state.tasks.attempts[task],
            node=state.node(node).id,
            gpus=state.tasks.held[task],
            reads=state.planned_reads(task, node),
            progress_s=state.tasks.progress_s[task],
        )

    def _stop_command(self, stop_id: int, launch_id: int, task: int) -> StopTask:
        state = self.state
        return StopTask(
            id=stop_id,
            launch=launch_id,
            job=state.job(state.tasks.job[task]).id,
            node=state.node(state.tasks.node[task]).id,
        )

    # --- decisions -------------------------------------------------------------------------------

    def _plan_ready(self, event: PlanReady) -> None:
        fresh = event.seen == self.state.version - 1  # nothing happened since it was asked for
        if event.cause != self._deciding:
            self.stale += 1
            return
        self._deciding = None
        self.state.refusals = event.plan.refusals
        for group in admission.groups(self.state, event.plan):
            fault = admission.fault(self.state, group)
            if fault is None:
                self._admit(group)
            elif self._overtaken(fault, len(group), fresh=fresh):
                return
        for task in event.plan.preemptions:
            fault = admission.preemption_fault(self.state, task)
            if fault is None:
                self._preempt(task)
            elif self._overtaken(fault, 1, fresh=fresh):
                return
        self.state.note_counts(event.plan)
        self._ask_again(event.plan.again_at)
        self._policy_failures = 0

    def _ask_again(self, at: float | None) -> None:
        """Let the policy be asked at a time; an earlier wish of a plan's stands until it fires."""
        if at is not None and (self._again is None or at < self._again[1]):
            self._again = (self._id(), at)
            self._out.append(WakeAt(id=self._again[0], at=at))

    def _overtaken(self, fault: str, parts: int, *, fresh: bool) -> bool:
        """Count parts of a plan that came too late; say whether the plan was never right.

        It was not, if the state is the one that the policy saw.
        """
        if fresh:
            self._policy_broke(f"the policy planned the impossible: {fault}")
            return True
        self.stale += parts
        self._dirty = True
        return False

    def _preempt(self, task: int) -> None:
        """Stop a run, or the gang that it belongs to; what is stopped waits again."""
        job = self.state.tasks.job[task]
        if self.state.job(job).gang:
            self._disband(job)
        else:
            self._stop(task)

    def _admit(self, group: admission.Group) -> None:
        launches = []
        for placement in group:
            launch_id = self._id()
            self._launches[launch_id] = placement.task
            self.state.launch(placement.task, placement.node, placement.gpus, launch_id)
            launches.append(self._launch_command(launch_id, placement.task))
        if self.state.job(self.state.tasks.job[group[0].task]).gang:
            self._out.append(LaunchGang(id=self._id(), members=tuple(launches)))
        else:
            self._out += launches

    def _plan_failed(self, event: PlanFailed) -> None:
        if event.cause != self._deciding:
            self.stale += 1
            return
        self._deciding = None
        self._policy_broke(event.message)

    def _policy_broke(self, message: str) -> None:
        """Explain, and ask again after a pause that doubles with each failure in a row."""
        self.state.refusals = (Refusal(reason=PolicyBroke(message=message)),)
        pause_s = min(_RETRY_S_MAX, 2.0 ** min(self._policy_failures, 6))
        self._policy_failures += 1
        if self._timer is None:
            self._timer = (self._id(), self.state.now + pause_s)
            self._out.append(WakeAt(id=self._timer[0], at=self._timer[1]))

    def _timer_fired(self, event: TimerFired) -> None:
        if self._timer is not None and event.cause == self._timer[0]:
            self._timer = None
        elif self._again is not None and event.cause == self._again[0]:
            self._again = None
        else:
            self.stale += 1
            return
        self._dirty = True


_APPLY: dict[type[Event], Callable[[Engine, Any], None]] = {
    JobSubmitted: Engine._job_submitted,
    JobCancelled: Engine._job_cancelled,
    QueueChanged: Engine._queue_changed,
    NodeJoined: Engine._node_joined,
    NodeLost: Engine._node_lost,
    BandwidthMeasured: Engine._bandwidth_measured,
    ReplicaAdded: Engine._replica_added,
    ReplicaLost: Engine._replica_lost,
    ResultsExpired: Engine._results_expired,
    DatasetAdded: Engine._dataset_added,
    DatasetRemoved: Engine._dataset_removed,
    TaskStarted: Engine._task_started,
    TaskFinished: Engine._task_finished,
    TaskFailed: Engine._task_failed,
    TaskStopped: Engine._task_stopped,
    PlanReady: Engine._plan_ready,
    PlanFailed: Engine._plan_failed,
    TimerFired: Engine._timer_fired,
}
