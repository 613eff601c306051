"""Figures of a simulation of elastic training with deadlines."""

from __future__ import annotations

from typing import Any

from headgate.sim.deadlines.run import DeadlineOutcome


def figures(outcome: DeadlineOutcome, *, policy: str, rules: str, gpus: int) -> dict[str, Any]:
    """Return the figures by name; ratios are of all jobs, null where there are none."""
    jobs = outcome.jobs
    span = gpus * outcome.makespan_s
    return {
        "policy": policy,
        "rules": rules,
        "gpus": gpus,
        "jobs": jobs,
        "deadline_ratio": outcome.in_time / jobs if jobs else None,
        "deadline_bound": outcome.bound / jobs if jobs else None,
        "accepted": outcome.accepted,
        "rejected_at_admission": sum(outcome.rejected.values()),
        "rejected": dict(sorted(outcome.rejected.items())),
        "rejected_in_time": outcome.rejected_in_time,
        "promises_broken": outcome.broken,
        "resizes": outcome.resizes,
        "gpu_utilisation": outcome.busy_gpu_s / span if span else None,
        "makespan_s": outcome.makespan_s,
        "decisions": outcome.decisions,
        "decision_cpu_s": outcome.decision_cpu_s,
    }
