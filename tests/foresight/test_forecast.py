"""Forecasts come true when runs take their expected times and no job arrives."""

from __future__ import annotations

import heapq

from hypothesis import given
from hypothesis import strategies as st

from headgate.app import POLICIES
from headgate.base.rng import Random, stream
from headgate.engine import Engine
from headgate.foresight.forecast import Forecast, forecast
from headgate.foresight.whatif import thaw
from headgate.model import Bandwidth, Gpu, Job, Node, Queue, RunId, Shard, Task
from headgate.ports import make_policy
from headgate.protocol import (
    BandwidthMeasured,
    Command,
    Decide,
    Event,
    JobSubmitted,
    LaunchTask,
    NodeJoined,
    PlanReady,
    QueueChanged,
    ReplicaAdded,
    StopTask,
    TaskFinished,
    TaskStarted,
    TaskStopped,
    Usage,
)
from headgate.state import TaskState

COMPUTE_S = {"a": 3.0, "b": 7.0, "c": 20.0}
UNHURRIED = ("fs", "fsp", "fsu", "fifo", "gs", "capacity", "fair")
WAITS = (TaskState.WAITING, TaskState.BLOCKED, TaskState.HELD)


class Clockwork:
    """A world in which every run takes what such runs always take."""

    def __init__(self, policy: str) -> None:
        self.engine, self.policy = Engine(), make_policy(POLICIES, policy)
        self.at, self.launched = 0.0, 0
        self.heap: list[tuple[float, int, RunId, float]] = []  # end, order, seconds of reading
        self.started: dict[int, tuple[float, str]] = {}  # last start: task -> time, node
        self.stopped: set[RunId] = set()

    def give(self, *events: Event) -> None:
        batch: tuple[Event, ...] = events
        while batch:
            answers: list[Event] = []
            for command in self.engine.handle(*batch):
                answers += self.answer(command)
            batch = tuple(answers)

    def answer(self, command: Command) -> list[Event]:
        state = self.engine.state
        if isinstance(command, Decide):
            # Hypothetical, as in a forecast: no tie depends on earlier rounds there.
            plan = self.policy.decide(thaw(self.engine.decision_snapshot()).freeze(), Random(0))
            return [PlanReady(at=self.at, seen=command.seen, plan=plan)]
        if isinstance(command, StopTask):
            self.stopped.add(command.run)
            return [TaskStopped(at=self.at, run=command.run)]
        assert isinstance(command, LaunchTask)
        job = state.names.job_rows[command.run.job]
        task, node = state.tasks_of(job)[command.run.ordinal], state.names.node_rows[command.node]
        read_s = state.expected_read_s(task, node)
        end = self.at + read_s + COMPUTE_S[state.job(job).runtime_class]
        self.launched += 1
        heapq.heappush(self.heap, (end, self.launched, command.run, read_s))
        self.started[task] = (self.at, command.node)
        return [TaskStarted(at=self.at, run=command.run)]

    def step(self) -> bool:
        """Let all runs end whose time is next."""
        ends = []
        while self.heap and (not ends or self.heap[0][0] == self.at):
            at, _, run, read_s = heapq.heappop(self.heap)
            if run not in self.stopped:
                self.at = at
                ends.append(TaskFinished(at=at, run=run, usage=Usage(read_s=read_s)))
        if ends:
            self.give(*ends)
        return bool(ends)


