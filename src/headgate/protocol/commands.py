"""Commands: wishes that leave the engine, numbered densely in the order they were made."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.model import Read


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A wish; a world may be asked the same one again after a crash and must then do it once."""

    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTask(Command):
    """Run a task on these GPUs of a node; answered by TaskStarted, then by how it ended.

    `progress_s` are the seconds of computing that its checkpoint is believed to hold already.
    """

    job: str
    ordinal: int
    attempt: int
    node: str
    gpus: tuple[int, ...]
    reads: tuple[Read, ...]
    progress_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchGang(Command):
    """Run all these tasks together; each member is answered under its own id."""

    members: tuple[LaunchTask, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTask(Command):
    """End the run that `launch` started; answered by how that run ended."""

    launch: int
    job: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide(Command):
    """Run the policy on the snapshot of version `seen`; answered by PlanReady or PlanFailed."""

    seen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt(Command):
    """Send TimerFired at this time, in seconds of the world's clock."""

    at: float
