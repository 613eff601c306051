"""Placers under the law suite and in storms, under every kind of order."""

from __future__ import annotations

import pytest
from tests.cases import cases
from tests.policies.laws import OwnPolicy
from tests.policies.test_storms import HELD_BACK
from tests.sim.weather import ends_all, named, ride

from headgate.app import POLICIES
from headgate.base.rng import stream
from headgate.machine import apply
from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.model.topology import (
    ClusterMesh,
    ClusterTopology,
    ClusterTree,
    GroupLevel,
    NodeShape,
)
from headgate.planning.balancers import BALANCERS
from headgate.planning.place.choose import Sequential
from headgate.planning.place.choose.setting import PlacingPolicy
from headgate.ports import PLACE, PLACES, make_policy
from headgate.protocol import TopologyChanged
from headgate.protocol.reasons import GangSpread, PolicyRefuses
from headgate.state import Snapshot, State

SETTINGS = [
    {"place": "links"},
    {"place": "best-fit-subtree"},
    {"place": "closed-minimum", "otherwise": "wait"},
    {"place": "closed-minimum", "otherwise": "enlarge", "reserve": "needed"},
    {"place": "closed-minimum"},
    {"place": "sequential"},
    {"place": "block"},
    {"place": "cyclic"},
    {"place": "block-cyclic", "block_size": 3.0},
    *({"place": name} for name in BALANCERS),
]


NODES = tuple(f"n{n}" for n in range(6))
SOCKETS = GroupLevel(name="socket", bytes_per_s=8e9, groups=((0, 1), (2, 3)))
TOPOLOGIES: tuple[ClusterTopology | None, ...] = (
    None,
    ClusterMesh(sides=(2, 3), wrap=(False, False), bytes_per_s=(1e9, 1e9), nodes=NODES),
    ClusterMesh(sides=(3,), wrap=(True,), bytes_per_s=(1e9,), nodes=NODES[:3]),
    ClusterTree(
        level_names=("core", "rack", "node"),
        names=("core", "a", "b", *NODES[:4]),
        parents=(-1, 0, 0, 1, 1, 2, 2),
        levels=(0, 1, 1, 2, 2, 2, 2),
        bytes_per_s=(1.0,) * 7,
        shapes=(NodeShape(levels=(SOCKETS,), gpu_bytes_per_s=1e9),),
        shape=(-1, -1, -1, 0, 0, -1, 0),
    ),
)
"""The last two have no place for some of the nodes."""


class Placing(OwnPolicy):
    """The laws for one policy and placer."""

    worlds = cases(20)
    idles_by_choice = True  # a job may wait for a closed set, or hold up later ones

    def _state(self, seed: int) -> State:
        """Return a state with a topology: racks, a mesh, a ring, or a tree with sockets."""
        state = super()._state(seed)
        apply(state, TopologyChanged(at=state.now, topology=TOPOLOGIES[seed % len(TOPOLOGIES)]))
        return state


class TestFifoClosedMinimum(Placing):
    policy, parameters = "fifo", SETTINGS[2]


class TestFifoCyclic(Placing):
    policy, parameters = "fifo", SETTINGS[7]


class TestEasyBackfillBestFit(Placing):
    policy, parameters = "easy-backfill", SETTINGS[1]


class TestConservativeBackfillClosedMinimum(Placing):
    policy, parameters = "conservative-backfill", SETTINGS[2]


class TestLeastAttainedServiceClosedMinimum(Placing):
    preempts_whole_jobs = True
    policy, parameters = "least-attained-service", SETTINGS[3]


class TestHeadgateClosedMinimum(Placing):
    policy, parameters = "headgate", SETTINGS[2]


class TestHeadgateBlockCyclic(Placing):
    policy, parameters = "headgate", SETTINGS[8]


class TestFifoSequential(Placing):
    policy, parameters = "fifo", SETTINGS[4]


class TestEasyBackfillBlock(Placing):
    policy, parameters = "easy-backfill", SETTINGS[5]


class TestFifoSmoothWeighted(Placing):
    policy, parameters = "fifo", {"place": "swrr"}


class TestEasyBackfillLeastCost(Placing):
    policy, parameters = "easy-backfill", {"place": "least-cost"}


class TestHeadgateResourcePickKx(Placing):
    policy, parameters = "headgate", {"place": "resource-pick-kx"}


class TestFlowSharingBestFit(Placing):
    policy, parameters = "fs", SETTINGS[1]


class TestGreedySharingClosedMinimum(Placing):
    policy, parameters = "gs", SETTINGS[2]


class TestGreedyPreemptionBestFit(Placing):
    policy, parameters = "gsp", SETTINGS[1]


class TestGreedyDelayByLinks(Placing):
    policy, parameters = "gsd", SETTINGS[0]


