"""Parts of GPUs over time, against brute force over every instant and every assignment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
from tests.planning.place.keeping import reserve
from tests.planning.place.small_cluster import GIB, RUN_S, Cluster, earliest, unit_of

from headgate.base.rng import Random
from headgate.model import WHOLE, Demand
from headgate.planning.times.reservations import Reservation, gpus_of_tasks
from headgate.planning.units.unit import Unit
from headgate.state import Scratch, Snapshot

ALL_BYTES = 8 * GIB


class _Use(NamedTuple):
    at: float
    until: float
    milli: int
    memory: int


Amounts = tuple[int, int]  # of a GPU, free: thousandths and bytes


class Held:
    """What runs and reservations hold of each GPU and of each node's memory, and when."""

    def __init__(self, cluster: Cluster, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.total = snapshot.gpus.memory_bytes.array().tolist()
        self.gpus: list[list[_Use]] = [[] for _ in self.total]
        self.memory: list[list[_Use]] = [[] for _ in cluster.gpus]
        grants = snapshot.grants
        for row, task in enumerate(grants.task.array().tolist()):
            if task >= 0:
                node, first = grants.node[row], snapshot.nodes.first_gpu[grants.node[row]]
                gpus = [first + gpu for gpu in grants.gpus[row]]
                self.take(snapshot.demand(task), gpus, node, 0.0, cluster.ends[task])

    def take(self, spec: Demand, gpus: Sequence[int], node: int, at: float, until: float) -> None:
        """Hold what one task does."""
        for gpu in gpus:
            milli, memory = _needs(spec, self.total[gpu])
            self.gpus[gpu].append(_Use(at, until, milli, memory))
        self.memory[node].append(_Use(at, until, 0, spec.memory_bytes))

    def keep(self, found: Reservation, s: float) -> None:
        """Hold what is reserved."""
        for (node, demand, number), rows in gpus_of_tasks(self.snapshot, found.gpus, found.tasks):
            spec = self.snapshot.names.demands[demand]
            for nth in range(number):
                gpus = rows[nth * spec.gpus : (nth + 1) * spec.gpus]
                assert len(set(gpus)) == spec.gpus
                self.take(spec, gpus, node, found.at, found.at + s)

    def check(self) -> None:
        """Assert that no more is held of a GPU, and of a node's memory, than there is."""
        for gpu, uses in enumerate(self.gpus):
            for at, *_ in uses:
                assert sum(use.milli for use in uses if use.at <= at < use.until) <= WHOLE
                held = sum(use.memory for use in uses if use.at <= at < use.until)
                assert held <= self.total[gpu]
        for node, uses in enumerate(self.memory):
            for at, *_ in uses:
                held = sum(use.memory for use in uses if use.at <= at < use.until)
                assert held <= self.snapshot.nodes.spec[node].memory_bytes

    def spans(self) -> Iterator[tuple[float, float]]:
        """Yield from when to when something is held."""
        for uses in (*self.gpus, *self.memory):
            yield from (use[:2] for use in uses)

    def fits(self, unit: Unit, at: float, s: float) -> bool:
        """Return whether all tasks of a unit fit, by trying all GPUs for each."""
        nodes = self.snapshot.nodes
        gpus = []
        for node, first in enumerate(nodes.first_gpu.array().tolist()):
            rows = range(first, first + nodes.gpu_count[node])
            gpus.append(tuple(self._free(gpu, at, s) for gpu in rows))
        memory = []
        for node, uses in enumerate(self.memory):
            total = nodes.spec[node].memory_bytes
            assert total is not None
            memory.append(total - _most(uses, at, s)[1])
        specs = [self.snapshot.names.demands[demand] for demand in unit.demands]
        return self._fit(specs, gpus, memory, set(), distinct=unit.distinct_nodes, used=())

    def _free(self, gpu: int, at: float, s: float) -> Amounts:
        milli, memory = _most(self.gpus[gpu], at, s)
        return WHOLE - milli, self.total[gpu] - memory

    def _fit(
        self,
        specs: list[Demand],
        gpus: list[tuple[Amounts, ...]],
        memory: list[int],
        failed: set[object],
        *,
        distinct: bool,
        used: tuple[int, ...],
    ) -> bool:
        state = len(specs), tuple(gpus), tuple(memory), used
        if not specs or state in failed:
            return not specs
        spec = specs[0]
        for node, here in enumerate(gpus):
            if (distinct and node in used) or spec.memory_bytes > memory[node]:
                continue
            first = self.snapshot.nodes.first_gpu[node]
            for some in combinations(range(len(here)), spec.gpus):
                left = list(here)
                for gpu in some:
                    milli, part = _needs(spec, self.total[first + gpu])
                    left[gpu] = left[gpu][0] - milli, left[gpu][1] - part
                if any(min(amounts) < 0 for amounts in left):
                    continue
                then = [*gpus[:node], tuple(left), *gpus[node + 1 :]]
                beside = memory.copy()
                beside[node] -= spec.memory_bytes
                if self._fit(
                    specs[1:], then, beside, failed, distinct=distinct, used=(*used, node)
                ):
                    return True
        failed.add(state)
        return False


def _most(uses: Sequence[_Use], at: float, s: float) -> Amounts:
    """Return the most that is held together from a time on for `s` seconds."""
    instants = {at, *(use.at for use in uses if at < use.at < at + s)}
    held = [[use for use in uses if use.at <= t < use.until] for t in instants]
    milli = max(sum(use.milli for use in some) for some in held)
    return milli, max(sum(use.memory for use in some) for some in held)


def _needs(spec: Demand, total: int) -> Amounts:
    """Return the thousandths and bytes that a task holds of a GPU with so much memory."""
    if spec.gpu_milli == WHOLE:
        return WHOLE, total
    return spec.gpu_milli, spec.gpu_memory_bytes or total * spec.gpu_milli // WHOLE


def _demand(rng: Random, *, shared: bool = True) -> Demand:
    """Return what a task on whole GPUs, or on parts of one or two, holds.

    Memory of one without a share of it only if it may be `shared`: a gang of such has no GPUs.
    """
    memory_bytes = rng.choice((0, 0, 1, 3)) * GIB
    if rng.random() < 0.3:
        return Demand.of(gpus=rng.randint(1, 2), memory_bytes=memory_bytes)
    milli = rng.choice((0, 200, 250, 400, 500, 700) if shared else (200, 250, 400, 500, 700))
    return Demand.of(
        gpus=2 if rng.random() < 0.2 else 1,
        gpu_milli=milli,
        gpu_memory_bytes=rng.choice((0, 1, 2, 5) if milli else (1, 2)) * GIB,
        memory_bytes=memory_bytes,
    )


def _cluster(rng: Random) -> Cluster:
    cluster = Cluster(rng, lambda: rng.choice((ALL_BYTES, ALL_BYTES, ALL_BYTES // 2)))
    cluster.run_some(rng, rng.randint(0, 10), partial(_demand, rng))
    return cluster


@pytest.mark.parametrize("seed", range(400))
def test_reservations_of_equal_tasks_are_at_the_earliest_time_at_which_they_fit(seed: int) -> None:
    rng = Random(seed)
    cluster = _cluster(rng)
    waiting = []
    for _ in range(5):
        count = rng.randint(1, 4)
        distinct = count > 1 and rng.random() < 0.3
        waiting.append(cluster.add(*[_demand(rng, shared=count == 1)] * count, distinct=distinct))
    snapshot = cluster.state.freeze()
    held, units = Held(cluster, snapshot), cluster.placing(Scratch(snapshot))
    for job in waiting:
        unit, run_s = unit_of(snapshot, job), rng.choice(RUN_S)
        expected = earliest(held, unit, run_s)
        found = reserve(units, unit, run_s)
        assert (found and found.at) == expected
        if found is not None:
            assert sum(number for _, _, number in found.tasks) == len(unit.tasks)
            held.keep(found, run_s)
            held.check()


def _serve(rng: Random, cluster: Cluster, waiting: list[int]) -> tuple[int, int, int]:
    """Start or reserve units in order; return how many are reserved, missed a start, or are late.

    Nothing that starts delays a reservation, and no reservation another one.
    """
    snapshot, reserved, missed, late = cluster.state.freeze(), 0, 0, 0
    held, scratch = Held(cluster, snapshot), Scratch(snapshot)
    units = cluster.placing(scratch)
    for job in waiting:
        unit, run_s, before = unit_of(snapshot, job), rng.choice(RUN_S), len(scratch.starts)
        expected = earliest(held, unit, run_s)
        if units.start(unit, run_s):
            first = snapshot.nodes.first_gpu
            for task, node, gpus in scratch.starts[before:]:
                rows = [first[node] + gpu for gpu in gpus]
                held.take(snapshot.demand(task), rows, node, 0.0, run_s)
        else:
            missed += expected == 0.0
            found = reserve(units, unit, run_s)
            if expected is not None:
                reserved += 1
                late += found is None or found.at > expected
            if found is not None:
                assert expected is not None
                assert found.at >= expected
                assert sum(number for _, _, number in found.tasks) == len(unit.tasks)
                held.keep(found, run_s)
        held.check()
    return reserved, missed, late


@pytest.mark.parametrize("seed", range(300))
def test_equal_tasks_start_if_they_fit_and_delay_no_reservation(seed: int) -> None:
    rng = Random(seed)
    cluster, waiting = _cluster(rng), []
    for _ in range(8):
        count = rng.randint(1, 3)
        distinct = count > 1 and rng.random() < 0.3
        waiting.append(cluster.add(*[_demand(rng, shared=count == 1)] * count, distinct=distinct))
    _, missed, late = _serve(rng, cluster, waiting)
    assert (missed, late) == (0, 0)


def _serve_mixed(seed: int) -> tuple[int, int, int]:
    rng = Random(seed)
    cluster, waiting = _cluster(rng), []
    for _ in range(8):
        demands = [_demand(rng, shared=False) for _ in range(rng.randint(1, 4))]
        waiting.append(cluster.add(*demands, distinct=len(demands) > 1 and rng.random() < 0.3))
    return _serve(rng, cluster, waiting)


@pytest.mark.parametrize("seed", range(300))
def test_gangs_of_several_demands_delay_no_reservation(seed: int) -> None:
    _serve_mixed(seed)


def test_few_gangs_of_several_demands_are_reserved_later_than_they_might_start() -> None:
    """Their demands are placed in turn, those with most GPUs first; no other way is tried."""
    reserved, missed, late = np.sum([_serve_mixed(seed) for seed in range(100)], axis=0).tolist()
    assert missed <= 0.01 * reserved
    assert late <= 0.08 * reserved
