"""Placers on a cluster: where units start, what is kept for them, and until when they wait."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.planning.place.keeping import reserve

from headgate.base.rng import Random
from headgate.machine import apply
from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.model.topology import (
    ClusterFatTree,
    ClusterMesh,
    ClusterTopology,
    ClusterTree,
    GroupLevel,
    NodeShape,
)
from headgate.planning.place.choose import BestFitSubtree, ClosedMinimum, Cyclic, Placer, Sequential
from headgate.planning.place.choose.setting import placer_of
from headgate.planning.place.cpu_tasks import place_cpu_tasks
from headgate.planning.place.placement import fit, placing
from headgate.planning.units.unit import Unit, waiting_units
from headgate.protocol import TopologyChanged
from headgate.state import Scratch, Snapshot, State

WAIT = ClosedMinimum(otherwise="wait")
SOCKETS = NodeShape(
    levels=(GroupLevel(name="socket", bytes_per_s=8e9, groups=((0, 1), (2, 3))),),
    gpu_bytes_per_s=2e9,
)


def cluster(
    nodes: int,
    *gangs: tuple[int, ...],
    gpus: int = 1,
    racks: int = 2,
    topology: ClusterTopology | None = None,
    distinct: bool = False,
    cpus: float | None = None,
) -> Snapshot:
    """Return idle nodes n0, n1 ... in racks, and gangs that wait: the GPUs of each task."""
    state = State()
    apply(state, TopologyChanged(at=0.0, topology=topology))
    state.set_queue(Queue(name="q"))
    for number in range(nodes):
        rack = f"r{number * racks // nodes}"
        there = (Gpu(memory_bytes=0),) * gpus
        state.add_node(Node(id=f"n{number}", rack=rack, gpus=there, cpus=12))
    for number, gang in enumerate(gangs):
        row = state.add_job(
            Job(
                id=f"j{number}",
                name="j",
                user="u",
                queue="q",
                tasks=tuple(Task(demand=Demand.of(gpus=each, cpus=cpus)) for each in gang),
                gang=True,
                distinct_nodes=distinct,
            )
        )
        activate(state, row)
    return state.freeze()


def unit_of(snapshot: Snapshot, job: int) -> Unit:
    ((unit,),) = waiting_units(snapshot, job)
    return unit


def never(tasks: np.ndarray) -> np.ndarray:
    return np.full(len(tasks), math.inf)


def started(snapshot: Snapshot, placer: Placer | None) -> list[list[int] | None]:
    """Start all gangs, one after the other; return the nodes of each one's tasks."""
    scratch = Scratch(snapshot)
    placing, found = fit(scratch, placer), list[list[int] | None]()
    for job in range(len(snapshot.jobs.state)):
        before = len(scratch.starts)
        fits = placing.place(unit_of(snapshot, job))
        found.append([start.node for start in scratch.starts[before:]] if fits else None)
    return found


def mesh(*sides: int, nodes: int | None = None) -> ClusterMesh:
    count = math.prod(sides) if nodes is None else nodes
    return ClusterMesh(
        sides=sides,
        wrap=(False,) * len(sides),
        bytes_per_s=(1e9,) * len(sides),
        nodes=tuple(f"n{n}" for n in range(count)),
    )


def test_gangs_get_boxes_of_a_mesh() -> None:
    snapshot = cluster(16, (1,) * 4, (1,) * 4, topology=mesh(4, 4))
    assert started(snapshot, WAIT) == [[0, 1, 4, 5], [2, 3, 6, 7]]
    snapshot = cluster(16, (1,) * 9, (1,) * 4, topology=mesh(4, 4))
    assert started(snapshot, WAIT) == [[0, 1, 2, 4, 5, 6, 8, 9, 10], None]
    spread = started(snapshot, ClosedMinimum())[1]
    assert spread is not None
    assert set(spread) <= {3, 7, 11, 12, 13, 14, 15}
    assert started(snapshot, ClosedMinimum(otherwise="enlarge"))[1] == [12, 13, 14, 15]


