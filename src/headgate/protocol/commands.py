"""Commands of the engine to a world; each has an identity of its own, never a counter.

A launch and a stop are identified by their run, a node that is made by its order, a decision by the
version of its snapshot, a timer by its purpose. So a world that gets the same command twice
executes it once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from headgate.model import GRACE_S, Demand, Read, RunId, TaskProgram
from headgate.model.scaling import Shape


class Timer(StrEnum):
    """The purpose of a timer; at most one of each purpose is set at a time."""

    RETRY = "retry"  # request a decision again after a failure
    ASK_AGAIN = "ask_again"  # request a decision at the time that the last plan gave


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A request of the engine to a world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTask(Command):
    """Start a run on these GPUs of a node; followed by TaskStarted, then by an event of its end.

    `holds` is what the run holds of its node; where it holds a share of a GPU, `gpu_memory_bytes`
    are the bytes of that share. `program` is what it executes, None in a simulation. `progress_s`
    are the seconds of computing that its checkpoint is assumed to contain. The world stops a run
    `time_limit_s` seconds after its start, if that is given, and reports it as TIMED_OUT. A live
    world gives notice `grace_s` seconds before it kills a run.
    """

    run: RunId
    node: str
    gpus: tuple[int, ...]
    reads: tuple[Read, ...]
    holds: Demand
    program: TaskProgram | None = None
    progress_s: float = 0.0
    time_limit_s: float | None = None
    grace_s: float = GRACE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchGang(Command):
    """Start all these runs together; each has events of its own.

    `members` come by their ordinals; `nodes` has the node of every task of the gang by its ordinal,
    also of those whose runs have ended already.
    """

    members: tuple[LaunchTask, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTask(Command):
    """Stop a run that was launched on a node; followed by an event of its end.

    After its notice and grace period, which is at most `grace_s` seconds, or `now`.
    """

    run: RunId
    node: str
    now: bool = False
    grace_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class AddNode(Command):
    """Make a node of a shape; followed by NodeJoined with this order, or by OrderFailed.

    A world that gets the same order again makes no second node.
    """

    order: str
    shape: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveNode(Command):
    """Remove the node that was made for an order; followed by NodeLost, then by NodeRemoved."""

    order: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide(Command):
    """Run the policy on the snapshot of version `seen`; followed by PlanReady or PlanFailed."""

    seen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt(Command):
    """Send TimerFired at this time, in seconds of the world's clock, or now if it has passed.

    A later WakeAt of the same purpose replaces the timer.
    """

    timer: Timer
    at: float
