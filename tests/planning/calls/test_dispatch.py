"""Items and slots: every item ends once, whatever slots come, end and crash."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.planning.calls.dispatch import AHEAD_S, MOST_AHEAD, Dispatcher, Lease, soonest


class Cluster:
    """Slots that execute what they are sent; `deadly` items crash their slot."""

    def __init__(self, dispatcher: Dispatcher, deadly: frozenset[int] = frozenset()) -> None:
        self.dispatcher, self.deadly = dispatcher, deadly
        self.queues: dict[int, list[int]] = {}
        self.ended: Counter[int] = Counter()
        self.failed: list[int] = []
        self._numbers = count()

    def join(self, lease: int) -> int:
        slot = next(self._numbers)
        self.queues[slot] = []
        self.dispatcher.join(slot, lease)
        return slot

    def send(self) -> None:
        for slot, items in self.dispatcher.batches():
            self.queues[slot] += items

    def end(self, slot: int, most: int, item_s: float = 0.001) -> None:
        """End up to `most` items of a slot, unless one of them crashes it."""
        queue = self.queues[slot]
        for executed in range(min(most, len(queue))):
            if queue[executed] in self.deadly:
                self.leave(slot)
                self.join(slot % 3)
                return
        items = tuple(queue[:most])
        if items:
            assert self.dispatcher.ended(slot, len(items), item_s * len(items)) == items
            self.ended.update(items)
            del queue[:most]

    def leave(self, slot: int, *, crashed: bool = True) -> None:
        lost = self.dispatcher.leave(slot, crashed=crashed)
        queue = self.queues.pop(slot)
        assert sorted(lost.again) == sorted(set(queue) - {lost.failed})
        if lost.failed is not None:
            self.failed.append(lost.failed)

    def drain(self) -> None:
        for _ in range(10_000):
            self.send()
            if not any(self.queues.values()):
                return
            for slot in list(self.queues):
                self.end(slot, MOST_AHEAD)
        raise AssertionError("it does not end")


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32), items=st.integers(0, 400), deadly=st.integers(0, 3))
def test_every_item_ends_once_unless_it_crashes_its_slots(
    seed: int, items: int, deadly: int
) -> None:
    rng = random.Random(seed)
    chosen = frozenset(rng.sample(range(items), min(deadly, items)))
    cluster = Cluster(Dispatcher(retries=2), chosen)
    added = 0
    for _ in range(60):
        match rng.randrange(6):
            case 0 if added < items:
                more = rng.randint(1, items - added)
                cluster.dispatcher.add(added, added + more)
                added += more
            case 1:
                cluster.join(rng.randrange(3))
            case 2 if cluster.queues:
                cluster.leave(rng.choice(list(cluster.queues)), crashed=rng.random() < 0.5)
            case _ if cluster.queues:
                slot = rng.choice(list(cluster.queues))
                cluster.end(slot, rng.randint(1, 50), rng.choice((1e-5, 1e-3, 0.2)))
        cluster.send()
        sent = sum(map(len, cluster.queues.values()))
        assert cluster.dispatcher.sent == sent
        gone = cluster.ended.total() + len(cluster.failed)
        assert cluster.dispatcher.pending == added - sent - gone
    cluster.dispatcher.add(added, items)
    cluster.join(0)
    cluster.drain()
    assert set(cluster.failed) >= chosen - set(cluster.ended)
    assert cluster.ended == Counter(set(range(items)) - set(cluster.failed))
    assert not chosen & set(cluster.ended)


def test_only_the_item_that_crashes_its_slots_fails_and_does_so_after_its_retries() -> None:
    cluster = Cluster(Dispatcher(retries=2), frozenset({7}))
    cluster.dispatcher.add(0, 100)
    cluster.join(0)
    cluster.join(1)
    cluster.drain()
    assert cluster.failed == [7]
    assert set(cluster.ended) == set(range(100)) - {7}


def test_items_of_a_slot_that_is_stopped_are_the_next_and_count_no_crash() -> None:
    cluster = Cluster(Dispatcher(retries=0))
    cluster.dispatcher.add(0, 10)
    first = cluster.join(0)
    cluster.send()
    had = list(cluster.queues[first])
    cluster.leave(first, crashed=False)
    second = cluster.join(0)
    cluster.send()
    assert cluster.queues[second][: len(had)] == had
    cluster.drain()
    assert not cluster.failed


@pytest.mark.parametrize(("item_s", "ahead"), [(1.0, 1), (AHEAD_S / 10, 11), (1e-9, MOST_AHEAD)])
def test_slots_have_items_for_a_while_ahead_and_batches_shrink_towards_the_end(
    item_s: float, ahead: int
) -> None:
    cluster = Cluster(Dispatcher())
    slots = [cluster.join(0), cluster.join(0)]
    cluster.dispatcher.add(0, 100_000)
    cluster.send()
    for slot in slots:
        cluster.end(slot, 10, item_s)
    cluster.send()
    assert {len(cluster.queues[slot]) for slot in slots} == {ahead}
    while cluster.dispatcher.pending:
        for slot in slots:
            cluster.end(slot, len(cluster.queues[slot]), item_s)
        left = cluster.dispatcher.pending
        cluster.send()
        most = max(len(queue) for queue in cluster.queues.values())
        assert most <= max(1, math.ceil(left / 4))


def test_cancelled_items_are_sent_to_no_slot() -> None:
    cluster = Cluster(Dispatcher(wanted=lambda item: item % 3 == 0))
    cluster.dispatcher.add(0, 50)
    cluster.join(0)
    cluster.drain()
    assert cluster.ended == Counter(range(0, 50, 3))
    assert cluster.dispatcher.pending == 0


def test_cleared_items_are_returned_once_and_later_ones_run() -> None:
    cluster = Cluster(Dispatcher())
    slot = cluster.join(0)
    cluster.dispatcher.add(0, 50)
    cluster.send()
    assert sorted(cluster.dispatcher.clear()) == list(range(50))
    assert cluster.dispatcher.ended(slot, 1, 0.1) == ()
    cluster.queues[slot].clear()
    cluster.dispatcher.add(50, 60)
    cluster.drain()
    assert cluster.ended == Counter(range(50, 60))


def test_next_batch_goes_where_an_item_is_expected_to_end_soonest() -> None:
    fast, slow, new = (Lease(slots={0: None}, sent=sent) for sent in (8, 1, 0))
    fast.item_s, slow.item_s = 0.1, 1.0
    assert soonest([fast, slow]) == 0
    assert soonest([fast, slow, new]) == 2, "it is expected to be as fast as the mean"
    fast.sent = 30
    assert soonest([fast, slow]) == 1
    slow.slots[1] = None
    slow.sent = 5
    fast.sent = 29
    assert soonest([fast, slow]) == 0
