"""The jobs that a new job comes after: checked at submission, while their ends are known."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.base.errors import Problem, SpecError
from headgate.journal import Archive
from headgate.spec.document import clipped
from headgate.state import JobState, Snapshot
from headgate.state.lookup import known_row, near_job

_NEVER = {
    JobState.STOPPING: "is being stopped",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "was cancelled",
}


def unfinished(after: Sequence[str], view: Snapshot, archive: Archive) -> tuple[str, ...]:
    """Return the jobs of `after` (ids) that have not finished, each once.

    Raises SpecError for a job that does not exist, `rejected` for one that will never finish.
    """
    found, problems, doomed = [], [], False
    for number, name in enumerate(dict.fromkeys(after)):
        path = f"after[{number}]"
        state = _state_of(name, view, archive)
        if state is None:
            problem = f"there is no job '{clipped(name)}'"
            problems.append(Problem(path=path, problem=problem, hint=near_job(view, name)))
        elif state in _NEVER:
            doomed = True
            problem = f"{name} {_NEVER[state]}: a job after it can never start"
            hint = f"headgate get {name} shows why; submit it again, and name its new id"
            problems.append(Problem(path=path, problem=problem, hint=hint))
        elif state is not JobState.FINISHED:
            found.append(name)
    if problems:
        raise SpecError(problems, code="rejected" if doomed else "bad_spec")
    return tuple(found)


def _state_of(name: str, view: Snapshot, archive: Archive) -> JobState | None:
    row = known_row(view, name)
    if row is not None:
        return JobState(view.jobs.state[row])
    past = archive.find(name)
    return None if past is None else JobState[past.state.upper()]
