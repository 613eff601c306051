"""Commands: what the engine wants done; each is keyed by what it concerns, never by a counter.

A launch and a stop are keyed by their run, a decision by the version of the state that it is made
on, a timer by its purpose. So a world that gets the same command twice carries it out once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headgate.model import Demand, Read, RunId, TaskProgram


class Timer(StrEnum):
    """What a timer is for; at most one of each purpose is set at a time."""

    RETRY = "retry"  # ask a policy again that has failed
    ASK_AGAIN = "ask_again"  # ask a policy again as its last plan wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Something that a world is to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTask(Command):
    """Start a run on these GPUs of a node; answered by TaskStarted, then by how the run ended.

    `holds` is what the run holds of its node; where it holds a share of a GPU, `gpu_memory_bytes`
    are the bytes of that share. `program` is what it executes, None in a simulation. `progress_s`
    are the seconds of computing that its checkpoint is believed to hold already.
    """

    run: RunId
    node: str
    gpus: tuple[int, ...]
    reads: tuple[Read, ...]
    holds: Demand
    program: TaskProgram | None = None
    progress_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchGang(Command):
    """Start all these runs together; each is answered by itself.

    `members` come by their ordinals; `nodes` has the node of every task of the gang by its ordinal,
    also of those whose runs have ended already.
    """

    members: tuple[LaunchTask, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTask(Command):
    """End a run that was launched on a node; answered by how it ended."""

    run: RunId
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide(Command):
    """Run the policy on the snapshot of version `seen`; answered by PlanReady or PlanFailed."""

    seen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt(Command):
    """Send TimerFired at this time, in seconds of the world's clock, or at once if it has passed.

    A later WakeAt of the same purpose replaces the timer.
    """

    timer: Timer
    at: float
