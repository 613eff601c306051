"""The simulated world of a storm, and a ride through it on which all laws are checked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from headgate.base.rng import stream
from headgate.engine import Engine, drive
from headgate.metrics.busy import BusyGpus
from headgate.model import WHOLE, Job, RunId
from headgate.planning.links.fluid_network import FluidNetwork, Transfer
from headgate.planning.place.submission_check import fits_no_node
from headgate.planning.times.reservations import RESERVED_AT
from headgate.ports import Policy
from headgate.protocol import (
    Command,
    Event,
    JobSubmitted,
    LaunchGang,
    LaunchTask,
    NodeJoined,
    NodeLost,
    PlanAdmitted,
    StopTask,
    TaskFailed,
    TaskFinished,
    TaskStopped,
    TopologyChanged,
)
from headgate.protocol.reasons import PolicyBroke
from headgate.sim.world import SimulatedWorld
from headgate.state import JobState, TaskState, check
from headgate.testing.digest import digest
from headgate.testing.random_worlds import linked, random_topology
from headgate.testing.storms import Storm, storm

MOST_BATCHES = 5000


class WatchedNetwork(FluidNetwork):
    """Keeps its own account of what every run has moved, by locality.

    `reads_for` has the run that reads by a transfer, when that starts.
    """

    reads_for: Mapping[int, RunId]

    def __init__(self, **links: float | None) -> None:
        super().__init__({}, **links)  # type: ignore[arg-type]
        self.moved: dict[RunId, list[int]] = {}
        self._readers: dict[int, RunId] = {}

    def _note(self, transfer: Transfer, moved_bytes: int) -> None:
        assert 0 <= moved_bytes <= transfer.size_bytes
        run = self._readers.pop(transfer.id)  # it ends once
        self.moved.setdefault(run, [0, 0, 0])[transfer.locality] += moved_bytes

    def start(
        self, transfer_id: int, reader: str, source: str | None, size_bytes: int, now: float
    ) -> Transfer:
        self._readers[transfer_id] = self.reads_for[transfer_id]
        return super().start(transfer_id, reader, source, size_bytes, now)

    def finish(self, transfer_id: int, now: float) -> Transfer:
        transfer = super().finish(transfer_id, now)
        self._note(transfer, transfer.size_bytes)
        return transfer

    def abort(self, transfer_id: int, now: float) -> int:
        transfer = self._transfers[transfer_id][0]
        moved = super().abort(transfer_id, now)
        self._note(transfer, moved)
        return moved


class Watch:
    """An observer: invariants after every batch, open runs, and the journal of all events."""

    def __init__(self, engine: Engine, network: WatchedNetwork) -> None:
        self.engine = engine
        self.network = network
        self.batches: list[tuple[Event, ...]] = []
        self.commands: list[list[Command]] = []
        self.open: dict[RunId, LaunchTask] = {}
        self.last_at = 0.0
        self.held_gpus = 0.0
        self.preempted = 0
        self.preempted_at: dict[tuple[str, int], float] = {}
        self.reserved = False
        self.busy_gpu_s = 0.0

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        self.batches.append(batch)
        self.commands.append(list(commands))
        assert len(self.batches) < MOST_BATCHES, "it never ends"
        assert {e.at for e in batch} == {batch[0].at}, "a batch is one instant"
        assert batch[0].at >= self.last_at, "time does not go back"
        self.busy_gpu_s += self.held_gpus * (batch[0].at - self.last_at)
        state = self.engine.state
        moving = [t for t in state.holding() if state.tasks.state[t] == TaskState.MOVING]
        held_milli = int(state.jobs.held_gpus_milli.array().sum())
        held_milli -= sum(state.demand(task).gpus_milli for task in moving)  # without a run
        self.held_gpus = held_milli / WHOLE
        self.last_at = batch[0].at
        check(self.engine.state)
        reasons = [refusal.reason for refusal in self.engine.state.refusals]
        assert not [reason for reason in reasons if isinstance(reason, PolicyBroke)], reasons
        for event in batch:
            self.see(event)
        for command in commands:
            members = command.members if isinstance(command, LaunchGang) else (command,)
            for launch in members:
                if isinstance(launch, LaunchTask):
                    self.begins(launch)

    def begins(self, launch: LaunchTask) -> None:
        running = {run[:2] for run in self.open}
        assert launch.run[:2] not in running, "no task has two runs"
        self.open[launch.run] = launch
        held: Counter[int] = Counter()
        for other in self.open.values():
            if other.node == launch.node:
                held.update(dict.fromkeys(other.gpus, other.holds.gpu_milli))
        assert all(held[gpu] <= WHOLE for gpu in launch.gpus), "no GPU serves more than all of it"

    def see(self, event: Event) -> None:
        match event:
            case TaskFinished() | TaskFailed() | TaskStopped():
                del self.open[event.run]  # each run ends once
                moved = self.network.moved.get(event.run, [0, 0, 0])
                assert list(event.usage.read_bytes) == moved, "usage says what was moved"
            case NodeLost(node=name):
                self.vanish(name)
            case NodeJoined():
                self.vanish(event.node.id)
            case PlanAdmitted():
                self.preempted += sum(len(stop.runs) for stop in event.stops)
                assert all(stop.reason for stop in event.stops), "each says for whom"
                self.spares(event)
                self.reserved = self.reserved or RESERVED_AT in event.memo
            case _:
                pass

    def spares(self, event: PlanAdmitted) -> None:
        """No task is preempted twice within a minute, or the period of its checkpoints.

        But slots, which end the item that they execute, and units of elastic jobs: these lose
        nothing.
        """
        tasks = self.engine.state.tasks
        for stop in event.stops:
            for run in stop.runs:
                row = self.engine.state.run_row(run)
                assert row is not None
                job = self.engine.state.job(tasks.job[row])
                if job.items is not None or job.elastic is not None:
                    continue
                key = run.job, run.ordinal
                least_s = max(60.0, float(tasks.checkpoint_s[row]))
                since_s = event.at - self.preempted_at.get(key, -math.inf)
                assert since_s >= least_s, f"{run} is preempted again after {since_s} s"
                self.preempted_at[key] = event.at

    def vanish(self, node: str) -> None:
        self.open = {i: o for i, o in self.open.items() if o.node != node}


class LateStops(SimulatedWorld):
    """A simulated world in which a run that is stopped runs for a random time after its notice.

    So it may also finish or fail instead, or be lost with its node.
    """

    def __init__(self, facts: Iterable[Event], **more: Any) -> None:
        super().__init__(facts, **more)
        self._noticed: dict[RunId, StopTask] = {}

    def _stop(self, command: StopTask) -> None:
        late_s = stream(self._seed, "notice", *command.run).choice((0.0, 0.5, 2.0, 8.0))
        if command.run in self._runs and not command.now and late_s:
            self._noticed[command.run] = command
            self._push(TaskStopped(at=self._now + late_s, run=command.run))
        else:
            super()._stop(command)

    def _apply(self, event: Event) -> bool:
        if isinstance(event, TaskStopped) and event.run in self._noticed:
            super()._stop(self._noticed.pop(event.run))
            return False
        return super()._apply(event)


def world_of(
    weather: Storm,
    policy: Policy,
    network: FluidNetwork | None = None,
    kind: type[SimulatedWorld] = SimulatedWorld,
) -> SimulatedWorld:
    """Return the world in which a storm happens under a policy."""
    return kind(
        weather.facts,
        network=network or FluidNetwork({}, **weather.links),  # type: ignore[arg-type]
        policy=policy,
        seed=weather.seed,
        decision_latency_s=weather.decision_latency_s,
        fails_after_s=weather.fails_after_s,
    )


def limited(seed: int, fact: Event) -> Event:
    """Return an event; of a submission, the job may have a time limit."""
    if not isinstance(fact, JobSubmitted):
        return fact
    limit_s = stream(seed, "limit", fact.job.id).choice((None, 0.5, 2.0, 5.0))
    return replace(fact, job=replace(fact.job, time_limit_s=limit_s))


def with_links(weather: Storm) -> Storm:
    """Return a storm on a topology, with jobs that communicate."""
    facts = [
        replace(fact, job=linked(fact.job)) if isinstance(fact, JobSubmitted) else fact
        for fact in weather.facts
    ]
    nodes = sum(isinstance(fact, NodeJoined) and not fact.at for fact in facts)
    put = TopologyChanged(at=0.0, topology=random_topology(weather.seed, nodes))
    return replace(weather, facts=(put, *facts))


def ride(
    seed: int,
    policy: Policy,
    *,
    calm: bool = False,
    limits: bool = False,
    links: bool = False,
    kind: type[SimulatedWorld] = SimulatedWorld,
    change: Callable[[Storm], Storm] = lambda weather: weather,
) -> Watch:
    """Let a storm pass; return what was seen, with every check that holds for any storm made."""
    weather = storm(seed, calm=calm, accepts=lambda job: policy.refuses(job) is None)
    weather = change(weather)
    if limits:
        weather = replace(weather, facts=tuple(limited(seed, fact) for fact in weather.facts))
    if links:
        weather = with_links(weather)
    engine, network = Engine(), WatchedNetwork(**weather.links)
    world = world_of(weather, policy, network, kind)
    network.reads_for = world._reading
    watch, busy = Watch(engine, network), BusyGpus()
    drive(engine, world, observe=(watch, busy))
    assert busy.gpu_s == pytest.approx(watch.busy_gpu_s), "busy is what was held, over time"
    assert watch.open == {}, "what runs ends"
    assert engine.outstanding() == []
    total = tuple(sum(m[where] for m in network.moved.values()) for where in range(3))
    assert network.moved_bytes == total
    again = Engine()
    assert [again.handle(*batch) for batch in watch.batches] == watch.commands
    assert digest(again.state) == digest(engine.state)
    return watch


def left(engine: Engine) -> list[int]:
    """Return the jobs in flight when nothing happens any more."""
    states = engine.state.jobs.state.array().tolist()
    assert JobState.STOPPING not in states
    return [row for row, at in enumerate(states) if at == JobState.ACTIVE]


def can_never_end(engine: Engine, row: int) -> bool:
    """Return whether what is left of a job fits no node that is up."""
    state = engine.state
    job: Job = state.job(row)
    if not job.gang:
        left = [t for t in state.tasks_of(row) if state.tasks.state[t] != TaskState.FINISHED]
        job = replace(job, tasks=tuple(state.task(t) for t in left))
    return fits_no_node(job, [state.node(n) for n in state.live_nodes()]) is not None


def ends_all(engine: Engine, *, held_back: bool) -> bool:
    """Return whether all jobs ended but those that never can and, if `held_back`, some others."""
    waits = left(engine)
    lost = [can_never_end(engine, row) for row in waits]
    return all(lost) or (held_back and any(lost))


@contextmanager
def named(storm_of: str) -> Iterator[None]:
    """Make a failure say which storm it was."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in {storm_of}")
        raise
