"""Jobs by status: by a state of the engine's tables, or by a name of `headgate.base.states`."""

from __future__ import annotations

import numpy as np

from headgate.base.column import Array
from headgate.base.errors import Problem, SpecError, nearest
from headgate.base.states import JOB_WORDS, PREEMPTED, RUNNING
from headgate.state import JobState, Snapshot, TaskState

_BY_STATE = {state.name.lower(): state for state in JobState}
_BY_WORD = {
    word.lower(): _BY_STATE[state] for state, word in JOB_WORDS.items() if state != "active"
}
_DERIVED = ("pending", RUNNING.lower(), PREEMPTED.lower())
"""Words that depend on the tasks of a job also."""

KNOWN = sorted({*_BY_STATE, *_BY_WORD, *_DERIVED})


def known_status(name: str) -> str:
    """Return a status in lower case; raise SpecError for an unknown one."""
    found = name.lower()
    if found not in KNOWN:
        text = f"there is no job state '{name}'"
        raise SpecError([Problem(path="state", problem=text, hint=nearest(found, KNOWN))])
    return found


def archived_status(status: str) -> str:
    """Return the state that archived jobs with this status have."""
    return _BY_WORD[status].name.lower() if status in _BY_WORD else status


def with_status(snapshot: Snapshot, status: str) -> Array:
    """Return which jobs have a status, a boolean per row; O(jobs + preempted tasks)."""
    jobs, tasks = snapshot.jobs, snapshot.tasks
    state = jobs.state.array()
    found: Array
    if status not in _DERIVED:
        found = state == (_BY_WORD | _BY_STATE)[status]
        return found
    allocated = (jobs.running.array() > 0) | (jobs.running_cpu.array() > 0)
    idle = (state == JobState.ACTIVE) & ~allocated
    waits = (TaskState.WAITING, TaskState.BLOCKED)
    preempted = np.zeros(len(state), np.bool_)
    preempted[[tasks.job[t] for t in snapshot.preempted if tasks.state[t] in waits]] = True
    if status == RUNNING.lower():
        found = (state == JobState.ACTIVE) & allocated
    elif status == PREEMPTED.lower():
        found = idle & preempted
    else:
        found = (state == JobState.QUEUED) | (idle & ~preempted)
    return found
