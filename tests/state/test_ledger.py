"""The ledger against plain dicts: what fits, what is held, and rollbacks."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.state.plain_ledger import Device, Host, needs

from headgate.base.errors import InvariantBroken
from headgate.model import UNLIMITED, Demand, Gpu, Node
from headgate.protocol import GpuOutside, Outside
from headgate.state import Snapshot, State
from headgate.state.ledger import Ledger
from headgate.state.tables import GPU_FREE, GPU_GONE, GPU_IN_PART

# ----------------------------------------------------------------------------------------- worlds

KINDS = ("fpga", "licence", "nvme")
SIZES = (4, 8, 8, 12)  # bytes, of which a quarter is whole
AMOUNT = st.sampled_from((500, 1000, 3000))
CUSTOM = st.dictionaries(st.sampled_from(KINDS), AMOUNT, max_size=2).map(
    lambda amounts: tuple(sorted(amounts.items()))
)


def node_of(
    sizes: Sequence[int], cpus: int, memory_bytes: int | None, custom: tuple[tuple[str, int], ...]
) -> Node:
    return Node(
        id="?",
        rack="r",
        gpus=tuple(Gpu(memory_bytes=size) for size in sizes),
        cpus=cpus,
        memory_bytes=memory_bytes,
        custom=custom,
    )


NODE = st.builds(
    node_of,
    st.lists(st.sampled_from(SIZES), max_size=4),
    st.integers(0, 4),
    st.none() | st.integers(0, 9),
    CUSTOM,
)
BESIDE = {
    "cpus_milli": st.sampled_from((0, 0, 500, 1000)),
    "memory_bytes": st.sampled_from((0, 0, 2, 5)),
    "custom": st.just(()) | CUSTOM,
}
DEMAND = st.one_of(
    st.builds(Demand, **{**BESIDE, "cpus_milli": st.sampled_from((250, 1000, 2500))}),
    st.builds(
        Demand,
        gpus=st.sampled_from((1, 1, 2, 3)),
        gpu_memory_bytes=st.sampled_from((0, 0, 5, 12)),
        **BESIDE,
    ),
    st.builds(
        Demand,
        gpus=st.sampled_from((1, 1, 1, 2)),
        gpu_milli=st.sampled_from((250, 500, 750)),
        gpu_memory_bytes=st.sampled_from((0, 0, 1, 6)),
        **BESIDE,
    ),
    st.builds(
        Demand,
        gpus=st.just(1),
        gpu_milli=st.just(0),
        gpu_memory_bytes=st.sampled_from((1, 3, 6)),
        **BESIDE,
    ),
)
PICK = st.integers(0, 10**6)
TAKE = st.tuples(st.just("take"), PICK, PICK, PICK)
FORCE = st.tuples(
    st.just("force"),
    PICK,
    PICK,
    st.lists(st.integers(0, 2), min_size=1, max_size=2) | st.lists(st.integers(-1, 4), max_size=3),
)
STEPS = st.lists(
    st.one_of(
        TAKE,
        TAKE,
        FORCE,
        st.tuples(st.just("release"), PICK),
        st.tuples(st.just("release"), PICK),
        st.tuples(st.just("close"), PICK),
        st.tuples(st.just("open"), PICK, NODE),
        st.tuples(
            st.just("outside"),
            PICK,
            st.integers(0, 4000),
            st.integers(0, 9),
            st.lists(st.integers(0, 12), max_size=4),
        ),
        st.tuples(
            st.just("tentative"), st.lists(TAKE, max_size=4), st.lists(TAKE, max_size=4), PICK
        ),
    ),
    min_size=5,
    max_size=50,
)


class Books:
    """A state's ledger and, beside it, the same in plain dicts."""

    def __init__(self, nodes: Sequence[Node], demands: Sequence[Demand]) -> None:
        self.state, self.demands = State(), list(demands)
        self.hosts: list[Host | None] = []
        self.gone: list[list[Device]] = []  # GPUs of nodes that went
        self.rows: list[tuple[int, Device]] = []  # node and GPU by row of the table
        self.grants: dict[int, tuple[int, int, int, tuple[int, ...]]] = {}
        self.most_grants, self.tasks = 0, 0
        for number, node in enumerate(nodes):
            self.hosts.append(None)
            self.open(number, node)
        self.numbers = [self.state.names.demand(demand) for demand in demands]

    @property
    def ledger(self) -> Ledger:
        return self.state.ledger

    def open(self, row: int, node: Node) -> None:
        if self.hosts[row] is not None:
            return
        node = replace(node, id=f"n{row}")
        assert self.state.add_node(node) == row
        host = self.hosts[row] = Host(node)
        self.rows += [(row, gpu) for gpu in host.gpus]

    def close(self, row: int) -> None:
        host = self.hosts[row]
        if host is None:
            return
        before = written(self.ledger)
        if host.held:
            with pytest.raises(InvariantBroken, match=f"node n{row} is removed while runs hold"):
                self.state.remove_node(row)
            assert written(self.ledger) == before
            return
        self.state.remove_node(row)
        self.hosts[row] = None

    def take(self, demand: int, node: int, pick: int) -> None:
        """Take one of all the choices there are; where there is none, the ledger finds none."""
        host, spec = self.hosts[node], self.demands[demand]
        choices = host.choices(spec) if host else []
        found = self.ledger.best_gpus(self.numbers[demand], node)
        assert found == (host.best(spec) if host and choices else None)
        if not host or not choices:
            return
        gpus = choices[pick % len(choices)]
        assert self.ledger.infeasibility(self.numbers[demand], node, gpus[::-1]) == ""
        spare = sorted({*range(self.most_grants)} - {*self.grants})
        row = self.ledger.take(self.tasks, self.numbers[demand], node, gpus)
        assert row == (spare[0] if spare else self.most_grants)
        self.most_grants = max(self.most_grants, row + 1)
        self.grants[row] = (self.tasks, node, demand, gpus)
        host.take(self.tasks, spec, gpus)
        self.tasks += 1

    def force(self, demand: int, node: int, gpus: Sequence[int]) -> None:
        """Ask for GPUs that need not fit; those that do not raise and change nothing."""
        host, spec = self.hosts[node], self.demands[demand]
        complaints = host.complaints(spec, gpus) if host else None
        reported = self.ledger.infeasibility(self.numbers[demand], node, gpus)
        if complaints is None:
            assert reported
        else:
            assert reported in (complaints or {""})
        if reported:
            before = written(self.ledger)
            with pytest.raises(InvariantBroken) as broken:
                self.ledger.take(self.tasks, self.numbers[demand], node, tuple(gpus))
            assert str(broken.value) == reported
            assert written(self.ledger) == before

    def release(self, pick: int) -> None:
        if not self.grants:
            return
        row = sorted(self.grants)[pick % len(self.grants)]
        _, node, demand, gpus = self.grants.pop(row)
        self.ledger.release(row)
        host = self.hosts[node]
        assert host is not None
        host.release(self.demands[demand], gpus)
        before = written(self.ledger)
        with pytest.raises(InvariantBroken, match=f"grant {row} is released already"):
            self.ledger.release(row)
        assert written(self.ledger) == before

    def do(self, step: tuple[Any, ...]) -> None:
        demands, nodes = len(self.demands), len(self.hosts)
        match step:
            case ("take", demand, node, pick):
                self.take(demand % demands, node % nodes, pick)
            case ("force", demand, node, gpus):
                self.force(demand % demands, node % nodes, gpus)
            case ("release", pick):
                self.release(pick)
            case ("close", node):
                self.close(node % nodes)
            case ("outside", node, cpus, memory, gpus):
                self.use_outside(node % nodes, cpus, memory, gpus)
            case ("open", node, spec):
                self.open(node % nodes, spec)
            case ("tentative", first, second, keep):
                self.take_tentatively(first, second, keep)

    def use_outside(self, row: int, cpus: int, memory: int, used: Sequence[int]) -> None:
        """Have others use so much of a node, as far as it has that."""
        host = self.hosts[row]
        if host is None:
            return
        before = dict(host.outside), [gpu.outside for gpu in host.gpus]
        known = host.total["memory"] < UNLIMITED
        host.outside = {
            "cpus": min(cpus, host.total["cpus"]),
            "memory": min(memory, host.total["memory"]) if known else 0,
        }
        for gpu, some in zip_longest(host.gpus, used[: len(host.gpus)], fillvalue=0):
            assert isinstance(gpu, Device)
            gpu.outside = min(some, gpu.size)
        gpus = [GpuOutside(n, gpu.outside, 7) for n, gpu in enumerate(host.gpus) if gpu.outside]
        changed = self.ledger.set_outside(row, Outside(*host.outside.values(), tuple(gpus)))
        assert changed == (before != (host.outside, [gpu.outside for gpu in host.gpus]))

    def take_tentatively(self, first: list[Any], second: list[Any], keep: int) -> None:
        """Take in nested trials of a tentative ledger; keep some, roll the others back."""
        view: State | Snapshot = self.state if keep & 4 else self.state.freeze()
        before = written(self.ledger)
        tentative = Ledger.tentative(view)
        assert written(tentative) == before
        hosts, tasks = copy.deepcopy(self.hosts), self.tasks

        def takes(steps: list[Any]) -> None:
            for number, (_, which, where, pick) in enumerate(steps):
                demand, node = which % len(self.demands), where % len(hosts)
                host, spec = hosts[node], self.demands[demand]
                choices = host.choices(spec) if host else []
                assert (tentative.best_gpus(self.numbers[demand], node) is None) == (not choices)
                if host and choices:
                    gpus = choices[pick % len(choices)]
                    assert tentative.take(tasks + number, self.numbers[demand], node, gpus) == -1
                    host.take(tasks + number, spec, gpus)

        with tentative.trial() as outer:
            takes(first)
            middle, then = written(tentative), copy.deepcopy(hosts)
            with tentative.trial() as inner:
                takes(second)
                if keep & 1:
                    inner.keep()
            if not keep & 1:
                assert written(tentative) == middle
                hosts = then
            self.agree(tentative, hosts)
            within = written(tentative)
            if keep & 2:
                outer.keep()
        assert written(tentative) == (within if keep & 2 else before)
        assert written(self.ledger) == before
        self.forget_outside(view)

    def forget_outside(self, view: State | Snapshot) -> None:
        """Assume in a tentative ledger that only runs use anything."""
        hosts = copy.deepcopy(self.hosts)
        for host in hosts:
            if host is not None:
                host.outside = {"cpus": 0, "memory": 0}
                for gpu in host.gpus:
                    gpu.outside = 0
        tentative = Ledger.tentative(view)
        tentative.forget_outside()
        self.agree(tentative, hosts)

    # --- laws ------------------------------------------------------------------------------------

    def agree(self, ledger: Ledger, hosts: Sequence[Host | None]) -> None:
        """Assert that a ledger says of all nodes and GPUs what plain counting says."""
        nodes, gpus = ledger.nodes, ledger.gpus
        rows: list[tuple[int, int, int, int, int]] = []
        at = {id(gpu): (row, n) for row, h in enumerate(self.hosts) if h
              for n, gpu in enumerate(h.gpus)}  # fmt: skip
        for row, device in self.rows:
            where = at.get(id(device))
            host = hosts[row]
            if where is None or host is None:
                rows.append((row, device.size, GPU_GONE, 0, 0))
                continue
            gpu = host.gpus[where[1]]
            in_part = gpu.parts or (gpu.outside and gpu.whole is None)
            holder = GPU_IN_PART if in_part else GPU_FREE if gpu.whole is None else gpu.whole
            rows.append((row, gpu.size, holder, *gpu.left))
        columns = (gpus.node, gpus.memory_bytes, gpus.task, gpus.free_milli, gpus.free_bytes)
        assert list(zip(*(c.array().tolist() for c in columns), strict=True)) == rows
        for row, host in enumerate(hosts):
            idle = sum(gpu.idle for gpu in host.gpus) if host else 0
            assert nodes.free_gpus[row] == idle
            for number, kind in enumerate(self.state.names.resources):
                assert nodes.free.at(row, number) == (host.free(kind) if host else 0)
                assert nodes.total.at(row, number) == (host.total.get(kind, 0) if host else 0)
        for number, demand in zip(self.numbers, self.demands, strict=True):
            room = [host is not None and not host.lacking(demand) for host in hosts]
            assert ledger.nodes_with_room(number).tolist() == room
            for row, host in enumerate(hosts):
                if host is None:
                    continue
                assert ledger.is_idle(row) == (not host.held)
                lacking = ledger.lacks(number, row)
                assert lacking in (host.lacking(demand) or [""])
                small = any(host.total.get(k, 0) < n for k, n in needs(demand).items())
                assert ledger.exceeds_capacity(number, row) == small
                assert ledger.room(number)[row] == host.room(demand)
                free = nodes.free_gpus.array().astype(np.int64)
                on_gpus = free[row] // demand.gpus if demand.gpus else UNLIMITED
                assert ledger.room(number, gpus=free)[row] == min(host.room(demand), on_gpus)
                first = nodes.first_gpu[row]
                room = ledger.gpu_room(number, first, first + nodes.gpu_count[row]).tolist()
                assert room == host.gpu_room(demand)

    def check(self) -> None:
        self.agree(self.ledger, self.hosts)
        table = self.ledger.grants
        assert len(table.task) == self.most_grants
        live = np.flatnonzero(table.task.array() >= 0).tolist()
        assert live == sorted(self.grants)
        for row, (task, node, demand, gpus) in self.grants.items():
            found = table.task[row], table.node[row], table.demand[row], table.gpus[row]
            assert found == (task, node, self.numbers[demand], gpus)
        for row, host in enumerate(self.hosts):
            if host is not None:
                free = [(gpu.size, n) for n, gpu in enumerate(host.gpus) if gpu.idle]
                assert self.ledger.free_gpus(row).tolist() == [n for _, n in sorted(free)]


