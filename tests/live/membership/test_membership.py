"""Nodes are added independently of each other, and compared with the current state."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.live.test_system_parts import _engine, _report

from headgate.base.errors import WorldError
from headgate.engine import Engine
from headgate.journal import Archive
from headgate.live.actors.agent import AgentReport
from headgate.live.actors.master_client import ReachableNodes
from headgate.live.cluster.ray_nodes import RayMember
from headgate.live.membership import membership as membership_module
from headgate.live.membership.membership import Membership
from headgate.protocol import (
    Event,
    GpusWithheld,
    NodeJoined,
    NodeLost,
    NodeReported,
    ReplicaAdded,
)
from headgate.state.tables import OTHERS


def _member(name: str, ray_id: str) -> RayMember:
    return RayMember(
        name=name, ray_id=ray_id, rack="r0", address=name, gpus=1, cpus=1, gpu_memory_bytes=1
    )


class _Method:
    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self.remote = call


class _Agent:
    def __init__(self, report: Callable[[], Awaitable[AgentReport]]) -> None:
        self.report = _Method(report)


class _Holders:
    """Holders of GPUs, some of which other programs use."""

    def __init__(self) -> None:
        self.used: dict[str, tuple[int, ...]] = {}

    async def hold(self, member: RayMember) -> None: ...

    def withheld(self, member: RayMember) -> tuple[int, ...]:
        return self.used.get(member.name, ())

    def lent(self, member: RayMember) -> frozenset[int]:
        return frozenset()

    def drop(self, ray_id: str) -> None: ...


class _Bed:
    """An engine with the node n0, and agents that respond as set by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, files: Path) -> None:
        self.engine: Engine = _engine()
        self.events: list[Event] = []
        self.posted: list[Future[None]] = []
        self.full = False  # the journal's disk: what is posted waits
        self.there: list[RayMember] = []
        self.agents: dict[str, Any] = {}
        self.holders = _Holders()
        monkeypatch.setattr(membership_module, "members", lambda: self.there)
        monkeypatch.setattr(membership_module, "start_agent", self._start)
        self.membership = Membership(
            root=Path("/nowhere"), reachable=ReachableNodes(), post=self._post, now=lambda: 9.0,
            snapshot=self.engine.snapshot, token="secret",
            archive=Archive.open(files / "archive.db"), holders=cast("Any", self.holders),
        )  # fmt: skip

    def _start(self, member: RayMember, root: Path, *, token: str) -> _Agent:
        assert token == "secret"
        agent = self.agents[member.name]
        if isinstance(agent, Exception):
            raise agent
        assert isinstance(agent, _Agent)
        return agent

    def _post(self, events: Sequence[Event]) -> Future[None]:
        self.events += events
        handled: Future[None] = Future()
        if not self.full:
            self.engine.handle(*events)
            handled.set_result(None)
        self.posted.append(handled)
        return handled


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _Bed:
    return _Bed(monkeypatch, tmp_path)


async def _empty() -> AgentReport:
    return _report()


async def _full() -> AgentReport:
    return _report(("j/0", 7), ("j/1", 7), ("d:00000", 4))


def test_loss_of_a_node_is_detected_while_the_agent_of_another_does_not_respond(
    bed: _Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership_module, "_LOOK_S", 0.01)
    monkeypatch.setattr(bed.membership._bandwidth_probe, "run", asyncio.Event().wait)
    hangs = False

    async def report() -> AgentReport:
        nonlocal hangs
        if len(bed.membership.agents) == 2:
            hangs = True
            bed.there = [_member("n0", "second")]
            await asyncio.Event().wait()
        return _report()

    bed.there = [_member("n0", "second"), _member("n9", "only")]
    bed.agents = {"n0": _Agent(report), "n9": _Agent(_empty)}

    async def scenario() -> None:
        watching = asyncio.create_task(bed.membership.run())
        async with asyncio.timeout(15):  # an agent has 20 s to respond
            while NodeLost(at=9.0, node="n9") not in bed.events:  # noqa: ASYNC110  # a list
                await asyncio.sleep(0.01)
        watching.cancel()

    asyncio.run(scenario())
    assert hangs


def test_node_that_cannot_be_added_does_not_prevent_others_from_joining_once(
    bed: _Bed, caplog: pytest.LogCaptureFixture
) -> None:
    slow = asyncio.Event()

    async def late() -> AgentReport:
        await slow.wait()
        return await _full()

    bed.there = [_member("n0", "second"), _member("n9", "only")]
    bed.agents = {"n0": _Agent(late), "n9": KeyError("odd")}

    async def scenario() -> None:
        first = asyncio.create_task(bed.membership._look())
        await asyncio.sleep(0.05)
        assert not first.done(), "a look lasts until all meetings are over"
        slow.set()
        await first
        await bed.membership._look()

    asyncio.run(scenario())
    joins = [event.node.id for event in bed.events if isinstance(event, NodeJoined)]
    assert joins == ["n0"]
    assert "n9 could not be added" in caplog.text


def test_first_look_is_over_when_the_nodes_that_are_there_have_joined(bed: _Bed) -> None:
    """The scaling waits for that: its floor would order nodes in place of those that join."""
    answers = asyncio.Event()

    async def late() -> AgentReport:
        await answers.wait()
        return replace(_report(), node="n1")

    async def looks() -> None:
        bed.there = [_member("n0", "first"), _member("n1", "second")]
        bed.agents = {"n0": _Agent(_empty), "n1": _Agent(late)}
        look = asyncio.create_task(bed.membership._look())
        await asyncio.sleep(0.05)
        assert not bed.membership.looked.is_set()
        answers.set()
        await look
        assert bed.membership.looked.is_set()
        assert len(bed.engine.state.live_nodes()) == 2

    asyncio.run(looks())


