"""Orders of nodes, carried out by providers that fail, hang, are late or lose what they did."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from headgate.base.rng import stream
from headgate.live.cluster.ordering import Orders
from headgate.live.cluster.providers import ProviderError
from headgate.model.scaling import Shape
from headgate.protocol import Event, NodeRemoved, OrderFailed
from headgate.state import State
from headgate.state.fleet import Order

LARGE = Shape(name="large", cpus=8)


class Cluster:
    """A state whose orders are set by hand, and the events that were posted."""

    def __init__(self, *keys: str) -> None:
        self.state, self.events = State(), list[Event]()
        self.set(*keys)

    def set(self, *keys: str) -> None:
        orders = {key: Order(shape="large", at=0.0) for key in keys}
        self.state.fleet = replace(self.state.fleet, orders=orders)

    def join(self, key: str) -> None:
        self.set(*(other for other in self.state.fleet.orders if other != key))

    def post(self, events: Sequence[Event]) -> None:
        self.events += events

    def orders(self, provider: Any, **options: float) -> Orders:
        return Orders(
            provider,
            post=self.post,
            now=lambda: 0.0,
            snapshot=self.state.freeze,
            first_pause_s=0.001,
            **options,
        )

    async def until(self, done: Any) -> None:
        async with asyncio.timeout(20):
            while not done():  # noqa: ASYNC110  # lists and counters
                await asyncio.sleep(0.005)

    def removed(self) -> list[str]:
        return [event.order for event in self.events if isinstance(event, NodeRemoved)]

    def failed(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, OrderFailed)]


class Scripted:
    """A provider that raises what it is given, in order, then succeeds."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors, self.calls = list(errors), list[str]()

    async def create(self, key: str, shape: Shape) -> None:
        assert shape == LARGE
        await self._call(f"create {key}")

    async def remove(self, key: str) -> None:
        await self._call(f"remove {key}")

    async def _call(self, what: str) -> None:
        self.calls.append(what)
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)


def test_failed_creation_is_reported_and_repeated_with_the_same_key() -> None:
    async def play() -> None:
        cluster, provider = Cluster("k"), Scripted(ProviderError("quota"), RuntimeError("bug"))
        orders = cluster.orders(provider)
        orders.add("k", LARGE)
        orders.add("k", LARGE)  # the command again
        await cluster.until(lambda: len(provider.calls) == 3)
        assert provider.calls == ["create k"] * 3
        assert cluster.failed() == ["quota", "bug"]
        cluster.join("k")
        await cluster.until(lambda: not orders._adding)
        assert provider.calls == ["create k"] * 3

    asyncio.run(play())


def test_node_that_does_not_join_in_time_is_reported_and_made_again() -> None:
    async def play() -> None:
        cluster, provider = Cluster("k"), Scripted()
        orders = cluster.orders(provider, late_s=0.01)
        orders.add("k", LARGE)
        await cluster.until(lambda: len(provider.calls) >= 2)
        assert "has not joined in 0 s" in cluster.failed()[0]
        cluster.join("k")
        await cluster.until(lambda: not orders._adding)

    asyncio.run(play())


def test_removal_ends_the_creation_and_is_repeated_until_nothing_is_left() -> None:
    async def play() -> None:
        cluster, provider = Cluster("k"), Scripted()
        orders = cluster.orders(provider)
        orders.add("k", LARGE)
        await cluster.until(lambda: provider.calls == ["create k"])
        provider.errors = [ProviderError("busy"), ProviderError("busy")]
        orders.remove("k")
        orders.remove("k")
        await cluster.until(cluster.removed)
        assert provider.calls == ["create k", *["remove k"] * 3]
        assert cluster.removed() == ["k"]
        assert not orders._adding

    asyncio.run(play())


class Weather:
    """A provider that fails before or after it acts, or takes long; at most one node for a key."""

    def __init__(self, seed: int) -> None:
        self.rng, self.nodes = stream(seed, "provider"), Counter[str]()
        self.most = 0

    async def create(self, key: str, shape: Shape) -> None:
        await self._mood()
        self.nodes[key] = 1
        self.most = max(self.most, len(self.nodes))
        await self._mood()

    async def remove(self, key: str) -> None:
        await self._mood()
        self.nodes.pop(key, None)
        await self._mood()

    async def _mood(self) -> None:
        await asyncio.sleep(self.rng.choice((0, 0, 0.001, 0.004)))
        if self.rng.random() < 0.3:
            raise ProviderError("as it likes")


@pytest.mark.parametrize("seed", range(6))
def test_all_orders_end_with_their_node_or_without_it_across_restarts(seed: int) -> None:
    """Each restart gets all commands again, as a controller does; some orders are removed."""

    async def play() -> None:
        keys = [f"k{n}" for n in range(6)]
        cluster, provider, rng = Cluster(*keys), Weather(seed), stream(seed, "restarts")
        gone = set(rng.sample(keys, 3))
        removing = set[str]()
        for _ in range(4):
            orders = cluster.orders(provider)
            removing |= {key for key in gone if rng.random() < 0.4}
            cluster.set(*(key for key in keys if key not in removing))
            for key in keys:
                if key in removing:
                    orders.remove(key)
                else:
                    orders.add(key, LARGE)
            await asyncio.sleep(rng.uniform(0, 0.03))
            for task in [*orders._adding.values(), *orders._removing.values()]:
                task.cancel()  # the controller is killed
            await asyncio.sleep(0.01)
        orders = cluster.orders(provider)
        cluster.set(*(key for key in keys if key not in gone))
        for key in keys:
            if key in gone:
                orders.remove(key)
            else:
                orders.add(key, LARGE)
        wanted = {key: 1 for key in keys if key not in gone}
        await cluster.until(lambda: dict(provider.nodes) == wanted and not orders._removing)
        assert gone <= set(cluster.removed())
        cluster.set()
        await cluster.until(lambda: not orders._adding)
        assert dict(provider.nodes) == wanted

    asyncio.run(play())
