"""Grants checked in columns give the results of a ledger that takes them one by one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.base.errors import InvariantBroken
from headgate.model import Demand, Gpu, Node
from headgate.state import Snapshot, State
from headgate.state.grants import ManyGrants
from headgate.state.ledger import Ledger

Grant = tuple[int, int, tuple[int, ...]]
"""Rows of a demand and a node, and indices of GPUs there."""

DEMANDS = [
    Demand(gpus=gpus, gpu_memory_bytes=gpu_bytes, cpus_milli=cpus, memory_bytes=2, custom=custom)
    for gpus in (0, 1, 2)
    for gpu_bytes in (0, 5)
    for cpus in (0, 1500)
    for custom in ((), (("fpga", 500),), (("nvme", 1),))
]
GRANTS = st.lists(
    st.tuples(
        st.integers(0, len(DEMANDS) - 1),
        st.integers(0, 2),
        st.lists(st.integers(-1, 3), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=6,
)


def cluster() -> State:
    """Return three nodes with GPUs of 4 and 8 bytes, the last of which is down; GPU 1 is held."""
    state = State()
    gpus = tuple(Gpu(memory_bytes=size) for size in (4, 8, 8))
    for name in "abc":
        custom = (("fpga", 1000),) if name == "a" else ()
        state.add_node(Node(id=name, rack="r", gpus=gpus, cpus=3, memory_bytes=7, custom=custom))
    state.remove_node(2)
    for demand in DEMANDS:
        state.names.demand(demand)
    state.ledger.take(0, state.names.demand(Demand(gpus=1)), 0, (1,))
    return state


def columns(snapshot: Snapshot, grants: Iterable[Grant]) -> ManyGrants:
    demands, nodes, gpus = zip(*grants, strict=True)
    offset = np.cumsum([0, *map(len, gpus)])
    flat = np.array([index for each in gpus for index in each], np.int64)
    return ManyGrants(snapshot, np.array(demands), np.array(nodes), offset, flat)


def all_taken(snapshot: Snapshot, grants: Iterable[Grant]) -> bool:
    ledger = Ledger.tentative(snapshot)
    try:
        for demand, node, gpus in grants:
            ledger.take(1, demand, node, gpus)
    except InvariantBroken:
        return False
    return True


@settings(max_examples=300)
@given(grants=GRANTS)
def test_many_grants_fit_alone_and_together_as_a_ledger_takes_them(grants: list[Grant]) -> None:
    snapshot = cluster().freeze()
    many = columns(snapshot, grants)
    alone = many.fit_alone()
    expected = [all_taken(snapshot, [each]) for each in grants]
    twice = [len(set(gpus)) < len(gpus) for _, _, gpus in grants]  # found together only
    assert [fits and not t for fits, t in zip(alone.tolist(), twice, strict=True)] == expected
    chosen = [each for each, fits in zip(grants, alone.tolist(), strict=True) if fits]
    assert many.fit_together(alone) == all_taken(snapshot, chosen)
    assert many.gpus_milli.tolist() == [1000 * DEMANDS[demand].gpus for demand, _, _ in grants]


def test_sums_of_huge_amounts_do_not_overflow_into_a_fit() -> None:
    """16 times 2^60 bytes are 0 in 64 bits; a node of unlimited memory has 2^62."""
    state = State()
    state.add_node(Node(id="a", rack="r", gpus=()))
    huge = state.names.demand(Demand(memory_bytes=1 << 60))
    grants: list[Grant] = [(huge, 0, ())] * 16
    many = columns(state.freeze(), grants)
    assert many.fit_alone().all()
    assert many.fit_together(np.arange(16) < 4)
    assert not many.fit_together(np.arange(16) < 5)
    assert not many.fit_together(np.ones(16, bool))
