"""Slots that users share: their numbers, their order, and waits that end early."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.base.errors import SpecError
from headgate.live.base.user_slots import UserSlots


class Crowd:
    """Users who ask for slots, and give them back."""

    def __init__(self, slots: UserSlots) -> None:
        self.slots, self.order, self.turns = slots, list[Hashable](), list[asyncio.Task[None]]()
        self.ends: dict[asyncio.Task[None], asyncio.Event] = {}
        self.holding: list[tuple[Hashable, asyncio.Task[None]]] = []

    def ask(self, user: Hashable) -> asyncio.Task[None]:
        task = asyncio.create_task(self._hold(user))
        self.ends[task] = asyncio.Event()
        self.turns.append(task)
        return task

    async def _hold(self, user: Hashable) -> None:
        task: Any = asyncio.current_task()
        async with self.slots.slot(user):
            self.order.append(user)
            self.holding.append((user, task))
            try:
                await self.ends[task].wait()
            finally:
                self.holding.remove((user, task))

    async def end(self, number: int = 0) -> None:
        """End one that holds a slot."""
        _, task = self.holding[number]
        self.ends[task].set()
        await task
        await settle()

    def held(self) -> Counter[Hashable]:
        return Counter(user for user, _ in self.holding)


async def settle() -> None:
    """Let all tasks that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_no_user_holds_more_than_its_part() -> None:
    async def steps() -> None:
        crowd = Crowd(UserSlots("slots", 4, each=2))
        for _ in range(10):
            crowd.ask("a")
        await settle()
        assert crowd.held() == {"a": 2}
        crowd.ask("b")
        await settle()
        assert crowd.held() == {"a": 2, "b": 1}
        while crowd.holding:
            await crowd.end()
        assert Counter(crowd.order) == {"a": 10, "b": 1}

    asyncio.run(steps())


def test_free_slot_goes_to_the_user_who_holds_fewest_then_to_the_one_served_longest_ago() -> None:
    async def steps() -> None:
        crowd = Crowd(UserSlots("slots", 2, each=2))
        for user in "aaaabbcc":
            crowd.ask(user)
            await settle()
        while crowd.holding:
            await crowd.end()
        assert "".join(map(str, crowd.order)) == "aabcabca"

    asyncio.run(steps())


def test_request_beyond_those_that_wait_is_rejected() -> None:
    async def steps() -> None:
        crowd = Crowd(UserSlots("event streams", 9, each=2, waiting=1))
        first = [crowd.ask("a") for _ in range(3)]
        await settle()
        with pytest.raises(SpecError) as caught:
            await crowd.ask("a")
        (problem,) = caught.value.problems
        assert (caught.value.code, problem.path) == ("too_many", "event streams")
        assert "you have 2 of them, and 1 that wait" in problem.problem
        assert "ended" in problem.hint
        crowd.ask("b")
        await settle()
        assert crowd.held() == {"a": 2, "b": 1}
        await crowd.end()
        assert not first[2].done()
        crowd.ask("a")
        await settle()
        while crowd.holding:
            await crowd.end()
        assert Counter(crowd.order) == {"a": 4, "b": 1}

    asyncio.run(steps())


def test_none_may_wait() -> None:
    async def steps() -> None:
        slots = UserSlots("slots", 2, each=1, waiting=0)
        async with slots.slot("a"):
            with pytest.raises(SpecError, match="you have 1 of them: a user has no more"):
                async with slots.slot("a"):
                    pass
        async with slots.slot("a"):
            pass

    asyncio.run(steps())


@settings(max_examples=200, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=60))
def test_whatever_is_cancelled_all_slots_come_back(steps: list[tuple[str, int]]) -> None:
    async def whole() -> None:
        slots = UserSlots("slots", 3, each=2)
        crowd = Crowd(slots)
        for user, number in steps:
            match number:
                case 0 | 1 if crowd.turns:  # also one that has just been given a slot
                    crowd.turns.pop(0).cancel()
                case 2 | 3 if crowd.holding:
                    _, task = crowd.holding[0]
                    crowd.ends[task].set()
                case 4:
                    await settle()
                case _:
                    crowd.ask(user)
            assert slots._held.total() <= 3
            assert max(slots._held.values(), default=0) <= 2
        await settle()
        for task in crowd.turns:
            task.cancel()
        await asyncio.gather(*crowd.ends, return_exceptions=True)
        assert (slots._held, slots._waiting, slots._served) == ({}, {}, {})

    asyncio.run(whole())


def test_threads_and_event_loops_share_slots() -> None:
    slots = UserSlots("slots", 1, each=1)

    def hold() -> str:
        with slots.slot_in_thread("a", timeout_s=60):
            return "held"

    async def steps() -> None:
        with ThreadPoolExecutor(1) as threads:
            async with AsyncExitStack() as held:
                await held.enter_async_context(slots.slot("a"))
                with pytest.raises(TimeoutError), slots.slot_in_thread("b", timeout_s=0):
                    pass
                waiting = threads.submit(hold)
            assert waiting.result(60) == "held"
        assert (slots._held, slots._waiting, slots._served) == ({}, {}, {})

    asyncio.run(steps())
