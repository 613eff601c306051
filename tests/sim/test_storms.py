"""Storms over the simulated world under policies: random clusters, jobs and faults.

After every batch all laws hold; every job ends, or it is shown that it cannot.
"""

from __future__ import annotations

import pytest
from tests.cases import cases
from tests.sim.weather import ride

from headgate.model import RunId
from headgate.policies.flow import FlowSharing
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.protocol import FailureKind, TaskFailed, TaskFinished, TaskStarted, TaskStopped
from headgate.state import JobState


def test_no_run_exceeds_its_time_limit_in_a_storm() -> None:
    timed_out = 0
    for seed in range(cases(16)):
        watch = ride(seed, FlowSharing(), limits=True)
        state, started_at = watch.engine.state, dict[RunId, float]()
        for event in (event for batch in watch.batches for event in batch):
            if isinstance(event, TaskStarted):
                started_at[event.run] = event.at
            elif isinstance(event, TaskFinished | TaskFailed | TaskStopped):
                limit_s = state.job(state.names.job_rows[event.run.job]).time_limit_s
                ran_s = event.at - started_at.get(event.run, event.at)
                over = isinstance(event, TaskFailed) and event.kind is FailureKind.TIMED_OUT
                timed_out += over
                if over:
                    assert ran_s == pytest.approx(limit_s), seed
                assert limit_s is None or ran_s <= limit_s + 1e-9, seed
    assert timed_out, "storms with limits have some"


def test_storms_have_jobs_with_limits_and_jobs_after_others() -> None:
    """`check` has seen that no limit is exceeded, and that no job starts too early."""
    limited = waited = cancelled = 0
    for seed in range(cases(24)):
        state = ride(seed, FirstInFirstOut()).engine.state
        for row, job in enumerate(state.names.jobs):
            at = state.jobs.state[row]
            before = {state.jobs.state[state.names.job_rows[name]] for name in job.after}
            finished = at == JobState.FINISHED
            limited += finished and job.is_limited(0) and len(job.tasks) > (job.max_running or 0)
            waited += finished and bool(before)
            if before & {JobState.FAILED, JobState.CANCELLED}:
                assert at == JobState.CANCELLED, seed
                cancelled += 1
            elif before - {JobState.FINISHED}:
                assert at in (JobState.QUEUED, JobState.CANCELLED), seed
    assert min(limited, waited, cancelled) > 3
