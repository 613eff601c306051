"""Masters with executors that misbehave: every run gets an end, every stop gets through."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError
from tests.live.conftest import Method, command, launch_of

from headgate.live.actors import master as master_module
from headgate.live.actors import masters as masters_module
from headgate.live.actors.master import Master
from headgate.live.actors.masters import end_account
from headgate.live.base.records import (
    GangRecord,
    LaunchRecord,
    OutcomeKind,
    OutcomeRecord,
    StopRecord,
)
from headgate.model import Launch, RunId
from headgate.protocol import FailureKind

PATIENCE_S = 30.0


class _Executor:
    """A fake executor: keeps runs until they are stopped or ended; fails as set by the test."""

    def __init__(self) -> None:
        self.ends: dict[int, asyncio.Future[OutcomeRecord]] = {}
        self.stops: list[list[int]] = []
        self.without_notice: list[bool] = []  # of each stop, whether it was without notice
        self.failures: dict[str, list[BaseException]] = {}  # by method: raised before it works
        self.expired = asyncio.Event()  # its runs were given notice
        self.over = False
        for name in ("begin", "outcome", "stop", "forget", "expire", "over_limit"):
            setattr(self, name, Method(self._failing(name)))

    def _failing(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            if waiting := self.failures.get(name):
                raise waiting.pop(0)
            return await getattr(self, f"_{name}")(*arguments)

        return call

    async def _begin(self, launches: list[LaunchRecord]) -> None:
        for launch in launches:
            self.ends.setdefault(launch.run.ordinal, asyncio.get_running_loop().create_future())

    async def _outcome(self, run: RunId) -> OutcomeRecord:
        return await asyncio.shield(self.ends[run.ordinal])

    async def _stop(self, runs: list[RunId], now: bool = False, most_s: float = 9.0) -> None:
        assert most_s == 9.0 or now
        self.stops.append([run.ordinal for run in runs])
        self.without_notice.append(now)
        for run in runs:
            self.finish(run.ordinal, OutcomeKind.STOPPED)

    async def _forget(self, runs: list[RunId]) -> None:
        for run in runs:
            del self.ends[run.ordinal]

    async def _expire(self, runs: list[RunId]) -> None:
        assert {run.ordinal for run in runs} == {*self.ends}
        self.expired.set()

    async def _over_limit(self, runs: list[RunId]) -> bool:
        assert {run.ordinal for run in runs} == {*self.ends}
        return self.over

    def finish(self, number: int, kind: OutcomeKind = OutcomeKind.FINISHED) -> None:
        self._end(number, OutcomeRecord(run=_run_id(number), kind=kind))

    def fail(self, number: int, failure: FailureKind) -> None:
        kind = OutcomeKind.FAILED
        self._end(number, OutcomeRecord(run=_run_id(number), kind=kind, failure=failure))

    def _end(self, number: int, outcome: OutcomeRecord) -> None:
        if not self.ends[number].done():
            self.ends[number].set_result(outcome)


class _Bed:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(master_module, "_RETRY_S", 0.0)
        monkeypatch.setattr(master_module, "start_executor", self._start)
        monkeypatch.setattr(master_module, "_stayed_up", self._stayed_up)
        self.master = Master(account="j", root="/nowhere", grace_s=0)
        self.executors: list[_Executor] = [_Executor()]
        self.started: list[str] = []
        self.up = True
        self.acked = 0

    def _start(self, job: str, node: str, ray_id: str, *, root: str) -> Any:
        self.started.append(ray_id)
        return self.executors[min(len(self.started), len(self.executors)) - 1]

    async def _stayed_up(self, ray_id: str) -> bool:
        return self.up

    async def launch(self, *numbers: int, ray_id: str = "r0") -> str:
        return await self.master.launch(
            [launch_of(number, (0,), ray_id=ray_id) for number in numbers]
        )

    async def stop(self, number: int, *, now: bool = False, grace_s: float = 9.0) -> None:
        stop = StopRecord(run=_run_id(number), node="n0", ray_id="r0", now=now, grace_s=grace_s)
        await self.master.stop([stop])

    async def outcomes(self, *, ack: bool = True) -> list[OutcomeRecord]:
        """Return the next outcome, acknowledging all earlier ones."""
        incarnation = (await self.master.poll("", 0, 0)).incarnation
        batch = await self.master.poll(incarnation, self.acked, PATIENCE_S)
        if ack:
            self.acked = batch.outcomes[-1][0]
        return [outcome for _, outcome in batch.outcomes]

    async def end(self, number: int) -> OutcomeRecord:
        while True:
            for outcome in await self.outcomes():
                if (outcome.run.ordinal, outcome.kind) != (number, OutcomeKind.STARTED):
                    return outcome


def _run_id(number: int) -> RunId:
    return RunId("j", number, 1)


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> _Bed:
    return _Bed(monkeypatch)


def _run(scenario: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await scenario

    return asyncio.run(bounded())


@pytest.mark.parametrize("method", ["begin", "outcome"])
@pytest.mark.parametrize(
    "error",
    [pickle.PicklingError("no"), RayTaskError("begin", "a scenario", KeyError("odd"))],
    ids=["unforeseen", "of the executor"],
)
def test_run_whose_tracking_fails_is_stopped_and_reported_as_failed(
    bed: _Bed, method: str, error: Exception
) -> None:
    async def scenario() -> OutcomeRecord:
        bed.executors[0].failures[method] = [error]
        await bed.launch(1)
        return await bed.end(1)

    outcome = _run(scenario())
    assert (outcome.kind, outcome.failure) == (OutcomeKind.FAILED, FailureKind.ERROR)
    assert "could not be tracked" in outcome.message
    if method == "outcome":
        assert bed.executors[0].stops == [[1]], "its GPUs are free when it is reported"


def test_stop_is_repeated_until_the_executor_accepts_it(bed: _Bed) -> None:
    async def scenario() -> OutcomeRecord:
        bed.executors[0].failures["stop"] = [ActorUnavailableError("away", None) for _ in range(3)]
        await bed.launch(1)
        assert [o.kind for o in await bed.outcomes()] == [OutcomeKind.STARTED]
        await bed.stop(1)
        return await bed.end(1)

    assert _run(scenario()).kind is OutcomeKind.STOPPED
    assert bed.executors[0].stops == [[1]]


def test_stop_reaches_the_executor_that_replaced_a_dead_one(bed: _Bed) -> None:
    bed.executors.append(_Executor())

    async def scenario() -> OutcomeRecord:
        bed.executors[0].failures["begin"] = [ActorDiedError()]
        await bed.launch(1)
        assert [o.kind for o in await bed.outcomes()] == [OutcomeKind.STARTED]
        await bed.stop(1)
        return await bed.end(1)

    assert _run(scenario()).kind is OutcomeKind.STOPPED
    assert [executor.stops for executor in bed.executors] == [[], [[1]]]


def test_run_that_is_to_be_stopped_is_not_begun_on_another_executor(bed: _Bed) -> None:
    bed.executors.append(_Executor())

    async def scenario() -> OutcomeRecord:
        bed.executors[0].failures["begin"] = [ActorDiedError()]
        await bed.launch(1)
        await bed.stop(1)
        return await bed.end(1)

    assert _run(scenario()).kind is OutcomeKind.STOPPED
    assert len(bed.started) == 1


@pytest.mark.parametrize("hangs", ["begin", "stop"])
def test_executor_that_hangs_is_killed_when_a_run_of_it_is_to_end(
    bed: _Bed, monkeypatch: pytest.MonkeyPatch, hangs: str
) -> None:
    import ray

    monkeypatch.setattr(master_module, "_STOP_S", 0.01)
    monkeypatch.setattr(master_module, "_RESPONSE_S", 0.01)
    executor = bed.executors[0]
    killed = asyncio.Event()

    async def hang(*_: Any) -> None:
        await killed.wait()
        raise ActorDiedError

    def kill(actor: _Executor, *, no_restart: bool) -> None:
        assert (actor, no_restart) == (executor, True)
        asyncio.run_coroutine_threadsafe(_set(killed), loop)

    monkeypatch.setattr(ray, "kill", kill)
    monkeypatch.setattr(executor, hangs, Method(hang))
    monkeypatch.setattr(executor, "__ray_ready__", Method(hang), raising=False)

    async def scenario() -> OutcomeRecord:
        nonlocal loop
        loop = asyncio.get_running_loop()
        await bed.launch(1)
        if hangs == "stop":
            await bed.outcomes()
        await bed.stop(1)
        return await bed.end(1)

    loop: asyncio.AbstractEventLoop
    assert _run(scenario()).kind is OutcomeKind.STOPPED


async def _set(event: asyncio.Event) -> None:
    event.set()


def test_responding_executor_is_not_killed_while_a_stopped_run_takes_long_to_end(
    bed: _Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setattr(master_module, "_STOP_S", 0.001)
    monkeypatch.setattr(ray, "kill", lambda *_, **__: pytest.fail("killed"))
    executor = bed.executors[0]
    asked = 0

    async def ready() -> bool:
        nonlocal asked
        asked += 1
        return True

    async def note_only(runs: list[RunId], now: bool, _: float) -> None:
        assert not now
        executor.stops.append([run.ordinal for run in runs])

    monkeypatch.setattr(executor, "stop", Method(note_only))
    monkeypatch.setattr(executor, "__ray_ready__", Method(ready), raising=False)

    async def scenario() -> OutcomeRecord:
        await bed.launch(1)
        await bed.outcomes()
        await bed.stop(1)
        while asked < 5:  # noqa: ASYNC110  # the scenario is bounded
            await asyncio.sleep(0.001)
        executor.finish(1, OutcomeKind.STOPPED)
        return await bed.end(1)

    assert _run(scenario()).kind is OutcomeKind.STOPPED


@pytest.mark.parametrize("known", [True, False], ids=["launched", "by another incarnation"])
def test_stop_without_notice_reaches_a_run_in_its_grace_period(
    bed: _Bed, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    import ray

    executor = bed.executors[0]
    stop_now = executor._stop

    async def stop(runs: list[RunId], now: bool, most_s: float) -> None:
        if now:
            await stop_now(runs, now, most_s)
        else:
            executor.without_notice.append(now)  # it has notice

    monkeypatch.setattr(executor, "stop", Method(stop))
    monkeypatch.setattr(ray, "get_actor", lambda *_, **__: executor)

    async def scenario() -> OutcomeRecord:
        if known:
            await bed.launch(1)
            await bed.outcomes()
        else:
            await executor._begin([launch_of(1, (0,))])
        await bed.stop(1)
        while not executor.without_notice:  # noqa: ASYNC110  # the scenario is bounded
            await asyncio.sleep(0.001)
        await bed.stop(1, now=True)
        return await bed.end(1)

    assert _run(scenario()).kind is OutcomeKind.STOPPED
    assert executor.without_notice[-1]
    assert executor.stops == [[1]]


@pytest.mark.parametrize("launched", [True, False])
def test_master_that_does_not_know_a_run_stops_it_on_its_executor(
    bed: _Bed, monkeypatch: pytest.MonkeyPatch, launched: bool
) -> None:

    executor = bed.executors[0]

    def find(name: str) -> _Executor:
        if not launched:
            raise ValueError(name)
        return executor

    monkeypatch.setattr(master_module, "named_actor", find)

    async def scenario() -> OutcomeRecord:
        if launched:  # by an earlier incarnation
            await executor._begin([launch_of(1, (0,))])
        await bed.stop(1)
        outcome = await bed.end(1)
        await bed.launch(1)  # late: it must not run any more
        return outcome

    assert _run(scenario()).kind is OutcomeKind.STOPPED
    assert executor.stops == ([[1]] if launched else [])
    assert bed.started == []


@pytest.mark.parametrize(("up", "failure"), [(True, "crashed"), (False, "lost")])
def test_executor_death_is_crashed_when_its_node_stayed_up_and_lost_when_not(
    bed: _Bed, up: bool, failure: str
) -> None:
    bed.up = up

    async def scenario() -> OutcomeRecord:
        bed.executors[0].failures["outcome"] = [ActorDiedError()]
        await bed.launch(1)
        return await bed.end(1)

    outcome = _run(scenario())
    assert (outcome.kind, outcome.failure) == (OutcomeKind.FAILED, FailureKind(failure))


def test_runs_are_forgotten_once_acknowledged_and_not_before(bed: _Bed) -> None:
    executor = bed.executors[0]

    async def scenario() -> None:
        await bed.launch(*range(100))
        for number in range(100):
            while number not in executor.ends:  # noqa: ASYNC110  # the scenario is bounded
                await asyncio.sleep(0)
            executor.finish(number)
        reported = 0
        while reported < 200:
            batch = await bed.outcomes(ack=False)
            reported = len(batch)
            await asyncio.sleep(0)
        assert (len(bed.master._runs), len(executor.ends)) == (100, 100)
        await bed.launch(*range(100))  # a controller that has not seen the ends asks again
        assert len(bed.started) == 1
        assert len(await bed.outcomes()) == 200, "the ends are reported again, none runs again"
        await bed.launch(1000)
        while len(executor.ends) != 1:  # the acknowledgement is on its way
            await bed.outcomes()
        assert list(bed.master._runs) == [_run_id(1000)]
        assert not bed.master._outbox or bed.master._outbox[0][1].run == _run_id(1000)

    _run(scenario())


def test_a_handle_is_kept_per_node_however_often_it_returns(bed: _Bed) -> None:
    async def scenario() -> None:
        for number in range(20):
            await bed.launch(number, ray_id=f"r{number}")
            while number not in bed.executors[0].ends:  # noqa: ASYNC110  # the scenario is bounded
                await asyncio.sleep(0)

    _run(scenario())
    assert len(bed.started) == 20
    assert len(bed.master._executors) == 1


def test_run_whose_executor_has_no_free_name_is_lost_with_its_node(
    bed: _Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.up = False

    def start(*_: Any, **__: Any) -> Any:
        raise ValueError("an actor with this name exists already")

    monkeypatch.setattr(master_module, "start_executor", start)

    async def scenario() -> OutcomeRecord:
        await bed.launch(1)
        return await bed.end(1)

    outcome = _run(scenario())
    assert (outcome.kind, outcome.failure) == (OutcomeKind.FAILED, FailureKind.LOST)


def test_unknown_runs_are_stopped_although_the_actors_could_not_be_listed_before(
    bed: _Bed, monkeypatch: pytest.MonkeyPatch
) -> None:

    executor = bed.executors[0]
    failures: list[Exception] = [ActorUnavailableError("away", None)]

    def actors() -> list[str]:
        if failures:
            raise failures.pop()
        return ["headgate-executor-of:j:r0", "headgate-executor-of:other:r0"]

    async def known() -> tuple[str, tuple[RunId, ...]]:
        return "n0", (_run_id(1), _run_id(2))

    monkeypatch.setattr(master_module, "account_actors", actors)
    monkeypatch.setattr(master_module, "named_actor", lambda name: executor)
    monkeypatch.setattr(executor, "known", Method(known), raising=False)

    async def scenario() -> OutcomeRecord:
        await executor._begin([launch_of(1, (0,)), launch_of(2, (0,))])  # by an earlier incarnation
        await bed.master.keep_only([_run_id(2)])
        return await bed.end(1)

    assert _run(scenario()).kind is OutcomeKind.STOPPED
    assert executor.stops == [[1]]
    assert executor.without_notice == [True], "nothing waits for runs that the engine does not know"


# ------------------------------------------------------------------------- time limits of gangs


async def _launch_gang(
    bed: _Bed, launch: Launch = Launch.ALL, **fields: float
) -> tuple[_Executor, _Executor]:
    """Launch a gang of runs 0 and 1 on a node each, and return their executors."""
    bed.executors.append(_Executor())
    gang = GangRecord(hosts=("a", "b"), first_node="n0", first_ray_id="r0")
    program = replace(command("true"), per_node=None if launch is Launch.ALL else launch)
    for executor in bed.executors:
        executor.rendezvous = Method(_no_rendezvous)  # type: ignore[attr-defined]
    await bed.master.launch(
        [
            launch_of(n, (0,), node=f"n{n}", ray_id=f"r{n}", gang=gang, program=program, **fields)
            for n in range(2)
        ]
    )
    while len(await bed.outcomes(ack=False)) < 2:  # noqa: ASYNC110  # both have started
        await asyncio.sleep(0)
    await bed.outcomes()
    return bed.executors[0], bed.executors[1]


async def _no_rendezvous(_: str, __: int) -> None:
    return None


def _unreported(bed: _Bed) -> bool:
    return not [o for _, o in bed.master._outbox if o.kind is not OutcomeKind.STARTED]


@pytest.mark.parametrize("stopped", [False, True], ids=["it ends", "it is stopped"])
def test_gang_at_its_time_limit_is_reported_when_the_other_member_had_its_grace_period(
    bed: _Bed, stopped: bool
) -> None:
    async def scenario() -> list[OutcomeRecord]:
        first, second = await _launch_gang(bed)
        first.fail(0, FailureKind.TIMED_OUT)
        await second.expired.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        assert _unreported(bed), "the controller would stop the other one"
        if stopped:
            await bed.stop(0)
        else:
            second.fail(1, FailureKind.TIMED_OUT)
        ends = [await bed.end(0)]
        if stopped:
            second.finish(1, OutcomeKind.STOPPED)
        return [*ends, await bed.end(1)]

    first, second = _run(scenario())
    assert first.failure is FailureKind.TIMED_OUT
    assert (second.kind is OutcomeKind.STOPPED) is stopped


def test_gang_at_its_time_limit_is_reported_although_the_executor_of_another_member_hangs(
    bed: _Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_module, "_STOP_S", 0.01)

    async def hang(_: list[RunId]) -> None:
        await asyncio.Event().wait()

    async def scenario() -> OutcomeRecord:
        first, second = await _launch_gang(bed, grace_s=0.01)
        monkeypatch.setattr(second, "expire", Method(hang))
        first.fail(0, FailureKind.TIMED_OUT)
        return await bed.end(0)

    assert _run(scenario()).failure is FailureKind.TIMED_OUT


@pytest.mark.parametrize("over", [False, True])
def test_member_that_fails_in_the_grace_period_of_another_has_timed_out(
    bed: _Bed, over: bool
) -> None:
    async def scenario() -> OutcomeRecord:
        first, second = await _launch_gang(bed)
        first.over = over
        second.fail(1, FailureKind.ERROR)
        if over:
            await first.expired.wait()
            assert _unreported(bed)
            first.fail(0, FailureKind.TIMED_OUT)
        return await bed.end(1)

    assert _run(scenario()).failure is (FailureKind.TIMED_OUT if over else FailureKind.ERROR)


@pytest.mark.parametrize("seen", [False, True], ids=["first seen so", "seen before"])
def test_member_that_fails_since_the_executor_of_another_died_has_not_failed_itself(
    bed: _Bed, seen: bool
) -> None:
    """Its program fails as its connections end, and may be reported before that death."""

    async def scenario() -> OutcomeRecord:
        first, second = await _launch_gang(bed)
        if seen:
            bed.master._drop("n0", "r0")
        first.failures["over_limit"] = [ActorDiedError()]
        second.fail(1, FailureKind.ERROR)
        return await bed.end(1)

    assert _run(scenario()).failure is FailureKind.LOST


def test_gang_whose_program_runs_on_its_first_node_is_reported_when_that_member_ends(
    bed: _Bed,
) -> None:
    async def scenario() -> OutcomeRecord:
        first, second = await _launch_gang(bed, Launch.FIRST)
        first.fail(0, FailureKind.TIMED_OUT)
        outcome = await bed.end(0)
        assert not second.expired.is_set()
        return outcome

    assert _run(scenario()).failure is FailureKind.TIMED_OUT


def test_account_that_ends_closes_its_executors_together(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    names = ["headgate-master-of:j", "headgate-executor-of:j:r0", "headgate-executor-of:j:r1"]
    calls: list[object] = []

    class Actor:
        def __init__(self, name: str) -> None:
            self.name = name
            self.close = self

        def remote(self) -> str:
            return self.name

    monkeypatch.setattr(masters_module, "account_actors", lambda: names)
    monkeypatch.setattr(masters_module, "all_actors", lambda name: [Actor(name)])
    monkeypatch.setattr(masters_module, "forget_name", lambda name: None)
    monkeypatch.setattr(ray, "kill", lambda actor, **_: calls.append(actor.name))
    monkeypatch.setattr(ray, "wait", lambda refs, **_: calls.append(tuple(refs)))
    end_account("j")
    assert calls == [names[0], (names[1], names[2]), names[1], names[2]]
