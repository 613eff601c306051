"""Jobs that declare exactly how long they run."""

from __future__ import annotations

from headgate.model import Demand, Job, Task


def declared_job(name: str, demands: list[Demand], run_s: float) -> Job:
    """Return a job of a user of its own, a gang if it has several tasks."""
    tasks = tuple(Task(demand=demand, compute_s=run_s) for demand in demands)
    return Job(
        id=name, name=name, user=name, queue="q", tasks=tasks, gang=len(tasks) > 1,
        estimated_s=run_s,
    )  # fmt: skip
