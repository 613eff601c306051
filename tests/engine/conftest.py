"""A test bench of the engine: short methods for events, and plans by name."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headgate.engine import Engine
from headgate.model import Gpu, Job, Node, Queue, RunId, Shard, Task
from headgate.protocol import (
    Command,
    Decide,
    Event,
    FailureKind,
    Group,
    JobCancelled,
    JobSubmitted,
    LaunchGang,
    LaunchTask,
    NodeJoined,
    NodeLost,
    Plan,
    PlanReady,
    QueueChanged,
    ReplicaAdded,
    Start,
    Steps,
    StopTask,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    TaskStopped,
)
from headgate.state import JobState, TaskState, check


class Bench:
    """An engine whose laws are checked after every batch; time moves on by a second each."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.at = 0.0
        self.decide: Decide | None = None  # the outstanding one
        self.launches: list[LaunchTask] = []  # all of them, gangs' members too
        self.queue("default")

    # --- facts ---------------------------------------------------------------------------------

    def give(self, *events: Event) -> list[Command]:
        commands = self.engine.handle(*events)
        check(self.engine.state)
        self.at += 1.0
        for command in commands:
            if isinstance(command, Decide):
                self.decide = command
            elif isinstance(command, LaunchTask):
                self.launches.append(command)
            elif isinstance(command, LaunchGang):
                self.launches += command.members
        return commands

    def queue(self, name: str, **limits: int) -> list[Command]:
        return self.give(QueueChanged(at=self.at, queue=Queue(name=name, **limits)))

    def node(self, name: str, gpus: int = 1, memory: int = 10, cpus: int = 4) -> list[Command]:
        cards = (Gpu(memory_bytes=memory),) * gpus
        node = Node(id=name, rack="r", gpus=cards, cpus=cpus)
        return self.give(NodeJoined(at=self.at, node=node))

    def lose(self, name: str) -> list[Command]:
        return self.give(NodeLost(at=self.at, node=name))

    def job(self, name: str, tasks: Iterable[Task] = (Task(),), **more: object) -> list[Command]:
        fields: dict[str, object] = {"name": name, "user": "ada", "queue": "default", **more}
        job = Job(id=name, tasks=tuple(tasks), **fields)  # type: ignore[arg-type]
        return self.give(JobSubmitted(at=self.at, job=job))

    def replica(self, shard: str, node: str) -> list[Command]:
        value = Shard(id=shard, size_bytes=100)
        return self.give(ReplicaAdded(at=self.at, shard=value, node=node))

    def cancel(self, job: str) -> list[Command]:
        return self.give(JobCancelled(at=self.at, job=job, by="grace"))

    def started(self, launch: LaunchTask) -> list[Command]:
        return self.give(TaskStarted(at=self.at, run=launch.run))

    def finished(self, launch: LaunchTask, output_bytes: int = 0) -> list[Command]:
        event = TaskFinished(at=self.at, run=launch.run, output_bytes=output_bytes)
        return self.give(event)

    def failed(
        self, launch: LaunchTask, kind: FailureKind = FailureKind.ERROR, message: str = "it broke"
    ) -> list[Command]:
        return self.give(TaskFailed(at=self.at, run=launch.run, kind=kind, message=message))

    def stopped(self, launch: LaunchTask) -> list[Command]:
        return self.give(TaskStopped(at=self.at, run=launch.run))

    def plan(self, *starts: tuple[str, int, str, tuple[int, ...]]) -> list[LaunchTask]:
        """Answer the Decide with (job, ordinal, node, GPUs) and return what was launched."""
        commands = self.give(self.plan_event(*starts))
        launched = [c for c in commands if isinstance(c, LaunchTask)]
        launched += [m for c in commands if isinstance(c, LaunchGang) for m in c.members]
        return launched

    def plan_event(self, *starts: tuple[str, int, str, tuple[int, ...]]) -> PlanReady:
        assert self.decide is not None, "no Decide is outstanding"
        decide, self.decide = self.decide, None
        state, groups = self.engine.state, dict[object, list[Start]]()
        for job, n, node, gpus in starts:
            gang = state.job(state.names.job_rows[job]).gang
            start = Start(self.row(job, n), state.names.node_rows[node], gpus)
            groups.setdefault(job if gang else (job, n), []).append(start)
        plan = Plan(steps=Steps.of(Group(tuple(group)) for group in groups.values()))
        return PlanReady(at=self.at, seen=decide.seen, plan=plan)

    def up_to_date(self) -> None:
        """Answer a Decide on an older state with nothing, so that the next is on that of now."""
        while self.decide is not None and self.decide.seen < self.engine.state.version:
            self.plan()

    def run(self, job: str, ordinal: int, node: str, gpus: tuple[int, ...] = (0,)) -> LaunchTask:
        """Have one task planned on the state of now, launched and started."""
        self.up_to_date()
        (launch,) = self.plan((job, ordinal, node, gpus))
        self.started(launch)
        return launch

    # --- what there is -------------------------------------------------------------------------

    def row(self, job: str, ordinal: int) -> int:
        state = self.engine.state
        first: int = state.jobs.first_task[state.names.job_rows[job]]
        return first + ordinal

    def tasks(self, job: str) -> list[str]:
        state = self.engine.state
        rows = state.tasks_of(state.names.job_rows[job])
        return [TaskState(state.tasks.state[t]).name.lower() for t in rows]

    def job_state(self, job: str) -> str:
        row = self.engine.state.names.job_rows[job]
        return JobState(self.engine.state.jobs.state[row]).name.lower()

    def message(self, job: str) -> str | None:
        row = self.engine.state.names.job_rows[job]
        message: str | None = self.engine.state.jobs.message[row]
        return message


def kinds(commands: Iterable[Command]) -> list[str]:
    return [type(c).__name__ for c in commands]


def stops(commands: Iterable[Command]) -> list[RunId]:
    """Return the runs that commands want stopped."""
    return [c.run for c in commands if isinstance(c, StopTask)]


@pytest.fixture
def bench() -> Bench:
    return Bench()
