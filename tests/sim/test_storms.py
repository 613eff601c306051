"""Storms over the simulated world: hundreds of random clusters, jobs and faults.

After every batch all laws hold; every job ends, or it is shown that it cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from headgate.decision.door import unfit
from headgate.engine import Engine, drive
from headgate.model import Job
from headgate.policies.fifo import FirstInFirstOut
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
    WakeAt,
)
from headgate.sim.network import FluidNetwork, Transfer
from headgate.sim.world import SimulatedWorld
from headgate.state import JobState, TaskState, check
from headgate.state.life import ENDED
from headgate.testing.digest import digest
from headgate.testing.storms import Storm, storm

MOST_BATCHES = 5000


class WatchedNetwork(FluidNetwork):
    """Keeps its own account of what every run has moved, by locality."""

    def __init__(self, **links: float | None) -> None:
        super().__init__({}, **links)  # type: ignore[arg-type]
        self.moved: dict[int, list[int]] = {}

    def _note(self, transfer: Transfer, moved_bytes: int) -> None:
        assert 0 <= moved_bytes <= transfer.size_bytes
        self.moved.setdefault(transfer.id, [0, 0, 0])[transfer.locality] += moved_bytes

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
    """An observer: laws after every batch, runs open, and the journal of all that was said."""

    def __init__(self, engine: Engine, network: WatchedNetwork) -> None:
        self.engine = engine
        self.network = network
        self.batches: list[tuple[Event, ...]] = []
        self.commands: list[list[Command]] = []
        self.open: dict[int, LaunchTask] = {}
        self.last_at = 0.0

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        self.batches.append(batch)
        self.commands.append(list(commands))
        assert len(self.batches) < MOST_BATCHES, "it never ends"
        assert {e.at for e in batch} == {batch[0].at}, "a batch is one instant"
        assert batch[0].at >= self.last_at, "time does not go back"
        self.last_at = batch[0].at
        check(self.engine.state)
        for event in batch:
            self.see(event)
        for command in commands:
            assert not isinstance(command, WakeAt), self.engine.state.refusals
            members = command.members if isinstance(command, LaunchGang) else (command,)
            for launch in members:
                if isinstance(launch, LaunchTask):
                    self.begins(launch)

    def begins(self, launch: LaunchTask) -> None:
        running = {(o.job, o.ordinal) for o in self.open.values()}
        assert (launch.job, launch.ordinal) not in running, "no task runs twice at once"
        held = {(o.node, g) for o in self.open.values() for g in o.gpus}
        assert not held & {(launch.node, g) for g in launch.gpus}, "no GPU serves two"
        self.open[launch.id] = launch

    def see(self, event: Event) -> None:
        match event:
            case TaskFinished() | TaskFailed() | TaskStopped():
                del self.open[event.cause]  # each run ends once
                moved = self.network.moved.get(event.cause, [0, 0, 0])
                assert list(event.usage.read_bytes) == moved, "usage says what was moved"
            case NodeLost(node=name):
                self.vanish(name)
            case NodeJoined():
                self.vanish(event.node.id)
            case _:
                pass

    def vanish(self, node: str) -> None:
        self.open = {i: o for i, o in self.open.items() if o.node != node}


def ride(weather: Storm) -> Watch:
    """Let a storm pass; return what was seen, with every check that holds for any storm made."""
    engine, network = Engine(), WatchedNetwork(**weather.links)
    world = SimulatedWorld(
        weather.facts,
        network=network,
        policy=FirstInFirstOut(),
        seed=weather.seed,
        decision_latency_s=weather.decision_latency_s,
        fails_after_s=weather.fails_after_s,
    )
    watch = Watch(engine, network)
    drive(engine, world, observe=(watch,))
    assert watch.open == {}, "what runs ends"
    assert engine.outstanding() == []
    total = tuple(sum(m[where] for m in network.moved.values()) for where in range(3))
    assert network.moved_bytes == total
    again = Engine()
    assert [again.handle(*batch) for batch in watch.batches] == watch.commands
    assert digest(again.state) == digest(engine.state)
    return watch


def can_never_run(engine: Engine, row: int) -> bool:
    """Say whether what is left of a job fits no node that is up."""
    state = engine.state
    job: Job = state.job(row)
    if not job.gang:
        left = [t for t in state.tasks_of(row) if state.tasks.state[t] != TaskState.FINISHED]
        job = replace(job, tasks=tuple(state.task(t) for t in left))
    return unfit(job, [state.node(n) for n in state.live_nodes()]) is not None


@pytest.mark.parametrize("tens", range(30))
def test_every_job_ends_in_a_storm_or_needs_what_never_came_back(tens: int) -> None:
    for seed in range(tens * 10, tens * 10 + 10):
        try:
            watch = ride(storm(seed))
            state = watch.engine.state
            stuck = [r for r, s in enumerate(state.jobs.state.array().tolist()) if s not in ENDED]
            flying = [r for r in stuck if state.jobs.state[r] == JobState.ACTIVE]
            # who waits in vain needs what is gone, or stands behind one who does
            assert not stuck or any(can_never_run(watch.engine, r) for r in flying), stuck
        except Exception as error:
            error.add_note(f"in storm({seed})")
            raise


@pytest.mark.parametrize("tens", range(10))
def test_every_job_finishes_in_calm_weather(tens: int) -> None:
    for seed in range(tens * 10, tens * 10 + 10):
        try:
            state = ride(storm(seed, calm=True)).engine.state
            assert set(state.jobs.state.array().tolist()) <= {JobState.FINISHED}
        except Exception as error:
            error.add_note(f"in storm({seed}, calm=True)")
            raise
