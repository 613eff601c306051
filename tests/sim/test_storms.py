"""Storms over the simulated world under policies: random clusters, jobs and faults.

After every batch all laws hold; every job ends, or it is shown that it cannot.
"""

from __future__ import annotations

import pytest
from tests.sim.weather import ride

from headgate.model import RunId
from headgate.policies.flow import FlowSharing
from headgate.protocol import FailureKind, TaskFailed, TaskFinished, TaskStarted, TaskStopped


def test_no_run_exceeds_its_time_limit_in_a_storm() -> None:
    timed_out = 0
    for seed in range(40):
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
