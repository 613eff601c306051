"""The client of a master that forgets and fails: launches and stops get through, once."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError, RayTaskError
from tests.live.conftest import Method, command

from headgate.live.actors import master_client
from headgate.live.actors.master_client import MasterClient, ReachableNodes
from headgate.live.actors.spares import Spares
from headgate.live.base.records import Batch, LaunchRecord, OutcomeKind, OutcomeRecord, StopRecord
from headgate.live.base.supervise import Backoff, supervise
from headgate.live.cluster.ray_nodes import RayMember
from headgate.model import Demand, Locality, Read, RunId, Shard
from headgate.protocol import Event, LaunchTask, TaskFinished, TaskStopped

PATIENCE_S = 30.0


class _Master:
    """A fake master: records commands, reports outcomes of the test; `die` clears its state."""

    def __init__(self) -> None:
        self.launch, self.stop, self.poll = map(Method, (self._launch, self._stop, self._poll))
        self.keep_only = Method(self._keep_only)
        self.kept: list[tuple[RunId, ...]] = []  # what it was asked to keep, each time
        self.launched_before: list[int] = []  # how many launches it had got by then
        self.keep_failures: list[BaseException] = []
        self.launched: list[LaunchRecord] = []
        self.stopped: list[StopRecord] = []
        self.failures: list[BaseException] = []
        self.news = asyncio.Event()
        self.die()

    def die(self) -> None:
        self.incarnation = secrets.token_hex(4)
        self.outbox: list[tuple[int, OutcomeRecord]] = []
        self.acked = 0

    def report(self, launch: int, kind: OutcomeKind, message: str = "") -> None:
        number = len(self.outbox) + self.acked + 1
        outcome = OutcomeRecord(run=_run_id(launch), kind=kind, message=message)
        self.outbox.append((number, outcome))
        self.news.set()

    async def _launch(self, launches: Sequence[LaunchRecord]) -> str:
        self.launched += launches
        return self.incarnation

    async def _keep_only(self, runs: tuple[RunId, ...]) -> str:
        await asyncio.sleep(0)
        if self.keep_failures:
            raise self.keep_failures.pop()
        self.kept.append(runs)
        self.launched_before.append(len(self.launched))
        return self.incarnation

    async def _stop(self, stops: Sequence[StopRecord]) -> str:
        self.stopped += stops
        return self.incarnation

    async def _poll(self, incarnation: str, acked: int, wait_s: float) -> Batch:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop()
        if incarnation == self.incarnation:
            self.outbox = [entry for entry in self.outbox if entry[0] > acked]
            self.acked = max(self.acked, acked)
        return Batch(incarnation=self.incarnation, outcomes=tuple(self.outbox))


class _Bed:
    """A client that runs, supervised as in the live world."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.master = _Master()
        monkeypatch.setattr(master_client, "start_master", lambda *_: self.master)
        monkeypatch.setattr(master_client, "_PAUSE_S", 0.001)
        self.reachable = ReachableNodes()
        self.events: list[Event] = []
        self.fault: Exception | None = None  # raised when the next facts are posted
        self.client = MasterClient(
            "j",
            root=Path("/nowhere"),
            reachable=self.reachable,
            spares=Spares(Path("/nowhere"), self.reachable.members, per_node=0),
            post=self._post,
            now=lambda: 1.0,
        )

    def _post(self, events: Sequence[Event]) -> Future[None]:
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        self.events += events
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def meet(self, name: str) -> None:
        self.reachable.members[name] = RayMember(
            name=name, ray_id=f"{name}-id", rack="r0", address=name, gpus=1, cpus=1,
            gpu_memory_bytes=None,
        )  # fmt: skip
        self.reachable.addresses[name] = (name, 1)

    def run(self, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def bounded() -> None:
            work = supervise("the client", self.client.run, Backoff(first_s=0))
            running = asyncio.create_task(work)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await scenario()
            finally:
                running.cancel()
                await asyncio.wait({running})

        asyncio.run(bounded())


async def _until(truth: Callable[[], Any]) -> None:
    while not truth():  # noqa: ASYNC110  # the scenario is bounded
        await asyncio.sleep(0.001)


def _launch(number: int, node: str = "n0", reads: tuple[Read, ...] = ()) -> LaunchTask:
    return LaunchTask(
        run=_run_id(number),
        node=node,
        gpus=(0,),
        reads=reads,
        holds=Demand(gpus=1),
        program=command("true"),
    )


def _run_id(number: int) -> RunId:
    return RunId("j", number, 1)


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> _Bed:
    return _Bed(monkeypatch)


def test_stop_is_sent_again_to_a_master_that_was_restarted(bed: _Bed) -> None:
    bed.meet("n0")

    async def scenario() -> None:
        bed.client.launch([_launch(1)])
        await _until(lambda: bed.master.launched)
        bed.client.stop(_run_id(1))
        await _until(lambda: bed.master.stopped)
        bed.master.stopped.clear()
        bed.master.failures.append(ActorUnavailableError("dead", None))
        bed.master.die()
        bed.master.launched.clear()
        await _until(lambda: bed.master.stopped)
        bed.master.report(1, OutcomeKind.STOPPED)
        await _until(lambda: bed.events)

    bed.run(scenario)
    assert bed.master.stopped[0] == StopRecord(run=_run_id(1), node="n0", ray_id="n0-id")
    assert bed.master.launched == [], "a run that is to be stopped is not launched again"
    assert bed.events == [TaskStopped(at=1.0, run=_run_id(1))]


def test_stop_without_notice_follows_a_stop_that_was_sent(bed: _Bed) -> None:
    bed.meet("n0")

    async def scenario() -> None:
        bed.client.launch([_launch(1)])
        bed.client.stop(_run_id(1))
        await _until(lambda: bed.master.stopped)
        bed.client.stop(_run_id(1), now=True)
        await _until(lambda: len(bed.master.stopped) == 2)
        bed.client.stop(_run_id(1))  # the first one, repeated
        bed.master.report(1, OutcomeKind.STOPPED, "it was killed in its grace period")
        await _until(lambda: bed.events)

    bed.run(scenario)
    assert [stop.now for stop in bed.master.stopped] == [False, True]
    message = "it was killed in its grace period"
    assert bed.events == [TaskStopped(at=1.0, run=_run_id(1), message=message)]


def test_launches_carry_grace_period_and_log_limit(bed: _Bed) -> None:
    bed.meet("n0")
    bed.client._log_limit_bytes = 1 << 20

    async def scenario() -> None:
        bed.client.launch([replace(_launch(1), grace_s=7.0)])
        await _until(lambda: bed.master.launched)

    bed.run(scenario)
    (record,) = bed.master.launched
    assert (record.grace_s, record.log_limit_bytes) == (7.0, 1 << 20)


def test_member_of_a_gang_is_stopped_although_another_members_node_is_gone(bed: _Bed) -> None:
    bed.meet("n0")

    async def scenario() -> None:
        bed.client.launch([_launch(0), _launch(1, "n1")], gang=("n0", "n1"))
        bed.client.stop(_run_id(0))
        await _until(lambda: bed.master.stopped)

    bed.run(scenario)
    assert {stop.run.ordinal for stop in bed.master.stopped} == {0}
    assert bed.master.launched == []


def test_link_restarts_after_an_unexpected_error_without_loss(
    bed: _Bed, caplog: pytest.LogCaptureFixture
) -> None:
    bed.meet("n0")

    async def scenario() -> None:
        bed.client.launch([_launch(1)])
        await _until(lambda: bed.master.launched)
        bed.fault = KeyError("n7")
        bed.master.report(1, OutcomeKind.FINISHED)
        await _until(lambda: bed.events)

    bed.run(scenario)
    assert bed.events == [TaskFinished(at=1.0, run=_run_id(1))]
    assert "KeyError" in caplog.text


def test_error_that_a_master_raises_is_logged_with_its_cause(
    bed: _Bed, caplog: pytest.LogCaptureFixture
) -> None:
    bed.meet("n0")
    bed.master.keep_failures.append(RayTaskError("keep_only", "its traceback", KeyError("odd")))

    async def scenario() -> None:
        bed.client.launch([_launch(1)])
        await _until(lambda: bed.master.launched)

    bed.run(scenario)
    assert "its traceback" in caplog.text
    assert "does not respond" not in caplog.text


def test_master_that_hangs_is_restarted_and_sent_everything_again(
    bed: _Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setattr(master_client, "_POLL_S", 0.0)
    monkeypatch.setattr(master_client, "_RESPONSE_S", 0.05)
    bed.meet("n0")
    killed: list[bool] = []
    hanging = True

    async def poll(*arguments: Any) -> Batch:
        while hanging:  # noqa: ASYNC110  # the scenario is bounded
            await asyncio.sleep(0.01)
        return await bed.master._poll(*arguments)

    def kill(master: _Master, *, no_restart: bool) -> None:
        nonlocal hanging
        killed.append(no_restart)
        master.launched.clear()
        master.die()
        hanging = False

    monkeypatch.setattr(bed.master, "poll", Method(poll))
    monkeypatch.setattr(ray, "kill", kill)

    async def scenario() -> None:
        bed.client.launch([_launch(1)])
        await _until(lambda: killed and bed.master.launched)

    bed.run(scenario)
    assert killed == [False]
    assert {launch.run.ordinal for launch in bed.master.launched} == {1}


def test_launch_waits_until_every_shard_has_a_source_with_an_address(bed: _Bed) -> None:
    bed.meet("n0")
    shards = [Shard(id=f"j/{number}", size_bytes=1) for number in range(3)]
    reads = (
        Read(shard=shards[0], locality=Locality.NODE, sources=("n0",)),
        Read(shard=shards[1], locality=Locality.CLUSTER, sources=("n1", "n2")),
        Read(shard=shards[2], locality=Locality.CLUSTER, sources=()),
    )

    async def scenario() -> None:
        bed.client.launch([_launch(1, reads=reads), _launch(2)])
        await _until(lambda: bed.master.launched)
        assert {launch.run.ordinal for launch in bed.master.launched} == {2}
        bed.meet("n2")
        await _until(lambda: bed.master.launched[-1].run.ordinal == 1)

    bed.run(scenario)
    assert bed.master.launched[-1].addresses == {"n0": ("n0", 1), "n2": ("n2", 1)}


def test_launch_is_sent_after_a_while_without_an_address_of_a_source(
    bed: _Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_client, "_ADDRESS_S", 0.0)
    bed.meet("n0")
    shard = Shard(id="j/0", size_bytes=1)
    read = Read(shard=shard, locality=Locality.CLUSTER, sources=("gone",))

    async def scenario() -> None:
        bed.client.launch([_launch(1, reads=(read,))])
        await _until(lambda: bed.master.launched)

    bed.run(scenario)


def test_link_drops_runs_whose_end_was_handled(bed: _Bed) -> None:
    bed.meet("n0")

    async def scenario() -> None:
        bed.client.launch([_launch(number) for number in range(9)])
        for number in range(9):
            bed.client.stop(_run_id(number))
        await _until(lambda: len({stop.run.ordinal for stop in bed.master.stopped}) == 9)
        for number in range(9):
            bed.master.report(number, OutcomeKind.STOPPED)
        await _until(lambda: bed.master.acked == 9)

    bed.run(scenario)
    assert len(bed.client._outstanding) == 0


def test_each_incarnation_of_a_master_is_sent_the_known_runs_until_it_responds(
    bed: _Bed,
) -> None:
    bed.meet("n0")
    bed.master.keep_failures.append(ActorUnavailableError("busy", None))

    async def scenario() -> None:
        bed.client.launch([_launch(1)])
        await _until(lambda: bed.master.launched)
        assert bed.master.kept == [(_run_id(1),)]
        bed.master.launched.clear()
        bed.master.die()
        await _until(lambda: bed.master.launched)

    bed.run(scenario)
    assert bed.master.kept == [(_run_id(1),)] * 2
    assert bed.master.launched_before == [0, 0]
    assert [launch.run for launch in bed.master.launched] == [_run_id(1)]
