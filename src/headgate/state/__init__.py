"""The scheduler's state: columns, transition tables, frozen snapshots, what-if, and invariants."""

from headgate.state.changes import Changes
from headgate.state.check import check
from headgate.state.compact import compact
from headgate.state.life import JobState, TaskState
from headgate.state.scratch import Scratch
from headgate.state.snapshot import Snapshot
from headgate.state.state import State
from headgate.state.thaw import thaw
from headgate.state.view import saved_s

__all__ = [
    "Changes",
    "JobState",
    "Scratch",
    "Snapshot",
    "State",
    "TaskState",
    "check",
    "compact",
    "saved_s",
    "thaw",
]
