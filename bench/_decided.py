"""What benchmarks of decisions do with a state: jobs arrive, and plans are carried out."""

from __future__ import annotations

from headgate.model import Job
from headgate.protocol import Plan
from headgate.state import JobState, State, TaskState


def submit(state: State, job: Job) -> None:
    """Add a job, all of whose tasks wait."""
    row = state.add_job(job)
    state.move_job(row, JobState.ACTIVE)
    for task in state.tasks_of(row):
        state.move_task(task, TaskState.WAITING)


def carry_out(state: State, plan: Plan) -> None:
    """Launch the starts of a plan; preempted tasks wait again."""
    state.version += 1
    for task in plan.stops.task.tolist():
        state.release(task, TaskState.WAITING)
    for start in plan.starts:
        attempt = state.tasks.next_attempt[start.task]
        state.launch(start.task, start.node, start.gpus, attempt=attempt)
        state.move_task(start.task, TaskState.RUNNING)
        state.tasks.started_at[start.task] = state.now
    state.write_memo(
        {
            name: {state.job(job).id: value for job, value in values.items()}
            for name, values in plan.memo.items()
        }
    )
