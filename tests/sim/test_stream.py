"""Streams of submissions: read as time advances, with the outcome of submissions given as facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pytest
from tests.cases import cases

from headgate.app import POLICIES
from headgate.base.errors import InvariantBroken
from headgate.engine import Engine, drive
from headgate.metrics.records import JobRecorder, JobRecords
from headgate.model import Gpu, Job, Node, Queue, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.ports import make_policy
from headgate.protocol import Command, Event, JobSubmitted, NodeJoined, QueueChanged
from headgate.sim.world import SimulatedWorld
from headgate.state.life import ENDED
from headgate.testing.storms import Storm, storm

Submissions = Iterable[tuple[float, Job]]


class Weather:
    """One storm under one policy: what its facts and submissions lead to."""

    def __init__(
        self, policy: str, storm: Storm, facts: Sequence[Event], submissions: Submissions
    ) -> None:
        self.engine = Engine()
        self.recorder = JobRecorder(self.engine.state, jobs=20)
        self.output: list[str] = []
        world = SimulatedWorld(
            facts,
            submissions=submissions,
            network=FluidNetwork({}, **storm.links),  # type: ignore[arg-type]
            policy=make_policy(POLICIES, policy),
            seed=storm.seed,
            decision_latency_s=storm.decision_latency_s,
            fails_after_s=storm.fails_after_s,
        )
        drive(self.engine, world, observe=(self.recorder, self._see))

    def _see(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        self.output.append(repr((batch, commands)))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_stream_of_submissions_gives_the_events_that_facts_give(policy: str) -> None:
    """Also where jobs come at the instant of ends, faults and cancellations."""
    made = make_policy(POLICIES, policy)
    for seed in range(cases(2)):
        weather = storm(seed, accepts=lambda job: made.refuses(job) is None)
        others = [fact for fact in weather.facts if not isinstance(fact, JobSubmitted)]
        jobs = [fact for fact in weather.facts if isinstance(fact, JobSubmitted)]
        whole = Weather(policy, weather, [*others, *jobs], ())
        jobs.sort(key=lambda fact: fact.at)
        stream = Weather(policy, weather, others, ((fact.at, fact.job) for fact in jobs))
        assert stream.output == whole.output


def test_records_of_jobs_equal_the_state() -> None:
    for seed in range(12):
        weather = storm(seed)
        played = Weather("fifo", weather, weather.facts, ())
        kept, there = played.recorder.records(), JobRecords.of(played.engine.state)
        for name in JobRecords.__slots__:
            assert repr(getattr(kept, name)) == repr(getattr(there, name)), (seed, name)
        assert len(played.recorder.ended) == np.isin(kept.state, ENDED).sum()


FACTS = (
    QueueChanged(at=0.0, queue=Queue(name="default")),
    NodeJoined(at=0.0, node=Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1),))),
)


def job(number: int) -> Job:
    return Job(id=f"j{number}", name="j", user="ada", queue="default", tasks=(Task(compute_s=5.0),))


def world_of(submissions: Submissions) -> SimulatedWorld:
    network = FluidNetwork(
        {},
        disk_bytes_per_s=1,
        node_link_bytes_per_s=1,
        rack_uplink_bytes_per_s=1,
        aggregation_bytes_per_s=None,
    )
    return SimulatedWorld(FACTS, submissions=submissions, network=network, policy=FirstInFirstOut())


def test_at_most_one_submission_is_read_ahead() -> None:
    taken: list[float] = []

    def submissions() -> Iterator[tuple[float, Job]]:
        for number in range(50):
            taken.append(3.0 * number)
            yield taken[-1], job(number)

    ahead = []
    world = world_of(submissions())

    def see(batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        del batch, commands
        ahead.append(sum(at > world.now() for at in taken))

    drive(Engine(), world, observe=(see,))
    assert len(taken) == 50
    assert set(ahead) == {0, 1}


def test_stream_with_decreasing_times_is_rejected() -> None:
    world = world_of([(5.0, job(1)), (4.0, job(2))])
    with pytest.raises(InvariantBroken, match="job j2 is submitted at 4"):
        drive(Engine(), world)
