"""A directory for each program; and small versions of the flow paper's experiments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headgate.experiments.flow import jobs as flow_jobs
from headgate.experiments.flow import overhead as flow_overhead
from headgate.experiments.flow import runs as flow_runs


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a directory for the program, which is also its user's home; no traces are there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HEADGATE_TRACES", raising=False)


@pytest.fixture
def few_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set one small job of each kind, three users, and few GPUs for the large round."""
    small = tuple(
        replace(kind, counts=(6 + number % 3,)) for number, kind in enumerate(flow_jobs.JOB_KINDS)
    )
    monkeypatch.setattr(flow_jobs, "JOB_KINDS", small)
    monkeypatch.setattr(flow_runs, "USERS", 3)
    monkeypatch.setattr(flow_runs, "JOBS_PER_USER", 2)
    monkeypatch.setattr(flow_overhead, "LARGE_NODES", 20)
    monkeypatch.setattr(flow_overhead, "LARGE_JOBS", 5)