def written(ledger: Ledger) -> list[bytes]:
    """Return the bytes of all columns of a ledger."""
    found = []
    for table in (ledger.nodes, ledger.gpus, ledger.grants):
        for field in fields(table):
            values = getattr(table, field.name).array()
            plain = values.dtype != object
            found.append(values.tobytes() if plain else repr(values.tolist()).encode())
    return found


# ------------------------------------------------------------------------------------- properties


@settings(max_examples=300)
@given(
    nodes=st.lists(NODE, min_size=1, max_size=3),
    demands=st.lists(DEMAND, min_size=1, max_size=5),
    steps=STEPS,
)
def test_ledger_equals_plain_counting(
    nodes: list[Node], demands: list[Demand], steps: list[tuple[Any, ...]]
) -> None:
    books = Books(nodes, demands)
    books.check()
    for step in steps:
        books.do(step)
        books.check()


@settings(max_examples=150)
@given(
    nodes=st.lists(NODE, min_size=1, max_size=3),
    demands=st.lists(DEMAND, min_size=1, max_size=5),
    steps=st.lists(TAKE, max_size=20),
    order=st.randoms(use_true_random=False),
)
def test_everything_released_in_any_order_leaves_every_node_idle(
    nodes: list[Node], demands: list[Demand], steps: list[tuple[Any, ...]], order: Any
) -> None:
    books = Books(nodes, demands)
    before = written(books.ledger)
    for step in steps:
        books.do(step)
    while books.grants:
        books.release(order.randrange(len(books.grants)))
    grants = len(fields(books.ledger.grants))
    assert written(books.ledger)[:-grants] == before[:-grants]
    for row in range(len(nodes)):
        books.close(row)
    books.check()


