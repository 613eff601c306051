"""CPUs, memory and custom kinds of nodes over time, against brute force over every instant."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import pytest
from tests.planning.place.keeping import reserve
from tests.planning.place.small_cluster import (
    GIB,
    RUN_S,
    Cluster,
    earliest,
    reserve_earliest,
)

from headgate.base.rng import Random
from headgate.model import Demand
from headgate.planning.times.reservations import Reservation
from headgate.planning.units.unit import Unit, waiting_units
from headgate.state import Scratch, Snapshot


def _demand(rng: Random) -> Demand:
    return Demand.of(gpus=rng.randint(0, 2), memory_bytes=rng.randint(0, 4) * GIB)


class Held:
    """What runs and reservations hold of each GPU and of each node's memory, and when."""

    def __init__(self, cluster: Cluster, snapshot: Snapshot) -> None:
        self.snapshot, self.cluster = snapshot, cluster
        self.gpus: list[list[tuple[float, float]]] = [[] for _ in range(sum(cluster.gpus))]
        self.memory: list[list[tuple[float, float, int]]] = [[] for _ in cluster.gpus]
        grants = snapshot.grants
        for row, task in enumerate(grants.task.array().tolist()):
            if task >= 0:
                node = grants.node[row]
                gpus = [snapshot.nodes.first_gpu[node] + gpu for gpu in grants.gpus[row]]
                self.take(gpus, node, snapshot.demand(task).memory_bytes, 0.0, cluster.ends[task])

    def take(self, gpus: list[int], node: int, memory: int, at: float, until: float) -> None:
        for gpu in gpus:
            self.gpus[gpu].append((at, until))
        self.memory[node].append((at, until, memory))

    def keep(self, found: Reservation, s: float) -> None:
        """Hold what is reserved."""
        for gpu in found.gpus.tolist():
            self.gpus[gpu].append((found.at, found.at + s))
        for node, demand, number in found.tasks:
            memory = number * self.snapshot.names.demands[demand].memory_bytes
            self.memory[node].append((found.at, found.at + s, memory))

    def check(self) -> None:
        """Assert that no GPU is held twice, and no node's memory more than there is."""
        for spans in self.gpus:
            for (_, end), (begin, _) in pairwise(sorted(spans)):
                assert end <= begin
        for node, amounts in enumerate(self.memory):
            total = self.snapshot.nodes.spec[node].memory_bytes
            for at, _, _ in amounts:
                assert sum(memory for b, e, memory in amounts if b <= at < e) <= total

    def spans(self) -> Iterator[tuple[float, float]]:
        for spans in self.gpus:
            yield from spans
        for amounts in self.memory:
            yield from ((at, until) for at, until, _ in amounts)

    def fits(self, unit: Unit, at: float, s: float) -> bool:
        """Return whether nodes hold all tasks, by trying all ways for those of each demand."""
        spec = [self.snapshot.names.demands[demand] for demand in unit.demands]
        free = [self._free_gpus(node, at, s) for node in range(len(self.memory))]
        left = [self._free_memory(node, at, s) for node in range(len(self.memory))]
        return _fit(spec, free, left, distinct=unit.distinct_nodes, used=())

    def _free_gpus(self, node: int, at: float, s: float) -> int:
        first = self.snapshot.nodes.first_gpu[node]
        spans = self.gpus[first : first + self.cluster.gpus[node]]
        return sum(self._is_free(gpu, at, s) for gpu in spans)

    def _is_free(self, spans: list[tuple[float, float]], at: float, s: float) -> bool:
        return all(at + s <= begins or until <= at for begins, until in spans)

    def _free_memory(self, node: int, at: float, s: float) -> int:
        total = self.snapshot.nodes.spec[node].memory_bytes
        instants = {at, *(b for b, _, _ in self.memory[node] if at < b < at + s)}
        return total - max(
            sum(memory for b, e, memory in self.memory[node] if b <= t < e) for t in instants
        )


def _fit(
    specs: list[Demand],
    gpus: list[int],
    memory: list[int],
    *,
    distinct: bool,
    used: tuple[int, ...],
) -> bool:
    if not specs:
        return True
    first, rest = specs[0], specs[1:]
    for node in range(len(gpus)):
        if (distinct and node in used) or first.gpus > gpus[node]:
            continue
        if first.memory_bytes > memory[node]:
            continue
        gpus[node] -= first.gpus
        memory[node] -= first.memory_bytes
        fits = _fit(rest, gpus, memory, distinct=distinct, used=(*used, node))
        gpus[node] += first.gpus
        memory[node] += first.memory_bytes
        if fits:
            return True
    return False


@pytest.mark.parametrize("seed", range(200))
def test_reservations_are_at_the_earliest_time_at_which_gpus_and_memory_suffice(seed: int) -> None:
    rng = Random(seed)
    cluster = Cluster(rng)
    cluster.run_some(rng, rng.randint(0, 5), partial(_demand, rng))
    waiting = []
    for _ in range(4):
        demand = Demand.of(gpus=rng.randint(1, 2), memory_bytes=rng.randint(0, 4) * GIB)
        count = rng.randint(1, 3)
        waiting.append(cluster.add(*[demand] * count, distinct=count > 1 and rng.random() < 0.3))
    snapshot = cluster.state.freeze()
    held = Held(cluster, snapshot)

    reserve_earliest(rng, held, cluster.placing(Scratch(snapshot)), snapshot, waiting)


@pytest.mark.parametrize("seed", [*range(100), 1398, 2310])
def test_starts_and_reservations_of_mixed_gangs_never_exceed_a_node(seed: int) -> None:
    """Gangs of several demands, some without GPUs; units start among the reservations."""
    rng = Random(seed)
    cluster = Cluster(rng)
    cluster.run_some(rng, rng.randint(0, 4), partial(_demand, rng))
    waiting = []
    for _ in range(6):
        kinds = [(rng.randint(1, 2), rng.randint(0, 3)), (rng.randint(0, 1), rng.randint(0, 3))]
        demands = [Demand.of(gpus=g, memory_bytes=m * GIB) for g, m in kinds]
        waiting.append(cluster.add(*rng.choices(demands[: rng.randint(1, 2)], k=rng.randint(1, 3))))
    snapshot = cluster.state.freeze()
    held, scratch = Held(cluster, snapshot), Scratch(snapshot)

    units = cluster.placing(scratch)
    for job in waiting:
        unit = next((unit for each in waiting_units(snapshot, job) for unit in each), None)
        if unit is None:  # without a GPU
            continue
        run_s, before = rng.choice(RUN_S), len(scratch.starts)
        if units.start(unit, run_s):
            for task, node, gpus in scratch.starts[before:]:
                rows = [snapshot.nodes.first_gpu[node] + gpu for gpu in gpus]
                held.take(rows, node, snapshot.demand(task).memory_bytes, 0.0, run_s)
        else:
            expected = earliest(held, unit, run_s)
            found = reserve(units, unit, run_s)
            if found is not None:
                assert expected is not None
                assert found.at >= expected
                assert sum(number for _, _, number in found.tasks) == len(unit.tasks)
                held.keep(found, run_s)
        held.check()
