"""Holders against a model of what Ray gives out: first come, first served."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from ray.exceptions import RayError
from tests.live.conftest import Method

from headgate.live.cluster import holders as module
from headgate.live.cluster.holders import Holders
from headgate.live.cluster.ray_nodes import RayMember
from headgate.live.controller.submission import why_not_shared

MEMBER = RayMember(
    name="n0", ray_id="r", rack="r0", address="a", gpus=3, cpus=1, gpu_memory_bytes=1
)


class _Actor:
    """A holder, or another program: it waits for a GPU, and has it until it is killed."""

    def __init__(self) -> None:
        self.given: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.gpu = Method(lambda: asyncio.shield(self.given))
        self.ended = Method(lambda: asyncio.shield(self.end))


class _Ray:
    """One node of a Ray cluster; its lock-free parts run on the event loop."""

    def __init__(self, patch: pytest.MonkeyPatch, free: Iterable[int]) -> None:
        self.free, self.queue = sorted(free), list[_Actor]()
        self.named: dict[str, _Actor] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        patch.setattr(module, "_start", lambda member, n: self._call(self.start, f"h:{n}"))
        patch.setattr(module, "end_actors", lambda names: self._call(self.kill, list(names)))
        patch.setattr(module, "_holdable", lambda member: len(self.free))
        patch.setattr(module, "_name", lambda ray_id, n: f"h:{n}")
        for name in ("_RETRY_S", "_LEND_S"):
            patch.setattr(module, name, 0.0)
        patch.setattr(module, "_PLACE_S", 0.2)

    def _call(self, function: Callable[..., Any], argument: Any) -> Any:
        async def work() -> Any:
            return function(argument)

        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(work(), self.loop).result()

    def start(self, name: str) -> _Actor:
        actor = self.named.get(name) or _Actor()
        if name not in self.named:
            self.named[name] = actor
            self.queue.append(actor)
            self._give()
        return actor

    def kill(self, names: list[str]) -> None:
        """Kill actors one by one: what each has goes to the first that waits."""
        for name in names:
            actor = self.named.pop(name, None)
            if actor is None:
                continue
            if actor in self.queue:
                self.queue.remove(actor)
                _fail(actor.given)
            else:
                self.free = sorted([*self.free, actor.given.result()])
                _fail(actor.end)
            self._give()

    def _give(self) -> None:
        while self.queue and self.free:
            self.queue.pop(0).given.set_result(self.free.pop(0))


def _fail(future: asyncio.Future[Any]) -> None:
    future.set_exception(RayError("killed"))
    future.exception()  # that nothing waits for it any more is no error


def _run(scenario: Callable[[Holders], Awaitable[None]], ray: _Ray) -> None:
    async def main() -> None:
        ray.loop, holders = asyncio.get_running_loop(), Holders()
        async with asyncio.timeout(30):
            await holders.hold(MEMBER)
            await scenario(holders)
        holders.drop(MEMBER.ray_id)

    asyncio.run(main())


async def _until(truth: Callable[[], bool]) -> None:
    while not truth():  # noqa: ASYNC110  # of a model
        await asyncio.sleep(0.01)


def test_gpu_that_is_given_out_is_held_when_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = _Ray(monkeypatch, free=(0, 2))

    async def scenario(holders: Holders) -> None:
        assert holders.withheld(MEMBER) == (1,)
        ray.free = [1]
        ray._give()
        await _until(lambda: not holders.withheld(MEMBER))

    _run(scenario, ray)


def test_holder_that_is_killed_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = _Ray(monkeypatch, free=(0, 1, 2))

    async def scenario(holders: Holders) -> None:
        before = ray.named["h:1"]
        ray.kill(["h:1"])
        await _until(lambda: ray.named.get("h:1", before) is not before)
        await _until(lambda: not holders.withheld(MEMBER))

    _run(scenario, ray)


def test_lent_gpu_goes_to_the_program_though_a_holder_waits_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = _Ray(monkeypatch, free=(0, 2))

    async def scenario(holders: Holders) -> None:
        await holders.lend(MEMBER, (2,))
        assert holders.withheld(MEMBER) == (1, 2)
        assert holders.lent(MEMBER) == {2}
        program = ray.start("program")
        assert program.given.result() == 2
        ray.free = [1]  # what was given out is free
        await _until(lambda: holders.withheld(MEMBER) == (2,))
        holders.take_back(MEMBER, used=(2,))
        assert holders.lent(MEMBER) == {2}
        ray.kill(["program"])
        holders.take_back(MEMBER, used=())
        await _until(lambda: not holders.withheld(MEMBER))
        assert not holders.lent(MEMBER)

    _run(scenario, ray)


@pytest.mark.parametrize(
    ("joined", "trusted", "problem"),
    [
        (False, None, "needs a Ray cluster that Headgate has joined"),
        (True, frozenset({"root"}), "gives a program the rights of the nodes' own account"),
        (True, frozenset({"ada"}), ""),
        (True, None, ""),
    ],
)
def test_shared_programs_are_for_joined_clusters_and_users_with_the_rights_of_their_nodes(
    joined: bool, trusted: frozenset[str] | None, problem: str
) -> None:
    why = why_not_shared("ada", joined=joined, trusted=trusted)
    assert (why is None) == (not problem)
    assert why is None or problem in why.problem
