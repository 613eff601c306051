"""Transfers share links max-min fairly: timelines by hand, laws against a naive oracle."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.base.errors import InvariantBroken
from headgate.planning.links.fluid_network import FluidNetwork

# Two racks: a1 a2 a3 | b1 b2. In bytes per second: disk 100, node link 60, rack uplink 90.
RACKS = {"a1": "a", "a2": "a", "a3": "a", "b1": "b", "b2": "b"}


def network(
    *, disk: float = 100, link: float = 60, uplink: float = 90, core: float | None = None
) -> FluidNetwork:
    return FluidNetwork(
        RACKS,
        disk_bytes_per_s=disk,
        node_link_bytes_per_s=link,
        rack_uplink_bytes_per_s=uplink,
        aggregation_bytes_per_s=core,
    )


def run_out(net: FluidNetwork) -> list[tuple[float, int]]:
    """Take every completion; return them as they came."""
    ends = []
    while (coming := net.next_completion()) is not None:
        net.finish(coming[1], coming[0])
        ends.append(coming)
    return ends


@pytest.mark.parametrize(
    ("reader", "source", "bytes_per_s"),
    [
        ("a1", "a1", 100),  # the disk alone
        ("a1", "a2", 60),  # the node links
        ("a1", "b1", 45),  # the aggregation
        ("a1", None, 45),
    ],
)
def test_single_transfer_takes_its_size_over_its_narrowest_link(
    reader: str, source: str | None, bytes_per_s: int
) -> None:
    net = network(core=45)
    net.start(1, reader, source, 1_000_003, now=0.1)
    assert net.next_completion() == (0.1 + 1_000_003 / bytes_per_s, 1)


def test_two_readers_of_one_disk_halve_it_until_the_first_ends() -> None:
    net = network()
    net.start(1, "a1", "a1", 500, now=0)
    net.start(2, "a1", "a1", 900, now=2)
    # 1 reads 200 by 2 s, then 50 a second: 300 left end at 8 s; 2 has then read 300 of 900.
    assert run_out(net) == [(8.0, 1), (14.0, 2)]
    assert net.moved_bytes == (1400, 0, 0)


def test_three_cross_a_rack_uplink_while_one_stays_in_the_rack() -> None:
    net = network()
    net.start(1, "b1", "a1", 300, now=0)  # the three share the uplink of a: 30 each
    net.start(2, "b2", "a2", 300, now=0)
    net.start(3, "b2", "a3", 600, now=0)
    net.start(4, "a2", "a3", 300, now=0)  # shares the link up of a3: 60 - 30
    assert net.rates() == {1: 30, 2: 30, 3: 30, 4: 30}
    assert net.next_completion() == (10.0, 1)
    for transfer in (1, 2, 4):
        net.finish(transfer, 10.0)
    assert net.rates() == {3: 60}
    assert run_out(net) == [(15.0, 3)]
    assert net.moved_bytes == (0, 300, 1200)


def test_an_abort_in_the_middle_counts_what_moved_and_frees_its_share() -> None:
    net = network()
    net.start(1, "a1", "a1", 500, now=0)
    net.start(2, "a1", "a1", 500, now=0)
    assert net.abort(1, now=4) == 200
    assert run_out(net) == [(7.0, 2)]
    assert net.moved_bytes == (700, 0, 0)


def test_transfer_of_no_bytes_ends_immediately_and_slows_no_other() -> None:
    net = network()
    net.start(1, "a1", "a1", 100, now=3)
    net.start(2, "a1", "a1", 0, now=3)
    assert run_out(net) == [(3.0, 2), (4.0, 1)]


def test_equal_ends_come_in_the_order_of_starts() -> None:
    net = network()
    for transfer in (5, 3, 9, 1):
        net.start(transfer, "a1", "a1", 100, now=0)
    assert [transfer for _, transfer in run_out(net)] == [5, 3, 9, 1]


def test_change_elsewhere_leaves_a_completion_time_exactly_unchanged() -> None:
    net = network()
    net.start(1, "a1", "a1", 10**9 + 7, now=0.1)
    before = net.next_completion()
    for step in range(1, 50):
        net.start(1 + step, "b2", "b1", 10**12, now=0.1 * step + 0.1)
        net.abort(1 + step, now=0.1 * step + 0.15)
    assert net.next_completion() == before


def test_lost_node_interrupts_its_transfers() -> None:
    net = network()
    net.start(1, "a1", "a2", 600, now=0)
    net.start(2, "a2", "b1", 600, now=0)
    net.start(3, "a3", "a3", 600, now=0)
    cut = net.remove_node("a2", now=5)
    assert [(t.id, t.reader, t.source, moved) for t, moved in cut] == [
        (1, "a1", "a2", 300),
        (2, "a2", "b1", 300),
    ]
    assert run_out(net) == [(6.0, 3)]
    assert net.moved_bytes == (600, 300, 300)
    net.add_node("a2", "a")
    net.start(4, "a2", "a2", 600, now=6)
    assert run_out(net) == [(12.0, 4)]


def test_a_rack_that_joins_later_has_uplinks_of_its_own() -> None:
    net = network()
    net.add_node("c1", "c")
    net.start(1, "c1", "a1", 600, now=0)
    net.start(2, "c1", None, 600, now=0)
    assert net.rates() == {1: 30, 2: 30}  # the link down of c1


def test_misuse_raises_immediately() -> None:
    net = network()
    net.start(1, "a1", "a1", 100, now=1)
    with pytest.raises(InvariantBroken, match="goes back"):
        net.start(2, "a1", "a1", 100, now=0.5)
    with pytest.raises(InvariantBroken, match="under way"):
        net.start(1, "a1", "a1", 100, now=1)
    with pytest.raises(InvariantBroken, match="ends at"):
        net.finish(1, now=1.5)
    with pytest.raises(InvariantBroken, match="was skipped"):
        net.start(2, "a1", "a1", 100, now=2.5)


# Laws, on random transfers.

Flows = list[tuple[str, str | None]]
Capacities = dict[str, int | None]

NODES = st.sampled_from(sorted(RACKS))
FLOWS = st.lists(st.tuples(NODES, st.none() | NODES), min_size=1, max_size=14)
CAPACITIES = st.fixed_dictionaries(
    {
        "disk": st.integers(1, 50),
        "link": st.integers(1, 50),
        "uplink": st.integers(1, 50),
        "core": st.none() | st.integers(1, 50),
    }
)


def links_crossed(reader: str, source: str | None) -> list[str]:
    """The route of a transfer, link by link, written down once more."""
    if reader == source:
        return [f"{reader} disk"]
    far = source is None or RACKS[source] != RACKS[reader]
    return (
        ([] if source is None else [f"{source} disk", f"{source} up"])
        + ([f"rack {RACKS[source]} up"] if far and source is not None else [])
        + (["core", f"rack {RACKS[reader]} down"] if far else [])
        + [f"{reader} down"]
    )


def capacity_of(link: str, capacities: Capacities) -> int | None:
    if link == "core":
        return capacities["core"]
    if link.startswith("rack"):
        return capacities["uplink"]
    return capacities["disk" if link.endswith("disk") else "link"]


def naive_rates(flows: Flows, capacities: Capacities) -> list[Fraction]:
    """Raise all rates together in exact numbers; a transfer on a saturated link keeps its rate."""
    routes = [
        [link for link in links_crossed(*flow) if capacity_of(link, capacities) is not None]
        for flow in flows
    ]
    rates = [Fraction(0)] * len(flows)
    rising = set(range(len(flows)))
    while rising:
        room = {}
        for link in {link for flow in rising for link in routes[flow]}:
            users = [flow for flow, route in enumerate(routes) if link in route]
            free = (capacity_of(link, capacities) or 0) - sum(rates[flow] for flow in users)
            room[link] = Fraction(free) / len(rising.intersection(users))
        step = min(room.values())
        for flow in rising:
            rates[flow] += step
        rising = {f for f in rising if all(room[link] > step for link in routes[f])}
    return rates


def started(flows: Flows, capacities: Capacities) -> FluidNetwork:
    net = network(**capacities)
    for number, (reader, source) in enumerate(flows):
        net.start(number, reader, source, 1000, now=0)
    return net


@given(FLOWS, CAPACITIES)
def test_rates_equal_naive_water_filling(flows: Flows, capacities: Capacities) -> None:
    rates = started(flows, capacities).rates()
    assert list(rates.values()) == pytest.approx([float(r) for r in naive_rates(flows, capacities)])


@given(FLOWS, CAPACITIES)
def test_no_link_exceeds_its_capacity_and_every_transfer_has_a_bottleneck(
    flows: Flows, capacities: Capacities
) -> None:
    rates = started(flows, capacities).rates()
    used: dict[str, float] = {}
    fastest: dict[str, float] = {}
    for number, flow in enumerate(flows):
        for link in links_crossed(*flow):
            used[link] = used.get(link, 0) + rates[number]
            fastest[link] = max(fastest.get(link, 0), rates[number])
    limits = {link: limit for link in used if (limit := capacity_of(link, capacities)) is not None}
    assert all(used[link] <= limit * (1 + 1e-9) for link, limit in limits.items())
    for number, flow in enumerate(flows):
        assert any(
            used[link] >= limits[link] * (1 - 1e-9) and rates[number] >= fastest[link] * (1 - 1e-9)
            for link in links_crossed(*flow)
            if link in limits
        )


@given(FLOWS, CAPACITIES, st.randoms(use_true_random=False))
def test_the_order_of_starts_changes_no_rate(
    flows: Flows, capacities: Capacities, rng: Random
) -> None:
    order = list(range(len(flows)))
    rng.shuffle(order)
    rates = started(flows, capacities).rates()
    shuffled = started([flows[i] for i in order], capacities).rates()
    assert [shuffled[order.index(i)] for i in range(len(flows))] == list(rates.values())


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["start", "start", "finish", "finish", "abort", "lose", "join"]),
        NODES,
        st.none() | NODES,
        st.integers(0, 400),
        st.floats(0, 1),
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(STEPS, CAPACITIES)
def test_a_random_walk_conserves_bytes_and_moves_forward(
    steps: list[tuple[str, str, str | None, int, float]], capacities: Capacities
) -> None:
    """Every counted byte was requested, and rates at any time equal those of a new network."""
    net = network(**capacities)
    now, up, under_way, moved, requested = 0.0, set(RACKS), {}, 0, 0
    for number, (what, one, other, size, part) in enumerate(steps):
        coming = net.next_completion()
        assert coming is None or coming[0] >= now
        if what == "finish" and coming is not None:
            now = coming[0]
            moved += net.finish(coming[1], now).size_bytes
            del under_way[coming[1]]
        elif coming is not None and part < 1:
            now += part * (coming[0] - now)
        if what == "start" and {one, other} - {None} <= up:
            net.start(number, one, other, size, now)
            under_way[number] = (one, other)
            requested += size
        elif what == "abort" and under_way:
            victim = sorted(under_way)[size % len(under_way)]
            moved += net.abort(victim, now)
            del under_way[victim]
        elif what == "lose" and one in up:
            up.remove(one)
            for transfer, part_moved in net.remove_node(one, now):
                assert 0 <= part_moved <= transfer.size_bytes
                moved += part_moved
                del under_way[transfer.id]
        elif what == "join" and one not in up:
            net.add_node(one, RACKS[one])
            up.add(one)
        rates = net.rates()
        assert sum(net.moved_bytes) == moved <= requested
        busy = [t for t in under_way if rates[t] > 0]
        expected = naive_rates([under_way[t] for t in busy], capacities)
        assert [rates[t] for t in busy] == pytest.approx([float(r) for r in expected])
    for end, transfer in run_out(net):
        assert end >= now
        now = end
        del under_way[transfer]
    assert not under_way
