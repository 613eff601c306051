"""The words for states in tables and texts: those of Slurm and Kubernetes.

Programs get the states of the engine's tables, in lower case (`state` with `-o json`); this table
is the only place that turns them into words.
"""

from __future__ import annotations

from collections.abc import Mapping

PENDING, PREEMPTED, RUNNING = "PENDING", "PREEMPTED", "RUNNING"
COMPLETED, UNNEEDED = "COMPLETED", "UNNEEDED"

TASK_WORDS: Mapping[str, str] = {
    "held": PENDING,
    "blocked": PENDING,
    "waiting": PENDING,  # PREEMPTED while it waits after a preemption
    "starting": "STARTING",
    "running": RUNNING,
    "stopping": "STOPPING",
    "moving": "MOVING",
    "finished": COMPLETED,  # UNNEEDED without a run, in an elastic job
    "failed": "FAILED",
    "cancelled": "CANCELLED",
}
"""State of a task -> word."""

JOB_WORDS: Mapping[str, str] = {
    "queued": PENDING,
    "active": PENDING,  # RUNNING while a task of it has GPUs or CPUs; else as its tasks
    "stopping": "STOPPING",
    "finished": COMPLETED,
    "failed": "FAILED",
    "cancelled": "CANCELLED",
}
"""State of a job -> word."""

NODE_WORDS: Mapping[str, str] = {"up": "UP", "lost": "DOWN"}
"""State of a node -> word; DRAINING while it is up and no run may start on it."""

DRAINING = "DRAINING"

_ALLOCATED = ("starting", "running", "stopping", "moving")


def node_word(state: str, *, draining: bool = False) -> str:
    """Return the word for the state of a node; one of a later release in upper case."""
    if draining and state == "up":
        return DRAINING
    return NODE_WORDS.get(state, state.upper())


def task_word(state: str, *, preempted: bool = False, needed: bool = True) -> str:
    """Return the word for the state of a task; `preempted`: its last run was, and none came after.

    One that is not `needed` has finished without a run. A state that is not known, of a later
    release, is returned in upper case.
    """
    if preempted and state in ("waiting", "blocked"):
        return PREEMPTED
    if not needed and state == "finished":
        return UNNEEDED
    return TASK_WORDS.get(state, state.upper())


def job_word(state: str, tasks: Mapping[str, int], preempted: int = 0) -> str:
    """Return the word for the state of a job, with the numbers of its tasks by their states.

    `preempted` is the number of its tasks that wait after a preemption.
    """
    if state == "active" and any(tasks.get(each) for each in _ALLOCATED):
        return RUNNING
    if state == "active" and preempted:
        return PREEMPTED
    return JOB_WORDS.get(state, state.upper())


def tasks_by_word(
    tasks: Mapping[str, int], preempted: int = 0, unneeded: int = 0
) -> dict[str, int]:
    """Return the numbers of tasks by word; `tasks` are those by state, `total` aside.

    `unneeded` of those that have finished had no run, in an elastic job.
    """
    counts: dict[str, int] = {PREEMPTED: preempted} if preempted else {}
    for state, count in tasks.items():
        if state != "total":
            word = task_word(state)
            counts[word] = counts.get(word, 0) + count
    if preempted:
        counts[PENDING] = counts.get(PENDING, 0) - preempted
    if unneeded:
        counts[COMPLETED] = counts.get(COMPLETED, 0) - unneeded
        counts[UNNEEDED] = unneeded
    return {word: count for word, count in counts.items() if count > 0}
