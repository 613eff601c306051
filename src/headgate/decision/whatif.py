"""What if: a copy of a snapshot that may be changed, and played forward under a policy.

The copy shares nothing that is written to; whatever is tried on it, the state stays as it is. What
the engine does at a run's end is done here alike (a test holds the two together).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from headgate.base.rng import stream
from headgate.decision.policy import Policy
from headgate.model import Node, part_sizes
from headgate.protocol import Plan
from headgate.state import JobState, Snapshot, State, TaskState
from headgate.state.life import ENDED
from headgate.state.tables import TABLES, thaw_table
from headgate.state.view import Names

_RUNS = (TaskState.STARTING, TaskState.RUNNING)


def thaw(snapshot: Snapshot) -> State:
    """Return a state of its own that says what a snapshot says.

    O(names + tasks of unfinished jobs); pages of tables are copied where they are written to.
    """
    state = State()
    for name in TABLES:
        setattr(state, name, thaw_table(getattr(snapshot, name)))
    state.on_paper = True
    state.version, state.now = snapshot.version, snapshot.now
    state.bandwidth, state.datasets = snapshot.bandwidth, snapshot.datasets
    state.refusals, state.waiting_tasks = snapshot.refusals, snapshot.waiting_tasks
    state.first_waiting_job = snapshot.first_waiting_job
    state.names = _names(snapshot)
    state.user_rows = {user: row for row, user in enumerate(state.names.users)}
    state.queued_jobs = [[] for _ in range(len(snapshot.queues.spec))]
    states = snapshot.jobs.state.array()
    for job in np.flatnonzero(states == JobState.QUEUED).tolist():
        state.queued_jobs[snapshot.jobs.queue[job]].append(job)
    for job in np.flatnonzero(~np.isin(states, ENDED)).tolist():
        _link(state, job)
    return state


def _names(snapshot: Snapshot) -> Names:
    """Copy the names of what a snapshot has; the writer may have added more by now."""
    names = snapshot.names

    def known(rows: dict[Any, int], count: int) -> dict[Any, int]:
        return {name: row for name, row in rows.copy().items() if row < count}

    jobs, nodes = len(snapshot.jobs.state), len(snapshot.nodes.alive)
    queues, shards = len(snapshot.queues.spec), len(snapshot.shards.size_bytes)
    return replace(
        names,
        jobs=names.jobs[:jobs],
        job_rows=known(names.job_rows, jobs),
        node_rows=known(names.node_rows, nodes),
        racks=names.racks[:],
        users=names.users[:],
        queue_rows=known(names.queue_rows, queues),
        shards=names.shards[:shards],
        shard_rows=known(names.shard_rows, shards),
        input_rows=known(names.input_rows, len(snapshot.inputs.shards)),
        kind_rows=known(names.kind_rows, len(snapshot.kinds.compute_s)),
    )


def _link(state: State, job: int) -> None:
    first = state.jobs.first_task[job]
    later: dict[int, list[int]] = {}
    for ordinal, task in enumerate(state.job(job).tasks):
        for before in task.after:
            later.setdefault(first + before, []).append(first + ordinal)
    state.dependents.update((before, tuple(after)) for before, after in later.items())


class WhatIf:
    """A world on paper: runs end when told to, and a policy deals out what is free."""

    def __init__(self, snapshot: Snapshot, policy: Policy, at: float) -> None:
        """Start at a time from a snapshot, which stays as it is."""
        self.state = thaw(snapshot)
        self.state.now = max(self.state.now, at)
        self.freed = False
        self._policy = policy
        self._rounds = 0

    def join(self, node: Node) -> None:
        """Let a node join."""
        self.state.version += 1
        self.state.add_node(node)

    def end(self, task: int, at: float) -> None:
        """Let a run end well at a time, with all that follows: later tasks, the next job.

        How long such runs take is not learnt from it: it is what such ends are made of.
        """
        state = self.state
        state.version += 1
        state.now = max(state.now, at)
        job = state.tasks.job[task]
        if state.tasks.state[task] == TaskState.STOPPING:
            self._give_back(task)
        else:
            state.release(task, TaskState.FINISHED)
            self._result(task)
        self._settle(job)

    def round(self) -> Plan:
        """Let the policy decide, and carry out what it decides at once.

        Runs that it cuts short have ended for the next round, like those being stopped already;
        `freed` says whether there were any, so that the policy is asked again.
        """
        snapshot = self.state.freeze()
        self._rounds += 1
        plan = self._policy.decide(snapshot, stream(0, "what if", self._rounds))
        state = self.state
        state.version += 1
        stopping = np.flatnonzero(snapshot.tasks.state.array() == TaskState.STOPPING).tolist()
        state.refusals = plan.refusals
        for p in plan.placements:
            state.launch(p.task, p.node, p.gpus, launch=0)
        for task in stopping:
            self._give_back(task)
            self._settle(state.tasks.job[task])
        for task in plan.preemptions:
            self._preempt(task)
        self.freed = bool(stopping or plan.preemptions)
        state.note_counts(plan)
        return plan

    def _preempt(self, task: int) -> None:
        """End a run, or all runs of its gang, without a result."""
        state = self.state
        job = state.tasks.job[task]
        if not state.job(job).gang:
            self._give_back(task)
            return
        for member in state.tasks_of(job):
            if state.tasks.state[member] in _RUNS:
                self._give_back(member)
            elif state.tasks.state[member] == TaskState.FINISHED:
                state.move_task(member, TaskState.WAITING)

    def _give_back(self, task: int) -> None:
        state = self.state
        if state.jobs.state[state.tasks.job[task]] == JobState.STOPPING:
            state.release(task, TaskState.CANCELLED)
            return
        blocked = state.unfinished_before(task)
        state.tasks.blockers[task] = blocked
        state.release(task, TaskState.BLOCKED if blocked else TaskState.WAITING)

    def _result(self, task: int) -> None:
        state, spec = self.state, self.state.task(task)
        later = state.dependents.get(task, ())
        if spec.output_bytes or later:
            for shard in state.keep_result(task, part_sizes(spec.output_bytes, spec.parts)):
                state.add_replica(shard, state.tasks.node[task])
        for other in later:
            state.tasks.blockers[other] -= 1
            if not state.tasks.blockers[other] and state.tasks.state[other] == TaskState.BLOCKED:
                state.move_task(other, TaskState.WAITING)

    def _settle(self, job: int) -> None:
        state = self.state
        at = state.jobs.state[job]
        if at == JobState.ACTIVE and state.jobs.unfinished[job] == 0:
            state.move_job(job, JobState.FINISHED)
        elif at == JobState.STOPPING and not (
            state.jobs.running[job] or state.jobs.running_cpu[job]
        ):
            state.move_job(job, JobState.CANCELLED)
        else:
            return
        self._activate(state.jobs.queue[job])

    def _activate(self, queue: int) -> None:
        """Bring queued jobs into flight: in order of arrival, one user's by priority."""
        state, limit = self.state, self.state.queue(queue).max_jobs_in_flight
        while (line := state.queued_jobs[queue]) and (
            limit is None or state.queues.in_flight[queue] < limit
        ):
            user = state.jobs.user[line[0]]
            own = [r for r in line if state.jobs.user[r] == user]
            job = max(own, key=lambda r: (state.jobs.priority[r], -r))
            state.move_job(job, JobState.ACTIVE)
            for task in state.tasks_of(job):
                blocked = state.tasks.blockers[task] > 0
                state.move_task(task, TaskState.BLOCKED if blocked else TaskState.WAITING)
