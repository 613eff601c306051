"""Busy GPU seconds, from events and commands: reading and preempted runs included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headgate.model import WHOLE, RunId
from headgate.protocol import (
    Command,
    Event,
    LaunchGang,
    LaunchTask,
    NodeJoined,
    NodeLost,
    TaskFailed,
    TaskFinished,
    TaskStopped,
)


class BusyGpus:
    """An observer: `gpu_s` is the GPU seconds that all ended runs have held, parts as parts."""

    def __init__(self) -> None:
        self.gpu_s = 0.0
        self._open: dict[RunId, tuple[float, float, str]] = {}  # since, GPUs, node

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        """Take note of a batch of events and the commands that followed."""
        for event in batch:
            match event:
                case TaskFinished() | TaskFailed() | TaskStopped():
                    self._close(event.run, event.at)
                case NodeLost():
                    self._close_node(event.node, event.at)
                case NodeJoined():
                    self._close_node(event.node.id, event.at)
                case _:
                    pass
        for launch in launches_in(commands):
            gpus = launch.holds.gpus_milli / WHOLE
            self._open[launch.run] = (batch[-1].at, gpus, launch.node)

    def _close(self, run: RunId, at: float) -> None:
        since, gpus, _ = self._open.pop(run, (at, 0, ""))
        self.gpu_s += (at - since) * gpus

    def _close_node(self, node: str, at: float) -> None:
        for run in [r for r, (_, _, where) in self._open.items() if where == node]:
            self._close(run, at)


def launches_in(commands: Sequence[Command]) -> Iterator[LaunchTask]:
    """Yield the launches among some commands, members of gangs one by one."""
    for command in commands:
        if isinstance(command, LaunchGang):
            yield from command.members
        elif isinstance(command, LaunchTask):
            yield command