def test_boxes_count_the_tasks_that_fit_each_node() -> None:
    snapshot = cluster(16, (1,) * 8, gpus=2, topology=mesh(4, 4))
    assert started(snapshot, WAIT) == [[0, 0, 1, 1, 4, 4, 5, 5]]
    distinct = cluster(16, (1,) * 4, gpus=2, topology=mesh(4, 4), distinct=True)
    assert started(distinct, WAIT) == [[0, 1, 4, 5]]


def test_jobs_that_fit_one_node_of_a_mesh_share_nodes() -> None:
    snapshot = cluster(4, (1,), (1,), (2,), gpus=2, topology=mesh(2, 2))
    assert started(snapshot, WAIT) == [[0], [0], [1]]


def test_gangs_get_racks_and_fat_trees_pods() -> None:
    snapshot = cluster(8, (1,) * 3, (1,) * 4, (1,), (1,))
    assert started(snapshot, WAIT) == [[0, 1, 2], [4, 5, 6, 7], [3], None]
    pods = ClusterFatTree(
        ports=4, bytes_per_s=(1e9, 1e9, 1e9), nodes=tuple(f"n{n}" for n in range(16))
    )
    snapshot = cluster(16, (1, 1), (1,) * 3, (1,) * 4, topology=pods)
    assert started(snapshot, WAIT) == [[0, 1], [4, 5, 6], [8, 9, 10, 11]]


def test_surplus_of_a_closed_set_is_kept_from_other_gangs_or_not() -> None:
    names = ("core", "a0", "a1", "r0", "r1", "r2", "r3", *(f"n{n}" for n in range(8)))
    binary = ClusterTree(
        level_names=("core", "aggregation", "rack", "node"),
        names=names,
        parents=(-1, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6),
        levels=(0, 1, 1, *[2] * 4, *[3] * 8),
        bytes_per_s=(1.0,) * len(names),
    )
    snapshot = cluster(8, (1,) * 5, (1, 1), (1,), topology=binary)
    first = [0, 1, 2, 3, 4]
    assert started(snapshot, WAIT) == [first, None, [5]]
    assert started(snapshot, ClosedMinimum()) == [first, [6, 7], [5]]
    needed = ClosedMinimum(reserve="needed", otherwise="wait")
    assert started(snapshot, needed) == [first, [6, 7], [5]]


def test_job_that_no_idle_set_would_hold_does_not_wait_for_one() -> None:
    snapshot = cluster(6, (1,) * 5, topology=mesh(2, 2, nodes=4))  # two nodes have no place
    assert started(snapshot, WAIT) == [[0, 1, 2, 3, 4]]


def test_best_fit_fills_the_node_with_fewest_free_gpus_that_suffice() -> None:
    snapshot = cluster(3, (3,), (4,), (1,), (2, 2), gpus=4, racks=1)
    assert started(snapshot, BestFitSubtree()) == [[0], [1], [0], [2, 2]]


def test_best_fit_uses_few_nodes_rather_than_the_rack_with_fewest_free_gpus() -> None:
    # free are 2, 2, 2, 2 in the first rack, 4, 3, 2, 0 in the second
    held = ((6,), (6,), (6,), (6,), (4,), (5,), (6,), (8,))
    snapshot = cluster(8, *held, (1,) * 8, gpus=8, racks=2)
    *before, last = started(snapshot, BestFitSubtree())
    assert before == [[n] for n in range(8)]
    assert last is not None
    assert sorted(set(last)) == [4, 5, 6]


def test_baselines_follow_the_order_of_leaves() -> None:
    snapshot = cluster(8, (1,) * 4)
    assert started(snapshot, Sequential()) == [[0, 1, 2, 3]]
    assert started(snapshot, Cyclic()) == [[0, 4, 1, 5]]
    assert started(snapshot, Cyclic(block=2)) == [[0, 1, 4, 5]]


def test_tasks_get_gpus_of_one_socket() -> None:
    tree = ClusterTree(
        level_names=("core", "node"),
        names=("core", "n0"),
        parents=(-1, 0),
        levels=(0, 1),
        bytes_per_s=(1.0, 1e8),
        shapes=(SOCKETS,),
        shape=(-1, 0),
    )
    snapshot = cluster(1, (1,), (2,), (1,), gpus=4, racks=1, topology=tree)
    for placer in (BestFitSubtree(), WAIT):
        scratch = Scratch(snapshot)
        placing = fit(scratch, placer)
        assert all(placing.place(unit_of(snapshot, job)) for job in range(3))
        assert [start.gpus for start in scratch.starts] == [(0,), (2, 3), (1,)]


