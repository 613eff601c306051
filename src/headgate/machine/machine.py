"""The machine: `apply(state, event) -> Effects` holds every transition of the scheduler, once.

The engine, replay, what-if and forecasts all call it; nothing else moves jobs and tasks. It has no
clock, no I/O, no thread and no randomness: the same state and event give the same state and
effects, in any process. What it does without an event of its own (activating queued jobs, retrying
tasks, disbanding gangs) is therefore part of the journal's schema: a change needs a new number.

An event about a run that is no longer held changes nothing and is counted as stale; an event
that the life-cycle tables do not allow raises InvariantBroken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from headgate.base.units import format_seconds
from headgate.machine import archiving, fleet, lineage, needed, queues, widths
from headgate.machine.admission import move_fault
from headgate.machine.copies import add_copy, is_current_result, remove_copy, remove_dataset
from headgate.machine.job_order import activate, cancel_queued, never_starts, release_followers
from headgate.machine.moving import hold_targets
from headgate.machine.network import set_network
from headgate.machine.outstanding import gang_launch, hurry, launch_of, stop_of
from headgate.machine.reports import reported
from headgate.machine.run_ends import counts_as_finished, end_of_job, failed_for_good
from headgate.machine.running_limit import release_held
from headgate.machine.task_cancel import cancel_task
from headgate.model import SHARED, RunId
from headgate.protocol import (
    Admitted,
    BandwidthMeasured,
    Command,
    DatasetAdded,
    DatasetRemoved,
    Event,
    FailureKind,
    GpusWithheld,
    JobAssigned,
    JobCancelled,
    JobsArchived,
    JobSubmitted,
    JournalGap,
    Moved,
    MoveRequested,
    NodeJoined,
    NodeLost,
    NodeReported,
    PlanAdmitted,
    PlanFailed,
    PlanRejected,
    QueueChanged,
    QueueRemoved,
    ReplicaAdded,
    ReplicaLost,
    ResultsExpired,
    SlotsWithdrawn,
    StopCause,
    StopKind,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    TaskStopped,
    Timer,
    TimerFired,
    TopologyChanged,
    WakeAt,
)
from headgate.protocol.plan import policy_broke
from headgate.state import JobState, State, TaskState, hardened, moves, node_memo
from headgate.state.life import ENDED, PENDING, RUNS
from headgate.state.stops import is_cancelled
from headgate.state.usage import record_usage

_RETRY_S_MAX = 60.0  # reached after six failures in a row
_NEVER = float("inf")
_MEMBER_ENDED = StopCause(
    StopKind.GANG, "another member of its gang ended without a result; the gang starts again"
)
_LOST = StopCause(StopKind.LOST, "its node was lost, or data that it was to read")


@dataclass(slots=True)
class Effects:
    """The effects of one event, beside the change of the state.

    `decide`: capacity, shares or waiting tasks have changed, so that a policy may decide
    differently; `stale` counts references to runs, jobs, nodes or timers that no longer exist.
    """

    commands: list[Command] = field(default_factory=list)
    decide: bool = False
    stale: int = 0


def apply(state: State, event: Event) -> Effects:
    """Apply one event to a state and return its effects.

    Raises TypeError for an event that is no transition, InvariantBroken for one that the life-cycle
    tables do not allow.
    """
    handler = _HANDLERS.get(type(event))
    if handler is None:
        raise TypeError(f"no such event: {event!r}")
    state.now = max(state.now, event.at)
    state.version += 1
    handler(transition := _Transition(state), event)
    state.hardened = hardened.kept(state, state.hardened)
    return transition.effects


class _Transition:
    """The application of one event to a state."""

    __slots__ = ("effects", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self.effects = Effects()

    def _stale(self) -> None:
        self.effects.stale += 1

    # --- jobs ------------------------------------------------------------------------------------

    def job_submitted(self, event: JobSubmitted) -> None:
        row = self.state.add_job(event.job)
        if (reason := never_starts(self.state, row)) is not None:
            cancel_queued(self.state, row, reason)
            self._job_ended(row)
        self._activate(self.state.jobs.queue[row])

    def _activate(self, queue: int) -> None:
        """Activate queued jobs up to the queue's `max_jobs_in_flight`."""
        state, limit = self.state, self.state.queue(queue).max_jobs_in_flight
        queued = state.queued_jobs[queue]
        while limit is None or state.queues.in_flight[queue] < limit:
            row = queued.earliest() if limit is None else queued.next()
            if row is None:
                return
            activate(state, row)
            self.effects.decide = True

    def job_cancelled(self, event: JobCancelled) -> None:
        row = self.state.names.job_rows.get(event.job)
        stopping = row is not None and self.state.jobs.state[row] == JobState.STOPPING
        if row is None or self.state.jobs.state[row] in ENDED or (stopping and not event.now):
            self._stale()
            return
        cause = StopCause(StopKind.CANCELLED, f"cancelled by {event.by}", by=event.by)
        if event.now:
            self.effects.commands += hurry(self.state, row, cause)
        if not stopping:
            self._end_job(row, cause.text, cause, now=event.now)

    def task_cancelled(self, event: TaskCancelled) -> None:
        stops = cancel_task(self.state, event)
        if stops is None:
            self._stale()
            return
        self.effects.commands += stops
        self.effects.decide = True
        self._settle(self.state.names.job_rows[event.job])

    def slots_withdrawn(self, event: SlotsWithdrawn) -> None:
        row = needed.withdraw(self.state, event.job)
        if row is None:
            self._stale()
        else:
            self._settle(row)

    def _end_job(self, row: int, message: str, cause: StopCause, *, now: bool = False) -> None:
        """Abort a job, as failed if a task has: cancel its waiting tasks and stop its runs."""
        state = self.state
        self.effects.decide = True
        if state.jobs.state[row] == JobState.QUEUED:
            cancel_queued(self.state, row, message)
            self._job_ended(row)
            return
        for task in state.tasks_of(row):
            moves.give_up(state, task)
        state.move_job(row, JobState.STOPPING, message)
        for task in state.tasks_of(row):
            task_state = state.tasks.state[task]
            if task_state in PENDING:
                state.move_task(task, TaskState.CANCELLED)
            elif task_state in (TaskState.STARTING, TaskState.RUNNING):
                self._stop(task, cause, now=now)
        self._settle(row)

    def _job_ended(self, row: int) -> None:
        """Activate queued jobs after the end of one; cancel those that can never start now."""
        for queue in release_followers(self.state, row):
            self._activate(queue)

    def _settle(self, row: int) -> None:
        """End a job once none of its tasks runs or waits; else release tasks that it holds back."""
        end = end_of_job(self.state, row)
        if end is None:
            release_held(self.state, row)
            widths.settle(self.state, row)
            return
        self.state.move_job(row, end)
        self.effects.decide = True
        self._job_ended(row)

    # --- cluster and data ------------------------------------------------------------------------

    def queue_changed(self, event: QueueChanged) -> None:
        if not queues.change(self.state, event.queue):
            self._stale()
            return
        self._activate(self.state.names.queue_rows[event.queue.name])
        self.effects.decide = True

    def queue_removed(self, event: QueueRemoved) -> None:
        self.effects.stale += not queues.remove(self.state, event.name)

    def job_assigned(self, event: JobAssigned) -> None:
        changed = queues.assign(self.state, event.job, event.queue)
        for queue in changed:
            self._activate(queue)
        self.effects.stale += not changed
        self.effects.decide |= bool(changed)

    def node_joined(self, event: NodeJoined) -> None:
        row = self.state.names.node_rows.get(event.node.id)
        if row is not None and self.state.nodes.alive[row]:
            self._lose_node(row)  # it returned before its loss was observed: its runs are lost
        row = self.state.add_node(event.node, kept=event.kept, without=frozenset(event.without))
        for shard in event.holds:
            if shard.id in self.state.names.shard_rows:
                add_copy(self.state, shard, row)
        self.effects.commands += fleet.joined(self.state, event)
        self.effects.decide = True

    def node_lost(self, event: NodeLost) -> None:
        row = self._live_node(event.node)
        if row is not None:
            self._lose_node(row)
            self.effects.commands += fleet.lost(self.state, event.node)

    def fleet_changed(self, event: Event) -> None:
        known = fleet.TRANSITIONS[type(event)](self.state, event)
        self.effects.decide |= known
        self.effects.stale += not known

    def gpus_withheld(self, event: GpusWithheld) -> None:
        row = self._live_node(event.node)
        if row is None:
            return
        if self.state.node(row).incarnation != event.incarnation:
            self._stale()  # observed before the node was lost and returned
        elif self.state.ledger.withhold(row, frozenset(event.gpus)):
            for task in moves.units_on_withheld(self.state, row):
                moves.give_up(self.state, task)
            self.effects.decide = True

    def node_reported(self, event: NodeReported) -> None:
        known, changed = reported(self.state, event)
        self.effects.stale += not known
        self.effects.decide |= changed

    def _live_node(self, name: str) -> int | None:
        """Return the row of a node that is up; count an event about any other as stale."""
        row = self.state.names.node_rows.get(name)
        if row is None or not self.state.nodes.alive[row]:
            self._stale()
            return None
        return row

    def _lose_node(self, node: int) -> None:
        """Remove a lost node with its replicas; its tasks wait again, or end when stopping."""
        state = self.state
        for task in moves.units_on(state, node):
            moves.give_up(state, task)
        here = [task for task in state.holding() if state.tasks.node[task] == node]
        for task in here:
            if state.tasks.state[task] != TaskState.STOPPING:
                state.record_stop(task, StopCause(StopKind.LOST, f"{state.node(node).id} was lost"))
            self._requeue(task)
        self._settle_requeued(here + lineage.requeue_lost(state, state.remove_node(node)))
        self.effects.decide = True

    def network_changed(self, event: BandwidthMeasured | TopologyChanged) -> None:
        self.effects.decide |= set_network(self.state, event)

    def replica_added(self, event: ReplicaAdded) -> None:
        if event.run is not None and not is_current_result(self.state, event.run):
            self._stale()
            return
        if event.node == SHARED:
            add_copy(self.state, event.shard, None)
            return
        row = self.state.names.node_rows.get(event.node)
        if row is not None:  # a copy on a node that was just lost counts when the node returns
            add_copy(self.state, event.shard, row)
        if self._live_node(event.node) is not None:
            self.effects.decide = True

    def replica_lost(self, event: ReplicaLost) -> None:
        node = self.state.names.node_rows.get(event.node)
        shard = self.state.names.shard_rows.get(event.shard)
        if shard is None or (node is None and event.node != SHARED):
            self._stale()
            return
        remove_copy(self.state, shard, node)
        self._settle_requeued(lineage.requeue_lost(self.state, (shard,)))
        self.effects.decide = True

    def results_expired(self, event: ResultsExpired) -> None:
        self.effects.stale += not archiving.expire_results(self.state, event.job)

    def jobs_archived(self, event: JobsArchived) -> None:
        self.effects.stale += archiving.archive(self.state, event.jobs)

    def dataset_added(self, event: DatasetAdded) -> None:
        self.state.datasets = {**self.state.datasets, event.dataset.name: event.dataset}
        for shard in event.dataset.shards:
            self.state.shard(shard)

    def dataset_removed(self, event: DatasetRemoved) -> None:
        if event.name not in self.state.datasets:
            self._stale()
            return
        remove_dataset(self.state, event.name)

    def journal_gap(self, event: JournalGap) -> None:
        self.state.skip_numbers(event.events)

    # --- runs ------------------------------------------------------------------------------------

    def _held(self, run: RunId) -> int | None:
        """Return the task of a run that holds resources; count any other run as stale."""
        task = self.state.run_row(run)
        if task is None or self.state.tasks.state[task] not in RUNS:
            self._stale()
            return None
        return task

    def _requeue(self, task: int) -> None:
        """End a run without a result: its task moves, waits again, or ends with its job."""
        state = self.state
        if state.tasks.target[task] >= 0 and not state.unfinished_before(task):
            moves.vacate(state, task)
            self._arrive(task)
            return
        moves.give_up(state, task)
        ending = state.jobs.state[state.tasks.job[task]] == JobState.STOPPING
        if ending or is_cancelled(state, task):
            state.release(task, TaskState.CANCELLED)
        else:
            needed.wait_again(state, task)

    def _arrive(self, task: int) -> None:
        """Start the next runs of a unit that moves, once the run of its last member has ended."""
        state, unit = self.state, moves.unit_of(self.state, task)
        if all(state.tasks.state[member] == TaskState.MOVING for member in unit):
            for member in unit:
                moves.arrive(state, member)
            self._launch(state.tasks.job[task], unit)

    def _settle_requeued(self, tasks: Iterable[int]) -> None:
        """Disband the gangs of requeued tasks, and end their jobs if these were stopping."""
        for job in dict.fromkeys(self.state.tasks.job[task] for task in tasks):
            self._disband(job)
            self._settle(job)

    def _disband(self, job: int, cause: StopCause = _MEMBER_ENDED) -> None:
        """Stop the other runs of a gang that lost a member; the gang starts again as a whole.

        O(its tasks). Tasks of a gang come after no others, so none of them is blocked.
        """
        state = self.state
        if not state.job(job).gang or state.jobs.state[job] != JobState.ACTIVE:
            return
        for task in state.tasks_of(job):
            task_state = state.tasks.state[task]
            if task_state == TaskState.FINISHED:
                state.move_task(task, TaskState.WAITING)
            elif task_state in (TaskState.STARTING, TaskState.RUNNING):
                self._stop(task, cause)

    def _stop(self, task: int, cause: StopCause, *, now: bool = False) -> None:
        self.state.record_stop(task, cause, now=now)
        self.state.move_task(task, TaskState.STOPPING)
        self.effects.commands.append(stop_of(self.state, task))

    def task_started(self, event: TaskStarted) -> None:
        task = self._held(event.run)
        if task is None:
            return
        if self.state.tasks.state[task] == TaskState.STARTING:
            self.state.tasks.started_at[task] = event.at
            self.state.move_task(task, TaskState.RUNNING)
        else:
            self._stale()  # reported twice, or already being stopped

    def _end_run(self, event: TaskFinished | TaskFailed | TaskStopped) -> int | None:
        """Record the usage of an ended run and return its task."""
        task = self._held(event.run)
        if task is not None:
            record_usage(self.state, task, event.usage)
            self.effects.decide = True
        return task

    def task_finished(self, event: TaskFinished) -> None:
        task = self._end_run(event)
        if task is None:
            return
        state = self.state
        if state.tasks.state[task] == TaskState.STOPPING and not counts_as_finished(state, task):
            self._requeue(task)
        else:
            moves.give_up(state, task)
            state.release(task, TaskState.FINISHED)
            state.record_runtime(task)
            lineage.finished(state, task, event.output_bytes, event.part_bytes)
            needed.finish_others(state, state.tasks.job[task])
        self._settle(state.tasks.job[task])

    def task_failed(self, event: TaskFailed) -> None:
        task = self._end_run(event)
        if task is None:
            return
        state = self.state
        if state.tasks.state[task] == TaskState.STOPPING or event.kind is FailureKind.LOST:
            if state.tasks.state[task] != TaskState.STOPPING:
                state.record_stop(task, _LOST)
            self._requeue_after_end(task)
            return
        job = state.tasks.job[task]
        if event.kind is FailureKind.TIMED_OUT:  # as its next run would
            limit_s = state.job(job).time_limit_s
            limit = "" if limit_s is None else f" of {format_seconds(limit_s)}"
            over = f"ran over its time limit{limit}"
            state.record_stop(task, StopCause(StopKind.TIMED_OUT, over))
            self._fail_job(task, f"task {state.ordinal(task)} {over}", event.message)
            return
        what = failed_for_good(state, task, event.kind)
        if what is not None:
            self._fail_job(task, what, event.message)
            return
        self._requeue(task)
        self._disband(job)
        self._settle(job)

    def _fail_job(self, task: int, what: str, message: str) -> None:
        """End a run for good, and its job with it."""
        self.state.release(task, TaskState.FAILED)
        text = what + (f": {message}" if message else "")
        cause = StopCause(StopKind.JOB_FAILED, f"its job failed: {what}")
        self._end_job(self.state.tasks.job[task], text, cause)

    def task_stopped(self, event: TaskStopped) -> None:
        task = self._end_run(event)
        if task is None:
            return
        stop = self.state.stops.of_run(task, event.run.attempt)
        if event.message and stop is not None:
            self.state.stops.record(task, stop._replace(end=event.message))
        self._requeue_after_end(task)

    def _requeue_after_end(self, task: int) -> None:
        """Requeue a task whose run ended without a result for no fault of its program."""
        state, job = self.state, self.state.tasks.job[task]
        none_finished = state.jobs.unfinished[job] == state.jobs.task_count[job]
        disbanded = state.tasks.state[task] == TaskState.STOPPING and none_finished
        self._requeue(task)
        if not disbanded:  # a member is only stopped with all others that run
            self._disband(job)
        self._settle(job)

    # --- plans and timers ------------------------------------------------------------------------

    def plan_admitted(self, event: PlanAdmitted) -> None:
        state = self.state
        for width in event.widths:
            self.effects.decide = True
            for job, cause in widths.request(state, width):
                self._disband(job, cause)
        for job, starts in groupby(event.starts, lambda start: start.run.job):
            self._start(state.names.job_rows[job], tuple(starts))
        for stop in event.stops:
            cause = queues.why_stopped(state, stop)
            for run in stop.runs:
                self._preempt(run, cause)
        for move in event.moves:
            self._move(move)
        state.write_memo(event.memo)
        node_memo.write(state, event.node_memo)
        self.effects.commands += fleet.order(state, event)
        state.hardened = event.hardened
        self._set_timer(Timer.ASK_AGAIN, event.again_at)
        state.policy_failures = 0
        if event.dropped:
            self.effects.stale += event.dropped
            self.effects.decide = True
        archiving.compact_if_large(self.state)

    def _start(self, job: int, starts: Sequence[Admitted]) -> None:
        """Launch runs of one job."""
        state = self.state
        tasks = []
        for run, node, gpus in starts:
            task = state.jobs.first_task[job] + run.ordinal
            needed.grant(state, task)
            state.launch(task, state.names.node_rows[node], gpus, run.attempt)
            tasks.append(task)
        self._launch(job, tasks)

    def _launch(self, job: int, tasks: Iterable[int]) -> None:
        if self.state.job(job).gang:
            self.effects.commands.append(gang_launch(self.state, job, tasks))
        else:
            self.effects.commands += [launch_of(self.state, task) for task in tasks]

    def _move(self, move: Moved) -> None:
        """Hold the places of the next runs, then stop the present ones."""
        for task, cause in hold_targets(self.state, move):
            self._stop(task, cause)

    def move_requested(self, event: MoveRequested) -> None:
        if move_fault(self.state, event.move) is not None:
            self._stale()
            return
        self._move(event.move)
        self.effects.decide = True

    def _preempt(self, run: RunId, cause: StopCause) -> None:
        """Stop a run, or its whole gang; the tasks wait again."""
        task = self._held(run)
        if task is None or self.state.tasks.state[task] == TaskState.STOPPING:
            return  # stopped already, with another member of its gang
        job = self.state.tasks.job[task]
        if self.state.job(job).gang:
            self._disband(job, cause)
        else:
            self._stop(task, cause)

    def plan_rejected(self, event: PlanFailed | PlanRejected) -> None:
        """Record the failure, and request a decision after a pause that doubles with each."""
        state = self.state
        state.refusals = (policy_broke(event.message),)
        pause_s = min(_RETRY_S_MAX, 2.0 ** min(state.policy_failures, 6))
        state.policy_failures += 1
        self._set_timer(Timer.RETRY, state.now + pause_s)
        archiving.compact_if_large(self.state)

    def _set_timer(self, timer: Timer, at: float | None) -> None:
        """Set a timer, unless one of the same purpose fires earlier."""
        timers = self.state.timers
        if at is not None and at < timers.get(timer, _NEVER):
            self.state.timers = {**timers, timer: at}
            self.effects.commands.append(WakeAt(timer=timer, at=at))

    def timer_fired(self, event: TimerFired) -> None:
        timers = self.state.timers
        if event.at < timers.get(event.timer, _NEVER):
            self._stale()  # fired already, or set to a later time since
            return
        self.state.timers = {timer: at for timer, at in timers.items() if timer != event.timer}
        self.effects.decide = True