# --------------------------------------------------------------------------------------- examples


def state_of(*nodes: Node) -> State:
    state = State()
    for number, node in enumerate(nodes):
        state.add_node(replace(node, id=f"n{number}"))
    return state


def test_rows_of_released_grants_are_reused_lowest_first_by_a_thawed_state() -> None:
    state = state_of(node_of((), 9, None, ()))
    slot = state.names.demand(Demand(cpus_milli=1000))
    assert [state.ledger.take(task, slot, 0, ()) for task in range(5)] == [0, 1, 2, 3, 4]
    for row in (3, 0, 2):
        state.ledger.release(row)
    again = Ledger(state.names, state.nodes, state.gpus, state.grants)  # as after a restart
    assert [again.take(9, slot, 0, ()) for _ in range(4)] == [0, 2, 3, 5]


def test_rows_are_reused_lowest_first_in_any_order_of_release() -> None:
    state = state_of(node_of((), 9, None, ()))
    slot = state.names.demand(Demand(cpus_milli=1000))
    for task in range(6):
        state.ledger.take(task, slot, 0, ())
    for row in (5, 1, 4, 2):
        state.ledger.release(row)
    assert [state.ledger.take(9, slot, 0, ()) for _ in range(5)] == [1, 2, 4, 5, 6]