def clockwork(rng: Random, policy: str) -> Clockwork:
    """A world that has learnt how long everything takes, with some jobs in mid-life."""
    world = Clockwork(policy)
    bandwidth = Bandwidth(disk_bytes_per_s=100, rack_bytes_per_s=50, cluster_bytes_per_s=10)
    world.give(
        BandwidthMeasured(at=0.0, bandwidth=bandwidth),
        QueueChanged(at=0.0, queue=Queue(name="q")),
        QueueChanged(at=0.0, queue=Queue(name="narrow", max_jobs_in_flight=1)),
    )
    for n in range(3):
        gpus = (Gpu(memory_bytes=rng.choice((1, 2))),) * rng.randint(1, 2)
        world.give(NodeJoined(at=0.0, node=Node(id=f"n{n}", rack=f"r{n % 2}", gpus=gpus, cpus=1)))
    for n, size_bytes in enumerate((64, 100, 100)):
        shard = Shard(id=f"s{n}", size_bytes=size_bytes)
        world.give(ReplicaAdded(at=0.0, shard=shard, node=f"n{n}"))
    for n, kind in enumerate(COMPUTE_S):  # one of each kind there is, so that its time is known
        tasks = (Task(), Task(reads=("s0",)), Task(reads=("s1",)), Task(after=(0,)))
        world.give(JobSubmitted(at=world.at, job=made(f"first{n}", kind, tasks, "q")))
    while world.step():
        pass
    for n in range(rng.randint(1, 6)):
        reads = [(), ("s0",), ("s1",), ("s2",)]
        tasks = tuple(Task(reads=rng.choice(reads)) for _ in range(rng.randint(1, 4)))
        tasks += (Task(after=(0,)),) * rng.randint(0, 1)
        queue, kind = rng.choice(("q", "narrow")), rng.choice(list(COMPUTE_S))
        world.give(JobSubmitted(at=world.at, job=made(f"j{n}", kind, tasks, queue)))
    for _ in range(rng.randint(0, 3)):
        world.step()
    return world


def made(name: str, kind: str, tasks: tuple[Task, ...], queue: str) -> Job:
    return Job(id=name, name=name, user=name, queue=queue, tasks=tasks, runtime_class=kind)


@given(st.integers(0, 2**32 - 1), st.sampled_from(UNHURRIED))
def test_task_starts_as_forecast(seed: int, policy: str) -> None:
    rng = stream(seed, "clockwork")
    world = clockwork(rng, policy)
    state = world.engine.state
    waiting = [t for t in range(len(state.tasks.state)) if state.tasks.state[t] in WAITS]
    if not waiting:
        return
    task = rng.choice(waiting)
    forecasted = forecast(state.freeze(), world.policy, [task], world.at)
    assert forecasted.unknown_runs == 0
    assert forecasted.at is not None
    world.started.pop(task, None)
    while task not in world.started:
        assert world.step()
    at, node = world.started[task]
    assert (forecasted.at, forecasted.node) == (at, node)
    name = f"{state.job(state.tasks.job[task]).id}/{state.ordinal(task)}"
    assert forecasted.task == name


def test_forecast_without_a_known_end_has_no_time() -> None:
    world = Clockwork("fs")
    world.give(
        QueueChanged(at=0.0, queue=Queue(name="q")),
        NodeJoined(at=0.0, node=Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1),))),
        JobSubmitted(at=0.0, job=made("j", "a", (Task(), Task()), "q")),
    )
    forecasted = forecast(world.engine.snapshot(), world.policy, [1], 5.0)
    assert forecasted == Forecast(
        at=None, task=None, node=None, after=None, ends=0, rounds=1, until=5.0, unknown_runs=1
    )


def test_forecast_is_of_the_first_task_to_start() -> None:
    world = Clockwork("fs")
    world.give(
        QueueChanged(at=0.0, queue=Queue(name="q")),
        NodeJoined(at=0.0, node=Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1),))),
        JobSubmitted(at=0.0, job=made("j", "a", (Task(),) * 5, "q")),
    )
    world.step()  # task 0 has shown how long they take; task 1 runs from 3 to 6
    forecasted = forecast(world.engine.snapshot(), world.policy, [4, 3], 4.0)
    assert forecasted == Forecast(
        at=9.0, task="j/3", node="n", after="j/2", ends=2, rounds=3, until=9.0, unknown_runs=0
    )


def test_forecast_ends_after_a_limit_of_rounds() -> None:
    world = Clockwork("fs")
    world.give(
        QueueChanged(at=0.0, queue=Queue(name="q")),
        NodeJoined(at=0.0, node=Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1),))),
        JobSubmitted(at=0.0, job=made("j", "a", (Task(),) * 400, "q")),
    )
    world.step()
    forecasted = forecast(world.engine.snapshot(), world.policy, [399], world.at)
    assert (forecasted.at, forecasted.unknown_runs, forecasted.rounds) == (None, 0, 300)
    assert forecasted.until == world.at + 3.0 * forecasted.ends