_HANDLERS: dict[type[Event], Callable[[_Transition, Any], None]] = {
    JobSubmitted: _Transition.job_submitted,
    JobCancelled: _Transition.job_cancelled,
    TaskCancelled: _Transition.task_cancelled,
    SlotsWithdrawn: _Transition.slots_withdrawn,
    QueueChanged: _Transition.queue_changed,
    QueueRemoved: _Transition.queue_removed,
    JobAssigned: _Transition.job_assigned,
    NodeJoined: _Transition.node_joined,
    NodeLost: _Transition.node_lost,
    GpusWithheld: _Transition.gpus_withheld,
    NodeReported: _Transition.node_reported,
    **dict.fromkeys(fleet.TRANSITIONS, _Transition.fleet_changed),
    BandwidthMeasured: _Transition.network_changed,
    TopologyChanged: _Transition.network_changed,
    ReplicaAdded: _Transition.replica_added,
    ReplicaLost: _Transition.replica_lost,
    ResultsExpired: _Transition.results_expired,
    JobsArchived: _Transition.jobs_archived,
    DatasetAdded: _Transition.dataset_added,
    DatasetRemoved: _Transition.dataset_removed,
    JournalGap: _Transition.journal_gap,
    TaskStarted: _Transition.task_started,
    TaskFinished: _Transition.task_finished,
    TaskFailed: _Transition.task_failed,
    TaskStopped: _Transition.task_stopped,
    PlanAdmitted: _Transition.plan_admitted,
    MoveRequested: _Transition.move_requested,
    PlanFailed: _Transition.plan_rejected,
    PlanRejected: _Transition.plan_rejected,
    TimerFired: _Transition.timer_fired,
}