def test_node_that_matches_the_state_makes_no_event(bed: _Bed) -> None:
    bed.there = [_member("n0", "first")]
    bed.agents = {"n0": _Agent(_full)}
    asyncio.run(bed.membership._look())
    assert bed.events == []


def test_replica_added_during_the_report_is_not_added_again(
    bed: _Bed,
) -> None:
    view = bed.engine.snapshot()
    (part,) = view.datasets["d"].shards
    bed.engine.handle(NodeLost(at=5, node="n0"))
    node = NodeJoined(at=6, node=view.node(0))
    bed.engine.handle(node)

    async def answer() -> AgentReport:
        bed.engine.handle(ReplicaAdded(at=7, shard=part, node="n0"))
        return _report(("d:00000", 4))

    bed.there = [_member("n0", "first")]
    bed.agents = {"n0": _Agent(answer)}
    asyncio.run(bed.membership._look())
    assert bed.events == []


def test_journal_without_room_for_a_report_of_use_does_not_hold_up_the_watch(bed: _Bed) -> None:
    bed.there = [_member("n0", "first")]
    bed.agents = {"n0": _Agent(_full)}
    bed.full = True

    async def scenario() -> None:
        await bed.membership._look()
        for _ in range(3):
            async with asyncio.timeout(30):
                await bed.membership.refresh_nodes(["n0"])
        assert [type(event) for event in bed.events] == [NodeReported], "one waits, not three"
        bed.posted[0].set_exception(WorldError("no room", code="journal_full"))
        await bed.membership.refresh_nodes(["n0"])
        assert len(bed.events) == 2, "one that was refused is posted again"

    asyncio.run(scenario())


def test_gpus_that_other_programs_use_are_withheld_from_the_next_look_on(bed: _Bed) -> None:
    """Also while another node takes long to join."""
    bed.there = [_member("n0", "first"), _member("n9", "only")]
    bed.agents = {"n0": _Agent(_empty), "n9": _Agent(asyncio.Event().wait)}

    def withheld() -> tuple[int, ...]:
        view = bed.engine.snapshot()
        return tuple(view.withheld_gpus_of(view.names.node_rows["n0"], OTHERS))

    async def scenario() -> None:
        look = asyncio.create_task(bed.membership._look())
        while "n0" not in bed.membership.agents:  # noqa: ASYNC110  # a dict
            await asyncio.sleep(0.01)
        await look
        for used in ((0,), (0,), ()):
            bed.holders.used["n0"] = used
            await bed.membership._look()
            assert withheld() == used

    asyncio.run(scenario())
    found = [event.gpus for event in bed.events if isinstance(event, GpusWithheld)]
    assert found == [(0,), ()], "an event each time that it changes"


def test_loss_of_a_node_is_posted_while_another_one_is_joining(bed: _Bed) -> None:
    bed.there = [_member("n0", "first"), _member("n9", "only")]
    bed.agents = {"n0": _Agent(_empty), "n9": _Agent(asyncio.Event().wait)}

    async def scenario() -> None:
        await bed.membership._look()
        assert not bed.membership.looked.is_set(), "n9 may still join"
        assert len(bed.engine.snapshot().live_nodes()) == 1
        bed.there = [_member("n9", "only")]
        await bed.membership._look()
        assert bed.engine.snapshot().live_nodes() == []

    asyncio.run(scenario())
    assert bed.events[-1] == NodeLost(at=9.0, node="n0")


def test_an_agent_that_does_not_respond_delays_no_report_of_others(
    bed: _Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership_module, "_REPORT_S", 0.01)
    asked = {"n0": 0, "n9": 0}
    enough = asyncio.Event()

    async def prompt() -> AgentReport:
        asked["n0"] += 1
        if asked["n0"] == 5:
            enough.set()
        return _report()

    async def silent() -> AgentReport:
        asked["n9"] += 1
        if asked["n9"] > 1:
            await asyncio.Event().wait()
        return replace(_report(), node="n9")

    bed.there = [_member("n0", "first"), _member("n9", "only")]
    bed.agents = {"n0": _Agent(prompt), "n9": _Agent(silent)}

    async def scenario() -> None:
        await bed.membership._look()
        reading = asyncio.create_task(bed.membership._read_reports())
        async with asyncio.timeout(15):  # an agent has 20 s to respond
            await enough.wait()
        reading.cancel()

    asyncio.run(scenario())
    assert asked["n9"] == 2, "one request at a time"


def test_report_of_the_impossible_is_rejected_and_the_last_good_one_stays(
    bed: _Bed, caplog: pytest.LogCaptureFixture
) -> None:
    good = replace(_report().machine, memory_bytes=100, memory_free_bytes=40)
    wrong = replace(good, memory_free_bytes=-1, cpu_utilisation=math.nan)
    said = [good, good, wrong, wrong, replace(good, memory_free_bytes=10)]
    used = list[int]()

    async def report() -> AgentReport:
        return replace(_report(), machine=said.pop(0))

    bed.there, bed.agents = [_member("n0", "first")], {"n0": _Agent(report)}
    bed.engine.handle(NodeLost(at=1.0, node="n0"))

    async def looks() -> None:
        await bed.membership._look()
        while said:
            await bed.membership.refresh_nodes(["n0"])
            used.append(bed.membership.reports["n0"]["memory_free_bytes"])

    asyncio.run(looks())
    assert used == [40, 40, 40, 10]
    reported = [event.memory_bytes for event in bed.events if isinstance(event, NodeReported)]
    assert reported == [60], "and what is reported later, after the period"
    (message,) = [m for m in caplog.messages if "rejected" in m]
    assert message.endswith("the last good one stays: nan of its CPUs is used, of at most 1")
