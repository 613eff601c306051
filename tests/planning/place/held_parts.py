"""GPUs, parts of them, and memory of nodes over time: what fits, by trying every assignment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from headgate.model import WHOLE, Demand
from headgate.planning.times.reservations import Reservation, gpus_of_tasks
from headgate.planning.units.unit import Unit
from headgate.state import Snapshot


class _Use(NamedTuple):
    at: float
    until: float
    milli: int
    memory: int


Amounts = tuple[int, int]  # of a GPU, free: thousandths and bytes


class Held:
    """What runs and reservations hold of each GPU and of each node's memory, and when."""

    def __init__(self, ends: Mapping[int, float], snapshot: Snapshot) -> None:
        """Start with the runs of a snapshot, that end at these times, by task (row)."""
        self.snapshot = snapshot
        self.total = snapshot.gpus.memory_bytes.array().tolist()
        self.gpus: list[list[_Use]] = [[] for _ in self.total]
        self.memory: list[list[_Use]] = [[] for _ in snapshot.nodes.spec]
        grants = snapshot.grants
        for row, task in enumerate(grants.task.array().tolist()):
            if task >= 0:
                node, first = grants.node[row], snapshot.nodes.first_gpu[grants.node[row]]
                gpus = [first + gpu for gpu in grants.gpus[row]]
                self.take(snapshot.demand(task), gpus, node, 0.0, ends[task])

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
