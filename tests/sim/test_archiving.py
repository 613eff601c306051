"""Archived jobs leave the tables, and nothing else changes: storms with and without an archive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import pytest
from tests.cases import cases

from headgate.app import POLICIES
from headgate.base.rng import Random, stream
from headgate.engine import Engine, drive
from headgate.journal.snapshots import decode_snapshot, encode_snapshot
from headgate.machine import archiving
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.ports import make_policy
from headgate.protocol import (
    Command,
    Event,
    JobsArchived,
    JobSubmitted,
    LaunchGang,
    LaunchTask,
    PlanAdmitted,
    StopTask,
)
from headgate.sim.world import SimulatedWorld
from headgate.state import check, thaw
from headgate.state.life import ENDED
from headgate.testing.digest import digest
from headgate.testing.storms import storm

IN_TURN = ("fifo", "gs", "gsp", "gsd", "capacity", "fair")
BY_FLOW = ("headgate", "fs", "fsp", "fsu")


class Archiving(SimulatedWorld):
    """A simulated world that archives some of the jobs that have ended, now and then.

    Those that a job comes after stay until it is submitted.
    """

    engine: Engine
    rng: Random
    submitted: set[str]
    ahead: dict[str, set[str]]  # by job: those after it

    def events(self) -> Iterator[tuple[Event, ...]]:
        for batch in super().events():
            self.submitted |= {e.job.id for e in batch if isinstance(e, JobSubmitted)}
            yield batch
            state = self.engine.state
            ended = [
                state.job(row).id
                for row, at in enumerate(state.jobs.state.array().tolist())
                if at in ENDED and not state.jobs.archived[row] and self.rng.random() < 0.5
            ]
            settled = tuple(job for job in ended if not self.ahead[job] - self.submitted)
            if settled:
                yield (JobsArchived(at=self.now(), jobs=settled),)


class Seen:
    """What happened, archiving aside, with all laws of the state after every batch."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.batches: list[tuple[Event, ...]] = []
        self.history_of: list[object] = []
        self.compacted = 0
        self._names = engine.state.names

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        self.batches.append(batch)
        check(self._engine.state)
        self.history_of += [e for e in batch if not isinstance(e, JobsArchived | PlanAdmitted)]
        for command in commands:
            members = command.members if isinstance(command, LaunchGang) else (command,)
            self.history_of += [m for m in members if isinstance(m, LaunchTask | StopTask)]
        if self._engine.state.names is not self._names:
            self.compacted += 1
            self._names = self._engine.state.names


def ride(seed: int, name: str, *, archiving: bool) -> tuple[Engine, Seen]:
    """Let a storm pass; return the engine at its end, and what was seen."""
    policy = make_policy(POLICIES, name)
    weather = storm(seed, accepts=lambda job: policy.refuses(job) is None)
    engine = Engine()
    world = (Archiving if archiving else SimulatedWorld)(
        weather.facts,
        network=FluidNetwork({}, **weather.links),  # type: ignore[arg-type]
        policy=policy,
        seed=seed,
        decision_latency_s=weather.decision_latency_s,
        fails_after_s=weather.fails_after_s,
    )
    if isinstance(world, Archiving):
        world.engine, world.rng = engine, stream(seed, "archiving")
        world.submitted, world.ahead = set(), defaultdict(set)
        for fact in weather.facts:
            for before in fact.job.after if isinstance(fact, JobSubmitted) else ():
                world.ahead[before].add(fact.job.id)
    seen = Seen(engine)
    drive(engine, world, observe=(seen,))
    return engine, seen


@pytest.fixture(autouse=True)
def _compact_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "COMPACT_ROWS", 1)


@pytest.mark.parametrize("name", IN_TURN)
def test_archived_jobs_change_no_start_and_no_end_of_others(name: str) -> None:
    compacted = 0
    for seed in range(cases(6)):
        _, plain = ride(seed, name, archiving=False)
        _, seen = ride(seed, name, archiving=True)
        assert seen.history_of == plain.history_of, f"storm({seed})"
        compacted += seen.compacted
    assert compacted > 1


@pytest.mark.parametrize("name", BY_FLOW)
def test_all_invariants_hold_in_storms_with_an_archive(name: str) -> None:
    compacted = 0
    for seed in range(cases(6)):
        compacted += ride(seed, name, archiving=True)[1].compacted
    assert compacted > 1


@pytest.mark.parametrize("name", ["fifo", "headgate"])
def test_replay_and_snapshots_give_the_same_state_when_tables_were_compacted(name: str) -> None:
    for seed in range(8):
        engine, seen = ride(seed, name, archiving=True)
        again = Engine()
        for batch in seen.batches:
            again.replay(batch)
        assert digest(again.state) == digest(engine.state), f"storm({seed})"
        stored = decode_snapshot(encode_snapshot(engine.state.freeze()))
        restored = thaw(stored, hypothetical=False)
        assert digest(restored) == digest(engine.state), f"storm({seed})"
        check(restored)
