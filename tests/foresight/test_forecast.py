"""Forecasts come true in a simulation whose run times are known and where no job arrives."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from headgate.app import POLICIES
from headgate.base.rng import Random, stream
from headgate.engine import Engine, drive
from headgate.foresight.forecast import Forecast, forecast
from headgate.foresight.whatif import thaw
from headgate.model import Bandwidth, Gpu, Job, Node, Queue, RunId, Shard, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.ports import Policy, make_policy
from headgate.protocol import (
    BandwidthMeasured,
    Command,
    Decide,
    Event,
    JobSubmitted,
    LaunchTask,
    NodeJoined,
    Plan,
    PlanAdmitted,
    PlanReady,
    QueueChanged,
    Reason,
    ReplicaAdded,
    StopTask,
    TaskFinished,
    TaskStarted,
    TaskStopped,
    Usage,
)
from headgate.sim.world import SimulatedWorld
from headgate.state import Snapshot
from headgate.state.life import PENDING

UNHURRIED = ("fs", "fsp", "fsu", "fifo", "gs", "capacity", "fair")
DISK, LINK, UPLINK = 100.0, 50.0, 20.0  # bytes per second


class Asked:
    """An observer of a simulation that asks once, after some rounds, and notes the start."""

    def __init__(self, engine: Engine, policy: Policy, rng: Random, rounds: int) -> None:
        self.engine, self.policy, self.rng, self.rounds = engine, policy, rng, rounds
        self.tasks: list[int] = []
        self.forecast: Forecast | None = None
        self.asked_at = 0.0
        self.started: tuple[float, str, str] | None = None

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        del commands
        for event in batch:
            if not isinstance(event, PlanAdmitted):
                continue
            if self.forecast is not None and self.started is None:
                for run, node, _ in event.starts:
                    row = self.engine.state.run_row(run)
                    if row in self.tasks:
                        name = f"{run.job}/{run.ordinal}"
                        self.started = (event.at, node, name)
                        break
            self.rounds -= 1
            if not self.rounds:
                self.ask(event.at)

    def ask(self, now: float) -> None:
        snapshot = self.engine.snapshot()
        states = snapshot.tasks.state.array()
        waiting = np.flatnonzero(np.isin(states, PENDING)).tolist()
        if waiting:
            self.asked_at = now
            self.tasks = [self.rng.choice(waiting)]
            self.forecast = forecast(snapshot, self.policy, self.tasks, now)


def small_cluster(rng: Random) -> list[Event]:
    """Return three nodes in two racks, with some shards; the bandwidths are those of the links."""
    measured = Bandwidth(
        disk_bytes_per_s=DISK, rack_bytes_per_s=LINK, cluster_bytes_per_s=UPLINK / 2
    )
    facts: list[Event] = [
        BandwidthMeasured(at=0.0, bandwidth=measured),
        QueueChanged(at=0.0, queue=Queue(name="q")),
        QueueChanged(at=0.0, queue=Queue(name="narrow", max_jobs_in_flight=1)),
    ]
    for n in range(3):
        gpus = (Gpu(memory_bytes=rng.choice((1, 2))),) * rng.randint(1, 2)
        facts.append(NodeJoined(at=0.0, node=Node(id=f"n{n}", rack=f"r{n % 2}", gpus=gpus, cpus=1)))
    for n, size_bytes in enumerate((64, 100, 100)):
        shard = Shard(id=f"s{n}", size_bytes=size_bytes)
        facts.append(ReplicaAdded(at=0.0, shard=shard, node=f"n{n}"))
    return facts


def random_jobs(rng: Random, *, declared: bool) -> list[Event]:
    """Return jobs whose tasks take alike times, declared or not, all submitted at the beginning."""
    reads = [(), ("s0",), ("s1",), ("s2",), ("s0", "s2")]
    jobs: list[Event] = []
    for n in range(rng.randint(2, 6)):
        compute_s = rng.choice((3.0, 7.3, 20.9)) + n / 64
        tasks = [
            Task(reads=rng.choice(reads), compute_s=compute_s) for _ in range(rng.randint(1, 5))
        ]
        tasks += [Task(after=(0,), compute_s=compute_s)] * rng.randint(0, 1)
        queue = rng.choice(("q", "narrow"))
        name = f"j{n}"
        job = Job(
            id=name, name=name, user=name, queue=queue, tasks=tuple(tasks),
            estimated_s=compute_s if declared else None,
        )  # fmt: skip
        jobs.append(JobSubmitted(at=0.0, job=job))
    return jobs


def asked_of(seed: int, name: str, *, declared: bool) -> Asked:
    """Ask once in a small cluster, whose links are as measured."""
    rng = stream(seed, "forecast")
    engine, policy = Engine(), make_policy(POLICIES, name)
    network = FluidNetwork(
        {},
        disk_bytes_per_s=DISK,
        node_link_bytes_per_s=LINK,
        rack_uplink_bytes_per_s=UPLINK,
        aggregation_bytes_per_s=None,
    )
    facts = small_cluster(rng) + random_jobs(rng, declared=declared)
    world = SimulatedWorld(facts, network=network, policy=policy)
    asked = Asked(engine, policy, rng, rounds=rng.randint(1, 8))
    drive(engine, world, observe=(asked,))
    return asked


@given(st.integers(0, 2**32 - 1), st.sampled_from(UNHURRIED))
def test_task_starts_as_forecast(seed: int, name: str) -> None:
    asked = asked_of(seed, name, declared=True)
    if asked.forecast is None:
        return
    assert asked.started is not None
    at, node, task = asked.started
    assert asked.forecast.at == pytest.approx(at, abs=1e-6)
    assert (asked.forecast.node, asked.forecast.task) == (node, task)
    assert asked.forecast.earliest is not None
    assert asked.forecast.latest is not None
    assert asked.forecast.earliest <= asked.forecast.at <= asked.forecast.latest


@settings(max_examples=cases(30))
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(POLICIES)))
def test_every_answer_has_an_interval_from_now_on(seed: int, name: str) -> None:
    """Where nothing is declared, before the first run has ended and after."""
    asked = asked_of(seed, name, declared=False)
    if asked.forecast is None:
        return
    found, now = asked.forecast, asked.asked_at
    assert found.at is not None
    assert found.earliest is not None
    assert found.latest is not None
    assert now <= found.earliest <= found.at <= found.latest


class Clockwork:
    """A world in which every run takes what such runs always take."""

    def __init__(self, policy: str) -> None:
        self.engine, self.policy = Engine(), make_policy(POLICIES, policy)
        self.compute_s = {"a": 3.0}
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
        end = self.at + read_s + self.compute_s[state.job(job).runtime_class]
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


def made(name: str, kind: str, tasks: tuple[Task, ...], queue: str) -> Job:
    return Job(id=name, name=name, user=name, queue=queue, tasks=tasks, runtime_class=kind)


def queue_of(tasks: int, *, ended: int = 1) -> Clockwork:
    """A job whose tasks take 3 s each, one after the other on the only GPU; some have ended."""
    world = Clockwork("fs")
    world.give(
        QueueChanged(at=0.0, queue=Queue(name="q")),
        NodeJoined(at=0.0, node=Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1),))),
        JobSubmitted(at=0.0, job=made("j", "a", (Task(),) * tasks, "q")),
    )
    for _ in range(ended):
        world.step()
    return world


def test_before_any_run_has_ended_they_take_about_as_long_as_the_oldest_has_run() -> None:
    world = queue_of(3, ended=0)

    def wait_s(now: float, task: int = 1) -> float:
        found = forecast(world.engine.snapshot(), world.policy, [task], now)
        assert (found.task, found.node, found.unknown_runs) == (f"j/{task}", "n", 1)
        assert (found.after, found.ends) == (f"j/{task - 1}", task)
        assert found.at is not None
        assert found.earliest is not None
        assert found.latest is not None
        assert now <= found.earliest < found.at < found.latest
        return found.at - now

    assert 60.0 < wait_s(5.0) < 600.0  # nothing is known: some minutes
    assert wait_s(4000.0) == pytest.approx(10 * wait_s(400.0))
    assert wait_s(4000.0, task=2) == pytest.approx(wait_s(4000.0) + 4000.0)


def test_guessed_run_ends_at_its_time_limit_at_the_latest() -> None:
    world = queue_of(1, ended=0)
    limited = replace(made("k", "b", (Task(),) * 2, "q"), time_limit_s=100.0)
    world.give(JobSubmitted(at=0.0, job=limited))
    found = forecast(world.engine.snapshot(), world.policy, [2], 4000.0)
    before = forecast(world.engine.snapshot(), world.policy, [1], 4000.0)
    assert before.at is not None
    assert found.at == pytest.approx(before.at + 100.0)


def test_forecast_is_of_the_first_task_to_start() -> None:
    world = queue_of(5)  # task 0 has shown how long they take; task 1 runs from 3 to 6
    forecasted = forecast(world.engine.snapshot(), world.policy, [4, 3], 3.0)
    assert (forecasted.task, forecasted.node, forecasted.after) == ("j/3", "n", "j/2")
    assert (forecasted.at, forecasted.ends) == (pytest.approx(9.0), 2)
    assert forecasted.unknown_runs == 0


def test_forecast_ends_after_a_limit_of_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.foresight.forecast.ROUNDS_MOST", 20)
    world = queue_of(60)
    forecasted = forecast(world.engine.snapshot(), world.policy, [59], world.at)
    assert (forecasted.at, forecasted.unknown_runs, forecasted.rounds) == (None, 0, 20)
    assert forecasted.until == pytest.approx(world.at + 3.0 * forecasted.ends)


class Hasty:
    """First in, first out, with a round each second."""

    def __init__(self) -> None:
        self.fifo = make_policy(POLICIES, "fifo")
        self.name = "hasty"

    def refuses(self, job: Job) -> Reason | None:
        return self.fifo.refuses(job)

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        return replace(self.fifo.decide(snapshot, rng), again_at=snapshot.now + 1.0)


def test_requested_rounds_leave_others_for_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.foresight.forecast.ROUNDS_MOST", 100)
    world = queue_of(60)
    found = forecast(world.engine.snapshot(), Hasty(), [59], world.at)
    assert found.at == pytest.approx(world.at + 3.0 * 58)
    assert found.rounds <= 100


def test_interval_is_wider_where_times_of_runs_differ() -> None:
    def width(*times_s: float) -> float:
        world = queue_of(40, ended=0)
        for compute_s in times_s:
            world.compute_s["a"] = compute_s
            world.step()
        found = forecast(world.engine.snapshot(), world.policy, [39], world.at)
        assert found.earliest is not None
        assert found.latest is not None
        assert found.at is not None
        assert found.earliest < found.at < found.latest
        return (found.latest - found.earliest) / (found.at - world.at)

    assert width(*[3.0] * 12) < 0.8 * width(*[1.0, 9.0] * 6)


def test_interval_ends_later_where_much_work_has_arrived_lately() -> None:
    def late(arrived: int) -> float:
        world = queue_of(120, ended=60)
        if arrived:
            later = made("k", "a", (Task(),) * arrived, "q")
            world.give(JobSubmitted(at=world.at, job=later))
        found = forecast(world.engine.snapshot(), world.policy, [70], world.at)
        assert found.latest is not None
        assert found.at is not None
        return (found.latest - found.at) / (found.at - world.at)

    long_ago, little, much = late(0), late(2), late(30)
    assert long_ago < little < much
    assert much > 2 * long_ago


def test_requested_rounds_do_not_use_up_the_rounds_of_a_forecast() -> None:
    """`headgate` requests a round each second while a run is overdue, however long that is."""
    world = queue_of(4)
    world.policy = make_policy(POLICIES, "headgate")
    now = world.at + 4000.0  # the run that should have ended long ago is overdue
    forecasted = forecast(world.engine.snapshot(), world.policy, [3], now)
    assert forecasted.at is not None
    assert forecasted.at > now + 3000.0
    assert forecasted.rounds < 100