def test_tasks_of_fewer_gpus_start_near_those_of_more() -> None:
    snapshot = cluster(8, (1, 1, 4, 1), gpus=4, racks=4)
    scratch = Scratch(snapshot)
    before = Unit(job=0, tasks=(0,), demands=(0,))
    assert scratch.place(before.tasks[0], 0)
    scratch = Scratch(snapshot)
    assert fit(scratch, BestFitSubtree()).place(unit_of(snapshot, 0))
    assert {start.node for start in scratch.starts} == {0, 1}  # one rack


def test_gangs_without_gpus_get_idle_nodes() -> None:
    """The machine of 32 nodes with 12 cores each, in two groups of two modules."""
    names = ("core", "g0", "g1", "m0", "m1", "m2", "m3", *(f"n{n}" for n in range(32)))
    tree = ClusterTree(
        level_names=("core", "group", "module", "node"),
        names=names,
        parents=(-1, 0, 0, 1, 1, 2, 2, *(3 + n // 8 for n in range(32))),
        levels=(0, 1, 1, *[2] * 4, *[3] * 32),
        bytes_per_s=(1.0,) * len(names),
    )
    jobs = ((0,) * 64, (0,) * 16, (0,) * 4)
    snapshot = cluster(32, *jobs, gpus=0, topology=tree, cpus=1.0)
    scratch, found = Scratch(snapshot), list[set[int]]()
    place_cpu_tasks(scratch, WAIT)
    for job in range(3):
        tasks = set(snapshot.tasks_of(job))
        found.append({each.node for each in scratch.starts if each.task in tasks})
    assert found == [{0, 1, 2, 3, 4, 5}, {8, 9}, {16}]


def test_without_a_setting_there_is_no_placer() -> None:
    assert placer_of() is None


@pytest.mark.parametrize("seed", range(40))
def test_reservation_is_at_the_earliest_time_at_which_the_placer_finds_a_set(seed: int) -> None:
    rng = Random(seed)
    topology = rng.choice((None, mesh(2, 4), mesh(8)))
    gangs = [(1,) * rng.randint(1, 8) for _ in range(3)]
    snapshot = cluster(8, *gangs, topology=topology)
    placer = rng.choice((WAIT, ClosedMinimum(otherwise="enlarge"), ClosedMinimum(), Cyclic()))
    ends = [rng.choice((0.0, 0.0, 3.0, 5.0, 9.0)) for _ in range(8)]
    for job in range(3):
        units = placing(Scratch(snapshot), never, placer)
        units.table.free_at[:] = ends
        found = units.earliest(unit_of(snapshot, job), 10.0)
        assert found is not None
        expected = next(at for at in sorted({*ends, 0.0}) if _fits(snapshot, job, ends, at, placer))
        assert found.at == expected
        assert len(set(found.gpus.tolist())) == len(gangs[job])
        assert all(ends[gpu] <= found.at for gpu in found.gpus.tolist())


def _fits(snapshot: Snapshot, job: int, ends: list[float], at: float, placer: Placer) -> bool:
    """Return whether a gang starts if all that has ended by a time is free, and the rest is not."""
    units = placing(Scratch(snapshot), never, placer)
    units.table.free_at[:] = [0.0 if end <= at else end for end in ends]
    return units.start(unit_of(snapshot, job), 10.0)


def test_gang_waits_for_a_rack_and_others_use_it_until_then() -> None:
    snapshot = cluster(8, (1,) * 4, (1,), (1,))
    units = placing(Scratch(snapshot), never, WAIT)
    units.table.free_at[:] = [5.0, 5.0, 0.0, 0.0, 3.0, 9.0, 0.0, 0.0]
    reserved = reserve(units, unit_of(snapshot, 0), 10.0)
    assert reserved is not None
    assert (reserved.at, sorted(reserved.gpus.tolist())) == (5.0, [0, 1, 2, 3])
    assert units.start(unit_of(snapshot, 1), 100.0)
    assert units.start(unit_of(snapshot, 2), 100.0)
