"""Simulations of recorded runs reproduce the observed times."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.engine import Engine, drive
from headgate.model import (
    NO_PROGRAM,
    Bandwidth,
    Dataset,
    Demand,
    Gpu,
    Job,
    Node,
    Program,
    ProgramType,
    Queue,
    Shard,
    Stage,
    Task,
    result_id,
)
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.policies.flow import FlowSharing
from headgate.protocol import (
    BandwidthMeasured,
    DatasetAdded,
    Event,
    JobSubmitted,
    NodeJoined,
    QueueChanged,
    ReplicaAdded,
)
from headgate.sim.replay import recorded
from headgate.sim.report import Launches
from headgate.sim.run import run
from headgate.sim.world import SimulatedWorld

RATE = 1e8
BEGAN_S = 1_700_000_000.0  # live times count from the epoch
LS = Program(stages=(Stage(first=0, count=99, program_type=ProgramType.COMMAND, run="ls"),))


def map_reduce(job: str, shards: tuple[Shard, ...], compute_s: float) -> Job:
    maps = tuple(
        Task(reads=(shard.id,), compute_s=compute_s + n, output_bytes=10**7)
        for n, shard in enumerate(shards)
    )
    reduce = Task(
        reads=tuple(result_id(job, n) for n in range(len(maps))),
        after=tuple(range(len(maps))),
        demand=Demand(cpus_milli=1000),
        compute_s=3.0,
        output_bytes=5,
    )
    return Job(
        id=job, name=job, user="ada", queue="default", tasks=(*maps, reduce), shards=shards,
        program=LS,
    )  # fmt: skip


def observed(seed: int) -> Engine:
    """Run two jobs as a live cluster would, with data put before and times since the epoch."""
    rng = np.random.default_rng(seed)
    nodes = [
        Node(id=f"n{i}", rack=f"r{i // 2}", gpus=(Gpu(memory_bytes=1),) * 2, incarnation="x")
        for i in range(4)
    ]
    shards = tuple(Shard(id=f"d:{i:05d}", size_bytes=int(rng.integers(1e8, 1e9))) for i in range(9))
    bandwidth = Bandwidth(disk_bytes_per_s=5e8, rack_bytes_per_s=RATE, cluster_bytes_per_s=RATE / 2)
    facts: list[Event] = [
        QueueChanged(at=BEGAN_S, queue=Queue(name="default")),
        BandwidthMeasured(at=BEGAN_S, bandwidth=bandwidth),
        *(NodeJoined(at=BEGAN_S, node=node) for node in nodes),
        DatasetAdded(at=BEGAN_S, dataset=Dataset(name="d", user="ada", shards=shards)),
    ]
    for shard in shards:
        holders = rng.choice(4, 2, replace=False).tolist()
        facts += [ReplicaAdded(at=BEGAN_S, shard=shard, node=f"n{n}") for n in holders]
    facts += [
        JobSubmitted(at=BEGAN_S + 100, job=map_reduce("a", shards, 5.0)),
        JobSubmitted(at=BEGAN_S + 104, job=map_reduce("b", shards[:4], 9.0)),
    ]
    world = SimulatedWorld(
        facts,
        network=FluidNetwork(
            {},
            disk_bytes_per_s=5e8,
            node_link_bytes_per_s=RATE,
            rack_uplink_bytes_per_s=RATE / 2,
            aggregation_bytes_per_s=None,
        ),
        policy=FlowSharing(),
    )
    engine = Engine()
    drive(engine, world)
    return engine


@pytest.mark.parametrize("seed", range(5))
def test_replay_reproduces_the_observed_times(seed: int) -> None:
    """Where network and policy are as observed, so are all starts, ends and bytes."""
    seen = observed(seed).state
    starts = Launches()
    outcome = run(recorded(seen), FlowSharing(), observe=(starts,))
    first = seen.jobs.submitted_at[0]
    for column in ("submitted_at", "started_at", "ended_at"):
        expected = getattr(seen.jobs, column).array() - first
        found = getattr(outcome.jobs, column)
        # reading is taken off a difference of times since the epoch, which have 1e-7 s
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert seen.tasks.attempts.array().tolist() == [1] * len(starts.seen)
    assert {(start.job, start.ordinal): start.node for start in starts.seen} == {
        (seen.job(seen.tasks.job[row]).id, seen.ordinal(row)): seen.node(seen.tasks.node[row]).id
        for row in range(len(seen.tasks.state))
    }
    read = [
        int(getattr(seen.jobs, f"read_{where}_bytes").array().sum())
        for where in ("node", "rack", "cluster")
    ]
    assert list(outcome.figures["bytes"].values()) == read


def test_replay_leaves_out_data_of_the_live_world() -> None:
    simulation = recorded(observed(0).state)
    assert {node.incarnation for node in simulation.nodes} == {""}
    assert all(job.program == NO_PROGRAM for _, job in simulation.submissions)
    assert [at for at, _ in simulation.submissions] == [0.0, 4.0]
