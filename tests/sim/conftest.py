"""A small simulation: events in, and the timeline of starts, ends and stops out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from headgate.engine import Engine, drive
from headgate.metrics.busy import launches_in
from headgate.model import Bandwidth, Gpu, Job, Node, Queue, RunId, Shard, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.ports import Policy
from headgate.protocol import (
    BandwidthMeasured,
    Command,
    Event,
    JobSubmitted,
    LaunchTask,
    NodeJoined,
    QueueChanged,
    ReplicaAdded,
    TaskFailed,
    TaskFinished,
    TaskStopped,
    Usage,
)
from headgate.sim.world import SimulatedWorld
from headgate.state import check

# Disk 100, node link 60, rack uplink 90 bytes per second; the core never blocks.
LINKS = {
    "disk_bytes_per_s": 100.0,
    "node_link_bytes_per_s": 60.0,
    "rack_uplink_bytes_per_s": 90.0,
    "aggregation_bytes_per_s": None,
}


@dataclass
class Play:
    """What happened: `at, what, job/ordinal@node`, and what every ended run had read."""

    engine: Engine = field(default_factory=Engine)
    lines: list[tuple[float, str, str]] = field(default_factory=list)
    usage: dict[str, Usage] = field(default_factory=dict)
    kinds: list[list[str]] = field(default_factory=list)  # of the events of every batch
    moved_bytes: tuple[int, int, int] = (0, 0, 0)
    _names: dict[RunId, str] = field(default_factory=dict)

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        check(self.engine.state)
        self.kinds.append([type(e).__name__ for e in batch])
        words = {TaskFinished: "ends", TaskFailed: "fails", TaskStopped: "stops"}
        for event in batch:
            if isinstance(event, TaskFinished | TaskFailed | TaskStopped):
                name = self._names[event.run]
                self.lines.append((event.at, words[type(event)], name))
                self.usage[name] = event.usage
        for launch in launches_in(commands):
            name = f"{launch.run.job}/{launch.run.ordinal}@{launch.node}"
            self._names[launch.run] = name
            self.lines.append((batch[-1].at, "starts", name))


def node(name: str, gpus: int = 1, cpus: int = 4) -> NodeJoined:
    """Return that a node joined the rack of its first letter."""
    cards = (Gpu(memory_bytes=10),) * gpus
    return NodeJoined(at=0.0, node=Node(id=name, rack=name[0], gpus=cards, cpus=cpus))


def replica(shard: str, size_bytes: int, name: str) -> ReplicaAdded:
    return ReplicaAdded(at=0.0, shard=Shard(id=shard, size_bytes=size_bytes), node=name)


def job(
    name: str, *tasks: Task, at: float = 0.0, retries: int = 2, time_limit_s: float | None = None
) -> JobSubmitted:
    value = Job(
        id=name,
        name=name,
        user="ada",
        queue="default",
        tasks=tasks,
        retries=retries,
        time_limit_s=time_limit_s,
    )
    return JobSubmitted(at=at, job=value)


def play(
    *facts: Event,
    decision_latency_s: float = 0.0,
    fails_after_s: Callable[[LaunchTask], float | None] = lambda launch: None,
    launch_delays_s: Sequence[float] = (),
    resume_s: float = 0.0,
    policy: Policy | None = None,
) -> Play:
    estimates = Bandwidth(disk_bytes_per_s=100, rack_bytes_per_s=60, cluster_bytes_per_s=30)
    network = FluidNetwork({}, **LINKS)  # type: ignore[arg-type]
    world = SimulatedWorld(
        [
            QueueChanged(at=0.0, queue=Queue(name="default")),
            BandwidthMeasured(at=0.0, bandwidth=estimates),
            *facts,
        ],
        network=network,
        policy=policy or FirstInFirstOut(),
        decision_latency_s=decision_latency_s,
        fails_after_s=fails_after_s,
        launch_delays_s=launch_delays_s,
        resume_s=resume_s,
    )
    stage = Play()
    drive(stage.engine, world, observe=(stage,))
    stage.moved_bytes = network.moved_bytes
    return stage


@dataclass(frozen=True)
class Stage:
    play = staticmethod(play)
    node = staticmethod(node)
    replica = staticmethod(replica)
    job = staticmethod(job)


@pytest.fixture
def stage() -> Stage:
    return Stage()
