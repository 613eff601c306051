"""Admission against a naive ledger, and large plans against small ones."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from headgate.base.rng import Random
from headgate.machine import admission, apply
from headgate.model import Gpu, Job, Node, Queue, RunId, Task
from headgate.protocol import (
    Group,
    JobCancelled,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    Plan,
    PlanAdmitted,
    PlanReady,
    PlanRejected,
    QueueChanged,
    Start,
    Step,
    Steps,
    Stop,
)
from headgate.protocol.reasons import PreemptedFor
from headgate.state import Scratch, Snapshot, State, TaskState
from headgate.state.quotas import gpus_alone
from headgate.state.view import View
from headgate.testing.policy_laws import IndependentLedger
from headgate.testing.random_worlds import random_state

SEED = st.integers(0, 10**6)


def guess(state: View, rng: Random) -> Start:
    """Return a start that is right at times, and never far from it."""
    task = rng.randrange(-1, len(state.tasks.state) + 1)
    node = rng.randrange(-1, len(state.nodes.alive) + 1)
    known = 0 <= task < len(state.tasks.state)
    need = state.tasks.gpus[task] if known and rng.random() < 0.9 else rng.randint(0, 3)
    up = 0 <= node < len(state.nodes.alive)
    free = state.free_gpus_of(node).tolist() if up and rng.random() < 0.8 else [0, 1, 2, 3, 9, -1]
    return Start(task, node, tuple(rng.sample(free, min(need, len(free)))))


def admit(
    state: State, groups: Sequence[Group | Step], seen: Snapshot | None = None
) -> PlanAdmitted | PlanRejected:
    """Return the verdict on a plan that was made on a snapshot, by default of the current state."""
    seen = seen or state.freeze()
    plan = Plan(steps=Steps.of(groups))
    return admission.admit(state, seen, PlanReady(at=state.now, seen=seen.version, plan=plan))


@settings(max_examples=cases(120))
@given(seed=SEED)
def test_a_start_is_admitted_exactly_when_it_fits(seed: int) -> None:
    state, rng = random_state(seed), Random(seed)
    snapshot = state.freeze()
    for _ in range(60):
        start = guess(state, rng)
        verdict, expected = admit(state, [start]), IndependentLedger(snapshot).take(start)
        whole = 0 <= start.task < len(snapshot.tasks.state)
        if whole:
            job = snapshot.tasks.job[start.task]
            whole = not snapshot.job(job).gang or snapshot.jobs.task_count[job] == 1
        admitted = isinstance(verdict, PlanAdmitted)
        assert admitted == (expected is None and whole), (start, verdict, expected)


@settings(max_examples=cases(80))
@given(seed=SEED)
def test_gang_is_admitted_exactly_when_all_its_tasks_fit_together(seed: int) -> None:
    state, rng = random_state(seed), Random(seed)
    snapshot = state.freeze()
    gangs = [j for j in range(len(snapshot.jobs.state)) if snapshot.job(j).gang]
    for job in gangs * 10:
        starts = [guess(state, rng)._replace(task=t) for t in snapshot.tasks_of(job)]
        independent = IndependentLedger(snapshot)
        fits = [independent.take(start) for start in starts] == [None] * len(starts)
        if snapshot.job(job).distinct_nodes:
            fits = fits and len({start.node for start in starts}) == len(starts)
        assert isinstance(admit(state, [Group(tuple(starts))]), PlanAdmitted) == fits


# --------------------------------------------------------------------------------- groups


def small_world() -> State:
    """Return a state in which two runs hold both GPUs of node a; b has two that are free."""
    state = State()
    nodes = [Node(id=name, rack="r", gpus=(Gpu(memory_bytes=10),) * 2, cpus=2) for name in "ab"]
    for event in (
        QueueChanged(at=0, queue=Queue(name="q")),
        *(NodeJoined(at=0, node=node) for node in nodes),
        *(
            JobSubmitted(
                at=0,
                job=Job(
                    id=name,
                    name=name,
                    user="ada",
                    queue="q",
                    tasks=(Task(),) * 2,
                    gang=name in "ghd",
                    distinct_nodes=name == "d",
                ),
            )
            for name in "rjghd"
        ),
    ):
        apply(state, event)
    verdict = admit(state, [Start(0, 0, (0,)), Start(1, 0, (1,))])
    assert isinstance(verdict, PlanAdmitted)
    apply(state, verdict)
    return state


def test_each_group_of_a_stale_plan_is_admitted_or_dropped_as_a_whole() -> None:
    state = small_world()
    seen = state.freeze()
    apply(state, JobCancelled(at=1, job="r", by="ada"))  # its runs are being stopped already
    verdict = admit(
        state,
        [
            Group((Stop(0), Start(2, 1, (0,)))),  # the stop was overtaken, so the start goes too
            Start(3, 1, (1,)),
            Stop(1),
        ],
        seen,
    )
    assert isinstance(verdict, PlanAdmitted)
    assert [start.run for start in verdict.starts] == [RunId("j", 1, 1)]
    assert (verdict.stops, verdict.dropped) == ((), 3)


def test_start_cannot_use_gpus_that_a_stop_of_its_group_frees() -> None:
    verdict = admit(small_world(), [Group((Stop(0), Start(2, 0, (0,))))])
    assert isinstance(verdict, PlanRejected)
    assert "task 2: GPU 0 of a is not free" in verdict.message


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ([Start(4, 1, (0,)), Start(5, 1, (1,))], "gang g is not whole in its group"),
        ([Group((Start(4, 1, (0,)), Start(6, 1, (1,))))], "gang g is not whole in its group"),
        (
            [Group((Start(8, 1, (0,)), Start(9, 1, (1,))))],
            "gang d has two members on one node",
        ),
        ([Stop(0), Stop(0)], "task 0 is preempted twice"),
        ([Group((Stop(1), Stop(1)))], "task 1 is preempted twice"),
        ([Group((Start(2, 1, (0,)), Start(2, 1, (1,))))], "task 2 is named twice"),
        ([Stop(2)], "task 2 does not run"),
        ([Stop(-1)], "there is no task -1"),
        ([Start(2, 1, (0,)), Start(3, 1, (0,))], "task 3: GPU 0 of b is not free"),
        ([Start(2, 1, (0,)), Start(3, 2, (0,))], "task 3: node 2 is not up"),
    ],
)
@pytest.mark.parametrize("many", [1, 64])
def test_infeasible_plan_is_rejected_with_the_task_and_the_problem(
    groups: list[Group | Step], says: str, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "_MANY", many)
    verdict = admit(small_world(), groups)
    assert isinstance(verdict, PlanRejected)
    assert says in verdict.message


def test_admitted_members_of_a_gang_are_consecutive() -> None:
    state = small_world()
    for task in (0, 1):
        state.release(task, TaskState.WAITING)
    mixed = (Start(4, 0, (0,)), Start(6, 1, (0,)), Start(5, 0, (1,)), Start(7, 1, (1,)))
    verdict = admit(state, [Group(mixed)])
    assert isinstance(verdict, PlanAdmitted)
    assert [start.run.job for start in verdict.starts] == ["g", "g", "h", "h"]


def test_consecutive_stops_of_one_reason_share_it() -> None:
    reason = PreemptedFor(job="j")
    state = small_world()
    alike = [Group((Stop(1),), reason), Group((Stop(0),), reason)]
    verdict = admit(state, alike)
    assert isinstance(verdict, PlanAdmitted)
    assert verdict.stops == (((RunId("r", 1, 1), RunId("r", 0, 1)), reason.cause(), "j", ""),)
    verdict = admit(state, [Stop(1), alike[1]])
    assert isinstance(verdict, PlanAdmitted)
    assert [stop[1:] for stop in verdict.stops] == [("", "", ""), (reason.cause(), "j", "")]


def test_plan_with_a_memo_that_has_no_name_is_rejected() -> None:
    state = small_world()
    seen = state.freeze()
    plan = Plan(memo={1: {0: 2.0}})  # type: ignore[dict-item]  # as a careless policy returns
    verdict = admission.admit(state, seen, PlanReady(at=0, seen=seen.version, plan=plan))
    assert isinstance(verdict, PlanRejected)
    assert "1 is no name of a memo" in verdict.message


@pytest.mark.parametrize(
    ("memo", "problem"),
    [
        ({1: {0: 2.0}}, "1 is no name of a memo"),
        ({"swrr": {99: 2.0}}, "swrr: there is no node 99"),
        ({"swrr": {-1: 2.0}}, "swrr: there is no node -1"),
        ({"swrr": {0: math.nan}}, "swrr of node .* is nan"),
    ],
)
def test_plan_with_a_faulty_memo_by_node_is_rejected(memo: Any, problem: str) -> None:
    state = small_world()
    seen = state.freeze()
    plan = Plan(node_memo=memo)
    verdict = admission.admit(state, seen, PlanReady(at=0, seen=seen.version, plan=plan))
    assert isinstance(verdict, PlanRejected)
    assert re.search(problem, verdict.message)


# --------------------------------------------------------------------------------- large plans


def place_some(scratch: Scratch, tasks: list[int], *, apart: bool) -> int:
    """Place tasks on the first nodes that fit, maybe on a node each; return how many."""
    nodes, placed = scratch.snapshot.live_nodes(), 0
    for task in tasks:
        node = next((n for n in nodes if scratch.place(task, n)), None)
        placed += node is not None
        if apart and node is not None:
            nodes.remove(node)
    return placed


def some_groups(snapshot: Snapshot, rng: Random) -> list[Group | Step]:
    """Return groups of starts and stops, of one job or of several; rarely is one of them wrong."""
    scratch, groups = Scratch(snapshot), list[list[Step]]()
    for job in snapshot.waiting_jobs():
        tasks = snapshot.waiting_of(job).tolist()
        gang = snapshot.job(job).gang
        milli = sum(snapshot.demand(task).gpus_milli for task in tasks)
        if not scratch.may_hold(job, gpus_alone(milli)) or (
            gang and len(tasks) < len(snapshot.tasks_of(job))
        ):
            continue
        before = len(scratch.starts)
        with scratch.trial() as trial:
            apart = snapshot.job(job).distinct_nodes and rng.random() < 0.9
            if place_some(scratch, tasks, apart=apart) == len(tasks) or not gang:
                trial.keep()
        starts = scratch.starts[before:]
        groups += [[*starts]] if gang and starts else [[start] for start in starts]
    state = snapshot.tasks.state
    running = [t for t in snapshot.holding() if state[t] != TaskState.STOPPING]
    groups += [[Stop(task)] for task in running if rng.random() < 0.3]
    rng.shuffle(groups)
    if rng.random() < 0.2:
        groups.append([guess(snapshot, rng)])
    if groups and rng.random() < 0.1:
        groups.append(groups[0])
    if groups and rng.random() < 0.1:
        rng.choice(groups).pop()
    joined: list[list[Step]] = []
    for group in groups:
        if joined and rng.random() < 0.3:
            joined[-1] += group
        else:
            joined.append([*group])
    return [Group(tuple(group)) for group in joined]


def disturb(state: State, rng: Random) -> None:
    """Let something happen that may overtake a plan."""
    live = [state.node(n).id for n in state.live_nodes()]
    jobs = [job.id for job in state.names.jobs]
    at = state.now
    if live and rng.random() < 0.3:
        apply(state, NodeLost(at=at, node=rng.choice(live)))
    if jobs and rng.random() < 0.6:
        apply(state, JobCancelled(at=at, job=rng.choice(jobs), by="ada"))
    if rng.random() < 0.3:
        name = rng.choice(list(state.names.queue_rows))
        apply(state, QueueChanged(at=at, queue=Queue(name=name, max_gpus=rng.randint(0, 4))))


def test_check_in_columns_equals_the_check_step_by_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = {"admitted": 0, "rejected": 0, "dropped": 0, "columns": 0}
    judged = admission._all_together

    def counted(view: State | Snapshot, steps: Steps) -> object:
        found = judged(view, steps)
        seen["columns"] += found is not None
        return found

    monkeypatch.setattr(admission, "_all_together", counted)
    for seed in range(cases(500)):
        state, rng = random_state(seed), Random(seed)
        snapshot = state.freeze()
        groups = some_groups(snapshot, rng)
        if rng.random() < 0.5:
            disturb(state, rng)
        monkeypatch.setattr(admission, "_MANY", 10**9)
        expected = admit(state, groups, snapshot)
        monkeypatch.setattr(admission, "_MANY", 1)
        verdict = admit(state, groups, snapshot)
        if isinstance(verdict, PlanAdmitted):
            assert verdict == expected, seed
            seen["admitted"] += len(verdict.starts)
            seen["dropped"] += verdict.dropped
        else:  # of several faults, either may name another one
            assert isinstance(expected, PlanRejected), seed
            assert "the plan is infeasible" in verdict.message, seed
            seen["rejected"] += 1
    assert min(seen.values()) > 100, seen