@pytest.mark.parametrize(
    "demand",
    [
        Demand(cpus_milli=250),
        Demand(memory_bytes=1),
        Demand(custom=(("fpga", 1),)),
        Demand(gpus=1),
        Demand(gpus=1, gpu_milli=250),
        Demand(gpus=1, gpu_milli=0, gpu_memory_bytes=1),
    ],
)
def test_node_with_grants_cannot_be_removed(demand: Demand) -> None:
    state = state_of(node_of((8,), 4, 8, (("fpga", 1000),)))
    grant = state.ledger.take(0, state.names.demand(demand), 0, (0,) * demand.gpus)
    before = written(state.ledger)
    with pytest.raises(InvariantBroken, match="node n0 is removed while runs hold some of it"):
        state.remove_node(0)
    assert (written(state.ledger), state.nodes.alive[0]) == (before, 1)
    state.ledger.release(grant)
    state.remove_node(0)
    assert state.nodes.free[0] == state.nodes.total[0] == (0, 0, 0)


@pytest.mark.parametrize(
    ("demand", "gpus", "fault"),
    [
        (Demand(gpus=1), (0,), "GPU 0 of n0 is not free"),
        (Demand(gpus=1), (1,), "GPU 1 of n0 is not free"),
        (Demand(gpus=1), (4,), "GPU 4 of n0 is not free"),
        (Demand(gpus=1), (-1,), "GPU -1 of n0 is not free"),
        (Demand(gpus=1, gpu_memory_bytes=9), (2,), "GPU 2 of n0 is too small"),
        (Demand(gpus=2), (2, 2), "a GPU is named twice"),
        (Demand(gpus=2), (2,), "needs 2 GPUs, not 1"),
        (Demand(gpus=1, gpu_milli=250), (0,), "GPU 0 of n0 has too little left"),
        (Demand(gpus=1, gpu_milli=750), (1,), "GPU 1 of n0 has too little left"),
        (Demand(gpus=1, gpu_milli=250), (-1,), "GPU -1 of n0 has too little left"),
        (
            Demand(gpus=1, gpu_milli=0, gpu_memory_bytes=9),
            (2,),
            "GPU 2 of n0 has too little left",
        ),
        (Demand(gpus=1, cpus_milli=4250), (2,), "too little free cpus on n0"),
        (Demand(memory_bytes=1), (), "too little free memory on n0"),
        (Demand(custom=(("fpga", 500),)), (), "too little free fpga on n0"),
    ],
)
def test_infeasibility_names_the_problem(demand: Demand, gpus: tuple[int, ...], fault: str) -> None:
    """GPU 0 is held whole, half of GPU 1; the last node's row of GPUs is not n0's."""
    state = state_of(node_of((8, 8, 8, 8), 4, 0, ()), node_of((8,), 0, None, (("fpga", 500),)))
    state.ledger.take(0, state.names.demand(Demand(gpus=1)), 0, (0,))
    state.ledger.take(1, state.names.demand(Demand(gpus=1, gpu_milli=500)), 0, (1,))
    number = state.names.demand(demand)
    assert state.ledger.infeasibility(number, 0, gpus) == fault
    with pytest.raises(InvariantBroken, match=fault):
        state.ledger.take(2, number, 0, gpus)


