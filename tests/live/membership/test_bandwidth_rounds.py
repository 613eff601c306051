"""Rounds of probes: which nodes are probed, which events result, and the loss of a probed node."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from concurrent.futures import Future

import pytest
from tests.live.conftest import Method

from headgate.engine import Engine
from headgate.live.actors.master_client import ReachableNodes
from headgate.live.cluster.ray_nodes import RayMember
from headgate.live.membership.bandwidth_probe import (
    BandwidthProbe,
    one_node,
    pair_across,
    pair_in_rack,
)
from headgate.model import Bandwidth
from headgate.protocol import BandwidthMeasured, Event

MEGA = 1e6
Rate = float | None


class _Agent:
    """A fake agent: records requests, and returns the rates of the world."""

    def __init__(self, name: str, world: _World) -> None:
        self._name, self._world = name, world
        self.time_transfer, self.time_disk = Method(self._transfer), Method(self._disk)

    async def _transfer(self, host: str, port: int) -> Rate:
        self._world.asked.append((self._name, host))
        near = self._world.rack_of(self._name) == self._world.rack_of(host)
        rate = self._world.near if near else self._world.far
        if rate is None:
            await asyncio.Event().wait()  # without limit
        return rate

    async def _disk(self) -> Rate:
        self._world.asked.append((self._name,))
        return self._world.disk


class _World:
    """Nodes in racks, rates between them, and an engine that handles the events."""

    def __init__(self, *racks: int) -> None:
        self.near: Rate = 300 * MEGA
        self.far: Rate = 100 * MEGA
        self.disk: Rate = 600 * MEGA
        self.asked: list[tuple[str, ...]] = []
        self.posted: list[Bandwidth] = []
        self.engine, self.at = Engine(), 0.0
        self.reachable, self.agents = ReachableNodes(), {}
        numbers = itertools.count()
        for rack, nodes in enumerate(racks):
            for _ in range(nodes):
                name = f"n{next(numbers)}"
                self.agents[name] = _Agent(name, self)
                self.reachable.addresses[name] = (name, 1)
                self.reachable.members[name] = RayMember(
                    name=name, ray_id=name, rack=f"r{rack}", address=name, gpus=1, cpus=1,
                    gpu_memory_bytes=None,
                )  # fmt: skip
        self.probe = BandwidthProbe(
            agents=self.agents,
            reachable=self.reachable,
            post=self._post,
            now=lambda: self.at,
            snapshot=self.engine.snapshot,
            period_s=10.0,
        )

    def rack_of(self, name: str) -> str:
        return self.reachable.members[name].rack

    def _post(self, events: Sequence[Event]) -> Future[None]:
        self.engine.handle(*events)
        self.posted += [e.bandwidth for e in events if isinstance(e, BandwidthMeasured)]
        done: Future[None] = Future()
        done.set_result(None)
        return done

    async def asks(self, count: int) -> None:
        """Wait until `count` probes were requested."""
        while len(self.asked) < count:  # noqa: ASYNC110  # the caller has a timeout
            await asyncio.sleep(0)

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.at += 10.0
            asyncio.run(self.probe.probe_round())


def _bandwidth(disk: float, rack: float, cluster: float) -> Bandwidth:
    return Bandwidth(
        disk_bytes_per_s=pytest.approx(disk * MEGA),
        rack_bytes_per_s=pytest.approx(rack * MEGA),
        cluster_bytes_per_s=pytest.approx(cluster * MEGA),
    )


def test_change_of_bandwidth_is_posted_once() -> None:
    world = _World(2, 2)
    world.rounds(10)
    assert world.posted == [_bandwidth(600, 300, 100)]
    world.far = 10 * MEGA
    world.rounds(1)
    assert len(world.posted) == 1
    world.rounds(9)
    assert world.posted[1:] == [_bandwidth(600, 300, 10)]
    assert world.engine.snapshot().bandwidth == world.posted[1]
    world.rounds(10)
    assert len(world.posted) == 2


def test_remote_bandwidth_never_exceeds_local_bandwidth() -> None:
    world = _World(2, 2)
    world.disk = 100 * MEGA
    world.far = 400 * MEGA
    world.rounds(1)
    assert world.posted == [_bandwidth(100, 100, 100)]


@pytest.mark.parametrize(
    ("racks", "disk", "expected"),
    [
        ((3,), 600, [_bandwidth(600, 300, 300)]),  # one rack: nothing lies further
        ((1, 1), 600, [_bandwidth(600, 100, 100)]),  # nothing lies nearer
        ((2, 2), None, [_bandwidth(500, 300, 100)]),  # disks as assumed
        ((1,), 250, [_bandwidth(250, 125, 31.25)]),  # nothing else is known
        ((), None, []),
    ],
)
def test_bandwidth_that_cannot_be_measured_has_a_default(
    racks: tuple[int, ...], disk: float | None, expected: list[Bandwidth]
) -> None:
    world = _World(*racks)
    world.disk = None if disk is None else disk * MEGA
    world.rounds(3)
    assert world.posted == expected


def test_round_makes_few_probes_and_rounds_cover_all_nodes() -> None:
    world = _World(3, 1, 2)
    world.rounds(1)
    assert len(world.asked) == 6
    world.rounds(29)
    near = {(a, b) for a, b in itertools.permutations(world.agents, 2)
            if world.rack_of(a) == world.rack_of(b)}  # fmt: skip
    far = set(itertools.permutations(world.agents, 2)) - near
    assert set(world.asked) == near | far | {(name,) for name in world.agents}


@pytest.mark.parametrize("sizes", [(1, 1), (4, 4), (3, 5, 1, 2), (1,), (7,), ()])
def test_turns_cover_every_pair(sizes: tuple[int, ...]) -> None:
    racks = [[f"r{rack}n{node}" for node in range(size)] for rack, size in enumerate(sizes)]
    rack_of = {node: rack for rack, nodes in enumerate(racks) for node in nodes}
    pairs = list(itertools.permutations(rack_of, 2))
    near = [pair for pair in pairs if rack_of[pair[0]] == rack_of[pair[1]]]
    far = [pair for pair in pairs if rack_of[pair[0]] != rack_of[pair[1]]]
    most = max(sizes, default=1)
    turns = range((len(sizes) + 1) ** 2 * most**2)
    assert {pair_in_rack(racks, turn) for turn in turns} == (set(near) or {()})
    assert {pair_across(racks, turn) for turn in turns} == (set(far) or {()})
    assert [one_node(racks, turn) for turn in range(len(rack_of))] == [(n,) for n in rack_of]


def test_lost_node_ends_its_probe_and_the_round_continues() -> None:
    world = _World(2, 2)
    world.far = None

    async def lose() -> None:
        world.at += 10.0
        going = asyncio.create_task(world.probe.probe_round())
        # two probes within racks have ended; none across racks ends
        for count, party in ((3, 0), (4, 1)):
            await world.asks(count)
            (other, *_) = sorted(set(world.agents) - set(world.asked[-1]))
            world.probe.node_lost(other)
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(world.asked) == count
            world.probe.node_lost(world.asked[-1][party])
        await going

    asyncio.run(asyncio.wait_for(lose(), 30))
    assert world.posted == [_bandwidth(600, 300, 300)]


def test_rounds_are_made_on_demand_and_end_when_cancelled() -> None:
    world = _World(2, 2)

    async def demand() -> None:
        probe = world.probe
        probe._period_s = 0
        running = asyncio.create_task(probe.run())
        for count in (1, 2):
            probe.request_round()
            await world.asks(6 * count)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled()

    asyncio.run(asyncio.wait_for(demand(), 30))
    assert len(world.asked) == 12
