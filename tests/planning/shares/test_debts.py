"""Debts against numerical integration of their equation; remaining work against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.base.rng import Random, stream
from headgate.planning.shares.debts import (
    COUNTED_AT,
    MISSED_GPU_S,
    MISSING_GPUS,
    debts_gpu_s,
    remaining_gpu_s,
    updated_debts,
)
from headgate.planning.shares.standing import Standing, standing_of
from headgate.planning.shares.work import IdleTasks, RunsByGpu
from headgate.protocol import Memo
from headgate.state import Snapshot, State, TaskState
from headgate.testing.random_worlds import random_state


def plain(seed: int) -> State:
    """A random state of jobs whose tasks need one GPU at most."""
    return random_state(
        seed, lambda job: not job.gang and all(task.demand.gpus <= 1 for task in job.tasks)
    )


def remember(state: State, memo: Memo) -> None:
    """Write the memo of a plan, as admission names it: by the ids of jobs."""
    state.write_memo(
        {
            name: {state.job(job).id: value for job, value in values.items()}
            for name, values in memo.items()
        }
    )


def integrated(owed: float, missing: list[tuple[float, int]], memory_s: float) -> float:
    """Integrate a debt over spells of (seconds, GPUs missing) in many small steps."""
    for lasts_s, gpus in missing:
        step_s = lasts_s / 20_000
        for _ in range(20_000):
            owed += step_s * (gpus - owed / memory_s)
    return owed


@settings(max_examples=15)
@given(
    spells=st.lists(st.tuples(st.floats(0.0, 300.0), st.integers(-20, 20)), min_size=1, max_size=4),
    memory_s=st.sampled_from([30.0, 600.0]),
    paid=st.sampled_from([0.0, 15.0]),
)
def test_a_debt_follows_its_differential_equation(
    spells: list[tuple[float, int]], memory_s: float, paid: float
) -> None:
    state = plain(3)
    jobs = len(standing_of(state.freeze()).jobs)
    assert jobs > 1

    def note(missing: int, paid: float) -> None:
        standing = standing_of(state.freeze())
        owed = debts_gpu_s(standing, memory_s=memory_s)
        others = np.zeros(jobs - 1)
        changed = updated_debts(
            standing, owed, np.append(paid, others), np.append(missing, others.astype(int))
        )
        remember(state, changed)

    for number, (lasts_s, gpus) in enumerate(spells):
        note(gpus, paid if number == 0 else 0.0)
        for _ in range(3):
            state.now += lasts_s / 3
            note(gpus, 0.0)  # rounds in which nothing changes
    owed = debts_gpu_s(standing_of(state.freeze()), memory_s=memory_s)
    assert owed[0] == pytest.approx(integrated(-paid, spells, memory_s), rel=1e-2, abs=0.5)
    assert not owed[1:].any()


def test_a_debt_decays_to_37_percent_in_memory_s() -> None:
    state = plain(3)
    job = int(standing_of(state.freeze()).jobs[0])
    known = {MISSED_GPU_S: 100.0, MISSING_GPUS: 0, COUNTED_AT: state.now}
    remember(state, {name: {job: value} for name, value in known.items()})
    state.now += 600.0
    snapshot = state.freeze()
    owed = debts_gpu_s(standing_of(snapshot), memory_s=600.0)
    assert owed[0] == pytest.approx(100 / math.e)


def test_only_changed_debts_are_written() -> None:
    state = plain(3)
    standing = standing_of(state.freeze())
    none = np.zeros(len(standing.jobs))
    new = updated_debts(standing, none, none, none.astype(int))
    assert [*new[COUNTED_AT]] == standing.jobs.tolist()
    remember(state, new)
    standing = standing_of(state.freeze())
    assert not any(updated_debts(standing, none, none, none.astype(int)).values())
    paid = none.copy()
    paid[1] = 2.5
    row = int(standing.jobs[1])
    assert updated_debts(standing, none, paid, none.astype(int)) == {
        MISSED_GPU_S: {row: -2.5}, MISSING_GPUS: {row: 0}, COUNTED_AT: {row: state.now},
    }  # fmt: skip


def naive_remaining(snapshot: Snapshot, standing: Standing) -> list[float]:
    """Job by job and task by task."""
    tasks, ours, left = snapshot.tasks, [], []
    for job in standing.jobs.tolist():
        for task in snapshot.tasks_of(job):
            state = tasks.state[task]
            if tasks.gpus[task] and state not in (TaskState.FINISHED, TaskState.CANCELLED):
                ours.append((job, task, snapshot.runtime_classes.held_s[tasks.runtime_class[task]]))
    known = [takes_s for _, _, takes_s in ours if not math.isnan(takes_s)]
    mean_s = sum(known) / len(known) if known else 1.0
    for job in standing.jobs.tolist():
        total = 0.0
        for owner, task, learnt_s in ours:
            takes_s = mean_s if math.isnan(learnt_s) else learnt_s
            takes_s = max(0.0, takes_s - tasks.progress_s[task])
            if tasks.state[task] in (TaskState.STARTING, TaskState.RUNNING):
                takes_s = max(0.0, takes_s - (snapshot.now - tasks.launched_at[task]))
            total += takes_s if owner == job else 0.0
        left.append(total)
    return left


def set_estimates(state: State, rng: Random) -> None:
    """Set random estimates of some runtime classes, and checkpoints of some tasks."""
    for row in range(len(state.runtime_classes.held_s)):
        if rng.random() < 0.7:
            state.runtime_classes.held_s[row] = rng.uniform(0.0, 30.0)
    for task in range(len(state.tasks.state)):
        if rng.random() < 0.3:
            state.tasks.progress_s[task] = rng.uniform(0.0, 20.0)


def test_remaining_work_is_the_estimates_less_time_run_and_checkpoints() -> None:
    unfinished = 0
    for seed in range(200):
        state = plain(seed)
        set_estimates(state, stream(seed, "kinds"))
        snapshot = state.freeze()
        standing = standing_of(snapshot)
        expected = naive_remaining(snapshot, standing)
        left_s = remaining_gpu_s(standing, RunsByGpu(snapshot), IdleTasks(snapshot))
        assert left_s.tolist() == pytest.approx(expected), seed
        unfinished += len(expected)
    assert unfinished > 200