def test_part_is_placed_on_a_gpu_in_part_use_before_a_smaller_idle_one() -> None:
    state = state_of(node_of((12, 4), 4, None, ()))
    memory = state.names.demand(Demand(gpus=1, gpu_milli=0, gpu_memory_bytes=3))
    state.ledger.take(0, memory, 0, (0,))
    assert state.ledger.best_gpus(memory, 0) == (0,)
    assert state.nodes.free_gpus[0] == 1


def test_several_parts_are_of_different_gpus_or_do_not_fit() -> None:
    state = state_of(node_of((8,), 4, None, ()), node_of((8, 8), 4, None, ()))
    halves = state.names.demand(Demand(gpus=2, gpu_milli=500))
    assert state.ledger.best_gpus(halves, 0) is None
    assert state.ledger.best_gpus(halves, 1) == (0, 1)
    assert state.ledger.infeasibility(halves, 1, (1, 1)) == "a GPU is named twice"


def test_a_trial_that_raises_is_rolled_back() -> None:
    state = state_of(node_of((8, 8), 4, None, ()))
    demand = state.names.demand(Demand(gpus=1, gpu_milli=250, cpus_milli=1000))
    tentative = Ledger.tentative(state.freeze())
    tentative.take(0, demand, 0, (1,))
    before = written(tentative)

    def attempt() -> None:
        with tentative.trial():
            tentative.take(1, demand, 0, (1,))
            tentative.take(2, demand, 0, (0, 1))

    with pytest.raises(InvariantBroken, match="needs 1 GPUs, not 2"):
        attempt()
    assert written(tentative) == before