class TestCapacityClosedMinimum(Placing):
    policy, parameters = "capacity", SETTINGS[3]


class TestFairCyclic(Placing):
    policy, parameters = "fair", SETTINGS[7]


del Placing  # it is no policy by itself

ORDERS = [
    "fifo",
    "conservative-backfill",
    "least-attained-service",
    "headgate",
    "fs",
    "gsp",
    "fair",
]
PLACERS_EACH = 5
"""How many placers each order is tried with in `make test`: other ones than the order before."""


@pytest.mark.parametrize("order", ORDERS)
def test_every_job_ends_in_a_storm(order: str) -> None:
    """With time limits, or calm, by turns."""
    first = ORDERS.index(order) * PLACERS_EACH
    for turn in range(first, first + cases(PLACERS_EACH)):
        rounds, number = divmod(turn, len(SETTINGS))
        seed = 1 + 2 * rounds + turn % 2
        policy = make_policy(POLICIES, order, SETTINGS[number])
        with named(f"storm({seed}) under {order} {SETTINGS[number]}"):
            watch = ride(seed, policy, calm=seed % 3 == 2, limits=seed % 2 == 1)
            assert ends_all(watch.engine, held_back=order in HELD_BACK)


def racks(*gangs: int) -> Snapshot:
    """Return two racks of four nodes, a GPU each, and gangs that wait."""
    state = State()
    state.set_queue(Queue(name="q"))
    for number in range(8):
        gpu = (Gpu(memory_bytes=0),)
        state.add_node(Node(id=f"n{number}", rack=f"r{number // 4}", gpus=gpu, cpus=4))
    for number, count in enumerate(gangs):
        tasks = (Task(demand=Demand(gpus=1)),) * count
        job = Job(id=f"j{number}", name="j", user="u", queue="q", tasks=tasks, gang=count > 1)
        row = state.add_job(job)
        activate(state, row)
    return state.freeze()


@pytest.mark.parametrize(
    "order",
    [
        "fifo",
        "easy-backfill",
        "least-attained-service",
        "headgate",
        "fs",
        "gs",
        "gsp",
        "gsd",
        "capacity",
        "fair",
    ],
)
def test_gang_waits_for_a_closed_set_with_a_reason_or_is_spread(order: str) -> None:
    snapshot = racks(3, 3, 2)
    placed = {}
    for otherwise in ("wait", "spread"):
        setting = {"place": "closed-minimum", "otherwise": otherwise}
        plan = make_policy(POLICIES, order, setting).decide(snapshot, stream(0))
        placed[otherwise] = [start.node for start in plan.starts]
        reasons = {type(refusal.reason) for refusal in plan.refusals if 2 in refusal.jobs}
        assert reasons == ({GangSpread} if otherwise == "wait" else set())
    assert placed["wait"] == [0, 1, 2, 4, 5, 6]
    assert placed["spread"] == [0, 1, 2, 4, 5, 6, 3, 7]


def test_sizes_other_than_powers_of_two_are_refused_or_rounded_up() -> None:
    job = Job(
        id="j", name="j", user="u", queue="q", tasks=(Task(demand=Demand(gpus=1)),) * 3, gang=True
    )
    setting = {"place": "best-fit-subtree", "sizes": "refuse"}
    reason = make_policy(POLICIES, "headgate", setting).refuses(job)
    assert isinstance(reason, PolicyRefuses)
    assert "3 GPUs with sizes=refuse, as that is no power of two" in str(reason)
    policy = make_policy(POLICIES, "headgate", {"place": "best-fit-subtree"})
    assert policy.refuses(job) is None
    plan = policy.decide(racks(3, 4), stream(0))
    assert sorted(start.node for start in plan.starts) == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize("order", ["headgate", "easy-backfill", "fifo", "least-attained-service"])
def test_every_job_ends_in_a_storm_on_links(order: str) -> None:
    for seed in range(cases(3)):
        policy = make_policy(POLICIES, order, {"place": "links"})
        with named(f"storm({seed}) under {order} on links"):
            watch = ride(seed, policy, calm=seed % 3 == 2, limits=seed % 2 == 1, links=True)
            assert ends_all(watch.engine, held_back=order in HELD_BACK)


def test_every_policy_has_placers() -> None:
    for name, info in POLICIES.items():
        assert {each.name for each in PLACE} <= {each.name for each in info.parameters}, name
        policy = make_policy(POLICIES, name, {"place": "sequential"})
        assert isinstance(policy, PlacingPolicy)
        assert isinstance(policy.placer, Sequential)


def test_every_placer_is_tried() -> None:
    assert {setting["place"] for setting in SETTINGS} == {*PLACES} - {"first-fit"}
