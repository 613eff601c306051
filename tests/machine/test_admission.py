"""Admission against a naive account of what is left: it lets in exactly what still fits."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.base.rng import Random
from headgate.machine import admission
from headgate.protocol import Placement, Plan, PlanAdmitted, PlanReady, PlanRejected
from headgate.state import State
from headgate.testing.policy_laws import Paper
from headgate.testing.random_worlds import random_state


def guess(state: State, rng: Random) -> Placement:
    """Return a placement that is right at times, and never far from it."""
    task = rng.randrange(-1, len(state.tasks.state) + 1)
    node = rng.randrange(-1, len(state.nodes.alive) + 1)
    known = 0 <= task < len(state.tasks.state)
    need = state.tasks.gpus[task] if known and rng.random() < 0.9 else rng.randint(0, 3)
    up = 0 <= node < len(state.nodes.alive)
    free = state.free_gpus_of(node).tolist() if up and rng.random() < 0.8 else [0, 1, 2, 3, 9, -1]
    return Placement(task=task, node=node, gpus=tuple(rng.sample(free, min(need, len(free)))))


def admit(state: State, *placements: Placement) -> PlanAdmitted | PlanRejected:
    """Return the verdict on a plan that was made on the state as it is."""
    ready = PlanReady(at=state.now, seen=state.version, plan=Plan(placements=placements))
    return admission.admit(state, state.freeze(), ready)


@settings(max_examples=300)
@given(seed=st.integers(0, 10**6))
def test_what_is_let_in_is_exactly_what_still_fits(seed: int) -> None:
    state, rng = random_state(seed), Random(seed)
    snapshot = state.freeze()
    for _ in range(60):
        placement = guess(state, rng)
        verdict, expected = admit(state, placement), Paper(snapshot).take(placement)
        whole = 0 <= placement.task < len(snapshot.tasks.state)
        if whole:
            job = snapshot.tasks.job[placement.task]
            whole = not snapshot.job(job).gang or snapshot.jobs.task_count[job] == 1
        admitted = isinstance(verdict, PlanAdmitted)
        assert admitted == (expected is None and whole), (placement, verdict, expected)


@settings(max_examples=200)
@given(seed=st.integers(0, 10**6))
def test_a_gang_is_let_in_exactly_when_all_of_it_fits_at_once(seed: int) -> None:
    state, rng = random_state(seed), Random(seed)
    snapshot = state.freeze()
    gangs = [j for j in range(len(snapshot.jobs.state)) if snapshot.job(j).gang]
    for job in gangs * 10:
        placements = [
            Placement(task=t, node=p.node, gpus=p.gpus)
            for t in snapshot.tasks_of(job)
            for p in [guess(state, rng)]
        ]
        paper = Paper(snapshot)
        fits = [paper.take(p) for p in placements] == [None] * len(placements)
        assert isinstance(admit(state, *placements), PlanAdmitted) == fits


def test_parts_of_a_plan_stand_alone_but_gangs_stand_together() -> None:
    state = next(
        s for seed in range(99)
        if (s := random_state(seed)) and any(j.gang and len(j.tasks) > 1 for j in s.names.jobs)
        and any(not j.gang and len(j.tasks) > 1 for j in s.names.jobs)
    )  # fmt: skip
    rows = range(len(state.tasks.state))
    plan = Plan(placements=tuple(Placement(task=t, node=0, gpus=()) for t in reversed(rows)))
    groups = admission._groups(state, plan)
    for group in groups:
        job = state.tasks.job[group[0].task]
        whole = state.jobs.task_count[job] if state.job(job).gang else 1
        assert [state.tasks.job[p.task] for p in group] == [job] * whole
    firsts = [g[0].task for g in groups]
    assert firsts == sorted(firsts, reverse=True), "in the plan's order"
