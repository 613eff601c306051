"""The dispatcher with the balancers: how items are divided between leases on unlike nodes."""

from __future__ import annotations

from collections import Counter

import pytest

from headgate.planning.balancers import BALANCERS
from headgate.planning.calls.dispatch import Dispatcher, Lease
from headgate.planning.calls.picks import picks_by


def _leases(slots: tuple[int, ...], sent: tuple[int, ...]) -> list[Lease]:
    return [
        Lease(number=n, slots=dict.fromkeys(range(count)), sent=items, item_s=1.0)
        for n, (count, items) in enumerate(zip(slots, sent, strict=True))
    ]


def test_swrr_divides_by_slots_whichever_leases_need_items() -> None:
    pick = picks_by(BALANCERS["swrr"])
    leases = _leases((4, 2, 2), (0, 0, 0))
    whole = Counter(pick(leases) for _ in range(80))
    assert whole == {0: 40, 1: 20, 2: 20}
    some = Counter(1 + pick(leases[1:]) for _ in range(80))
    assert some == {1: 40, 2: 40}


def test_round_robin_takes_turns() -> None:
    pick = picks_by(BALANCERS["round-robin"])
    leases = _leases((4, 2, 1), (0, 9, 0))
    assert [pick(leases) for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_resource_pick_kx_never_picks_a_full_lease_beside_one_with_room() -> None:
    pick = picks_by(BALANCERS["resource-pick-kx"])
    assert {pick(_leases((4, 2, 2), (3, 2, 9))) for _ in range(50)} == {0}


def test_least_cost_picks_the_lease_that_is_expected_to_end_first() -> None:
    pick = picks_by(BALANCERS["least-cost"])
    slow, fast = _leases((1, 1), (0, 2))
    slow.item_s = 4.0
    assert pick([slow, fast]) == 1


@pytest.mark.parametrize("name", BALANCERS)
def test_every_item_is_executed_once_under_each_balancer(name: str) -> None:
    dispatcher = Dispatcher(pick=picks_by(BALANCERS[name]))
    for slot, lease in enumerate((5, 5, 7, 9)):
        dispatcher.join(slot, lease)
    dispatcher.add(0, 500)
    executed: list[int] = []
    while True:
        batches = list(dispatcher.batches())
        if not batches:
            break
        for slot, items in batches:
            executed += dispatcher.ended(slot, len(items), 0.001 * len(items))
    assert sorted(executed) == list(range(500))
