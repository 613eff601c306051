"""What would change now: hypothetical rounds of a policy, with more or the same nodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headgate.base.errors import Problem, SpecError, nearest
from headgate.foresight.explain import ExplanationContext, explain
from headgate.foresight.whatif import WhatIf
from headgate.model import WHOLE, Locality, Node
from headgate.planning.times.estimates import Estimates
from headgate.ports import Policy
from headgate.protocol import Reason, Reserved
from headgate.state import Snapshot, State
from headgate.state.life import ENDED, EXECUTING, HOLDING
from headgate.state.view import View

MORE_NODES_MOST = 10_000
_ROUNDS_MOST = 8

ReadBytes = tuple[int, int, int]  # by Locality


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedRun:
    """A run that would start, and what it would read, in bytes by locality and in seconds."""

    job: str
    ordinal: int
    node: str
    gpus: tuple[int, ...]
    read_bytes: ReadBytes
    read_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptedRun:
    """A run that would be preempted, its time so far, and the work that would be lost."""

    job: str
    ordinal: int
    node: str
    gpus: tuple[int, ...]
    ran_s: float
    lost_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutlook:
    """Changes for a job: `held_gpus` before, `holds_gpus` after; `reason`: why the rest waits."""

    job: str
    user: str
    queue: str
    held_gpus: int
    holds_gpus: int
    started_tasks: int
    cut_tasks: int
    waiting_tasks: int
    read_bytes: ReadBytes
    lost_gpu_s: float
    reason: Reason | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldUntil:
    """GPUs of a node that a task's run holds, until its expected end, None if unknown."""

    task: str
    node: str
    gpus: tuple[int, ...]
    until: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationOutlook:
    """GPUs that are kept free for waiting tasks of a job: `gpus` by (node, indices there).

    They start together at `at`, and are expected to end at `until`, None if unknown; `waits_for`
    are the runs that hold these GPUs after the round.
    """

    job: str
    at: float | None
    until: float | None
    places: tuple[tuple[str, tuple[int, ...]], ...]
    waits_for: tuple[HeldUntil, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a policy would change now, job by job and run by run.

    Rounds are repeated while they preempt runs, since these free GPUs; `settled` is whether that
    ended within the limit of rounds. `reservations` are those of the last round, by time.
    """

    policy: str
    nodes: int
    gpus: int
    free_gpus: int
    rounds: int
    settled: bool
    jobs: tuple[JobOutlook, ...]
    starts: tuple[StartedRun, ...]
    cuts: tuple[PreemptedRun, ...]
    reservations: tuple[ReservationOutlook, ...]


def more_nodes(snapshot: Snapshot, count: int, like: str | None) -> tuple[Node, ...]:
    """Return new nodes like the one named, else like the last node of the most common shape.

    Raises SpecError for a count out of range, an unknown node, or no node to copy.
    """
    if not 1 <= count <= MORE_NODES_MOST:
        text = f"{count} is not between 1 and {MORE_NODES_MOST}"
        raise SpecError([Problem(path="nodes", problem=text)])
    model = _model(snapshot, like)
    names = (f"new-{n}" for n in range(1, count + len(snapshot.nodes.spec) + 1))
    free = (name for name in names if name not in snapshot.names.node_rows)
    return tuple(replace(model, id=next(free)) for _ in range(count))


def _model(snapshot: Snapshot, like: str | None) -> Node:
    if like is not None:
        row = snapshot.names.node_rows.get(like)
        if row is None or row >= len(snapshot.nodes.spec):
            hint = nearest(like, snapshot.names.node_rows.copy())
            problem = Problem(path="like", problem=f"there is no node '{like}'", hint=hint)
            raise SpecError([problem])
        return snapshot.node(row)
    nodes = [snapshot.node(row) for row in snapshot.live_nodes()]
    if not nodes:
        hint = "name one that has been up with --like"
        problem = Problem(path="nodes", problem="no node is up to copy", hint=hint)
        raise SpecError([problem])
    shapes = Counter((node.gpus, node.cpus) for node in nodes)
    most = max(shapes.values())
    return next(n for n in reversed(nodes) if shapes[n.gpus, n.cpus] == most)


def outlook(snapshot: Snapshot, policy: Policy, now: float, nodes: Sequence[Node] = ()) -> Outlook:
    """Return what a policy would change now, with `nodes` added to those that are up."""
    what_if = WhatIf(snapshot, policy, now)
    for node in nodes:
        what_if.join(node)
    rounds, settled = 0, False
    reservations: Sequence[Reserved] = ()
    while rounds < _ROUNDS_MOST and not settled:
        reservations = what_if.round().reservations
        rounds += 1
        settled = not what_if.continues
    state = what_if.state
    before = snapshot.tasks.attempts
    starts = [_start(state, t) for t in state.holding() if state.tasks.attempts[t] > before[t]]
    cuts = [
        _preempted(snapshot, t, state.now)
        for t in _running(snapshot)
        if state.run_row(snapshot.run_id(t)) is None or state.tasks.state[t] not in HOLDING
    ]
    up = state.live_nodes()
    return Outlook(
        policy=policy.name,
        nodes=len(up),
        gpus=state.gpu_count(),
        free_gpus=sum(state.nodes.free_gpus[n] for n in up),
        rounds=rounds,
        settled=settled,
        jobs=tuple(_jobs(snapshot, state, starts, cuts)),
        starts=tuple(starts),
        cuts=tuple(cuts),
        reservations=tuple(_reservations(state.freeze(), reservations)),
    )


def _reservations(
    snapshot: Snapshot, reservations: Sequence[Reserved]
) -> Iterator[ReservationOutlook]:
    """Yield reservations with the runs that they wait for, by time."""
    holders = _holders(snapshot) if reservations else {}
    first, node_of = snapshot.nodes.first_gpu, snapshot.gpus.node
    for each in sorted(reservations, key=lambda each: (each.at, each.job)):
        places: dict[int, list[int]] = {}
        held: dict[int, list[int]] = {}  # by task: its GPUs among them
        whole = set[int]()  # tasks on GPUs of which no part is left
        for row, milli in sorted(zip(each.gpus, each.milli, strict=True)):
            node = node_of[row]
            places.setdefault(node, []).append(row - first[node])
            for task in holders.get(row, ()):
                held.setdefault(task, []).append(row - first[node])
                whole |= {task} if milli >= WHOLE else set()
        ends = Estimates(snapshot).end_at(np.array(list(held), np.int64))
        runs = [
            HeldUntil(
                task=snapshot.task_id(task),
                node=snapshot.node(snapshot.tasks.node[task]).id,
                gpus=tuple(gpus),
                until=_known(end),
            )
            for (task, gpus), end in zip(held.items(), ends.tolist(), strict=True)
            if task in whole or end <= each.at
        ]
        yield ReservationOutlook(
            job=snapshot.job(each.job).id,
            at=_known(each.at),
            until=_known(each.until),
            places=tuple((snapshot.node(node).id, tuple(gpus)) for node, gpus in places.items()),
            waits_for=tuple(runs),
        )


def _known(at: float) -> float | None:
    return at if math.isfinite(at) else None


def _holders(snapshot: Snapshot) -> dict[int, list[int]]:
    """Return the tasks that hold each GPU (row), at least a part of it; O(grants)."""
    holders: dict[int, list[int]] = {}
    grants = snapshot.grants
    for grant in np.flatnonzero(grants.task.array() >= 0).tolist():
        first = snapshot.nodes.first_gpu[grants.node[grant]]
        for index in grants.gpus[grant]:
            holders.setdefault(first + index, []).append(grants.task[grant])
    return holders


def _running(view: Snapshot) -> list[int]:
    rows: list[int] = np.flatnonzero(np.isin(view.tasks.state.array(), EXECUTING)).tolist()
    return rows


def _start(state: State, task: int) -> StartedRun:
    node = state.tasks.node[task]
    return StartedRun(
        job=state.job(state.tasks.job[task]).id,
        ordinal=state.ordinal(task),
        node=state.node(node).id,
        gpus=state.held_gpus(task),
        read_bytes=read_bytes(state, task, node),
        read_s=state.expected_read_s(task, node),
    )


def read_bytes(view: View, task: int, node: int) -> ReadBytes:
    """Return what a run of a task on a node would read, in bytes by locality."""
    read = [0] * len(Locality)
    for each in view.planned_reads(task, node):
        read[each.locality] += each.shard.size_bytes
    by_node, by_rack, by_cluster = read
    return by_node, by_rack, by_cluster


def _preempted(snapshot: Snapshot, task: int, now: float) -> PreemptedRun:
    tasks = snapshot.tasks
    ran_s = max(0.0, now - tasks.launched_at[task])
    return PreemptedRun(
        job=snapshot.job(tasks.job[task]).id,
        ordinal=snapshot.ordinal(task),
        node=snapshot.node(tasks.node[task]).id,
        gpus=snapshot.held_gpus(task),
        ran_s=ran_s,
        lost_s=ran_s - snapshot.checkpoint_progress_s(task, now) / snapshot.speed(task),
    )


def _jobs(
    snapshot: Snapshot, state: State, starts: Sequence[StartedRun], cuts: Sequence[PreemptedRun]
) -> list[JobOutlook]:
    """Return the jobs that have not ended, in order of arrival."""
    begins: dict[str, list[StartedRun]] = {}
    for start in starts:
        begins.setdefault(start.job, []).append(start)
    ends: dict[str, list[PreemptedRun]] = {}
    for cut in cuts:
        ends.setdefault(cut.job, []).append(cut)
    outlooks = []
    held, holds = snapshot.gpus_of_jobs().tolist(), state.gpus_of_jobs().tolist()
    rows = np.flatnonzero(~np.isin(snapshot.jobs.state.array(), ENDED)).tolist()
    context = ExplanationContext(state, rows)
    for row in rows:
        job = snapshot.job(row)
        begun, ended = begins.get(job.id, []), ends.get(job.id, [])
        node, rack, cluster = (sum(s.read_bytes[where] for s in begun) for where in Locality)
        outlooks.append(
            JobOutlook(
                job=job.id,
                user=job.user,
                queue=job.queue,
                held_gpus=held[row],
                holds_gpus=holds[row],
                started_tasks=len(begun),
                cut_tasks=len(ended),
                waiting_tasks=state.jobs.waiting[row] + state.jobs.waiting_cpu[row],
                read_bytes=(node, rack, cluster),
                lost_gpu_s=sum(c.lost_s * len(c.gpus) for c in ended),
                reason=explain(state, row, state.now, context=context).reason,
            )
        )
    return outlooks
