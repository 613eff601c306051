"""What `--live` measures: its workloads, its sides and its figures.

On a bed of unlike nodes, the same calls are executed by Ray's tasks, which Ray places as it does by
default, and by `headgate.Executor` with each balancer. All sides take turns in every round, on the
same nodes, so that other load on the machine affects all of them; medians over rounds count.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from statistics import median

RAY = "ray"
SIDES = (RAY, "random", "round-robin", "resource-pick-kx", "swrr", "least-cost")
"""Ray, and the balancers of `headgate.Executor`."""

STEPS = 30_000
"""Steps of an arithmetic call for each CPU that it requests."""

Demands = list[tuple[int, int]]
"""Of calls: the CPUs that each requests, and its argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNode:
    """A node of the bed: the CPUs that it declares, and the cores that its processes may use."""

    cpus: int
    cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """What to measure; `most_s` is the time after which no further round starts.

    `one_by_one` calls are made one after the other; `in_flight` and `arithmetic` are numbers of
    calls that are in flight together, the latter with demands of one and two CPUs; `balance` is
    the number of calls that compute, of one CPU each, by which the use of nodes is compared. A
    query reads each of its files `passes` times.
    """

    nodes: tuple[LiveNode, ...] = (
        LiveNode(cpus=4, cores=0.7),
        LiveNode(cpus=2, cores=0.4),
        LiveNode(cpus=2, cores=0.2),
    )
    one_by_one: int = 500
    in_flight: tuple[int, ...] = (1000, 10_000)
    arithmetic: tuple[int, ...] = (10, 100, 300, 700)
    balance: int = 1000
    megabytes: float = 100.0
    files: int = 48
    passes: int = 4
    sides: tuple[str, ...] = SIDES
    rounds: int = 3
    seed: int = 1
    most_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsRow:
    """A workload of `count` calls on one side: seconds, and CPU seconds by node, of each round."""

    workload: str
    count: int
    side: str
    seconds: tuple[float, ...]
    cpu_s: tuple[tuple[float, ...], ...]

    @property
    def per_s(self) -> float:
        """Calls per second, the median over rounds."""
        return self.count / median(self.seconds)

    def busy(self, cores: Sequence[float]) -> tuple[float, ...]:
        """Return the part of its cores that each node used, the median over rounds, in percent."""
        rounds = list(zip(self.seconds, self.cpu_s, strict=True))
        return tuple(
            median(100 * cpu_s[node] / (seconds * cores[node]) for seconds, cpu_s in rounds)
            for node in range(len(cores))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveResults:
    """All figures of a run.

    `limited`: whether the nodes had no more than their cores; else the machine's were shared, and
    their sizes were only declared. `wrong` names workloads and sides with wrong results. `load` is
    the number of processes that wanted a core of the machine, before and after the run.
    """

    options: LiveOptions
    limited: bool
    rows: tuple[RoundsRow, ...]
    wrong: tuple[str, ...]
    load: tuple[float, float]
    cores: int

    def row(self, workload: str, count: int | None, side: str) -> RoundsRow | None:
        """Return a row; None if it was not measured. Any count if that is None."""
        found = (r for r in self.rows if (r.workload, r.side) == (workload, side))
        return next((r for r in found if count in (None, r.count)), None)

    def gap(self, row: RoundsRow) -> float:
        """Return by how many points the use of the nodes after the first differs, at most."""
        busy = row.busy([node.cores for node in self.options.nodes])[1:]
        return max(busy, default=0.0) - min(busy, default=0.0)


@dataclass(slots=True)
class Rows:
    """Rows that grow by rounds."""

    _rounds: dict[tuple[str, int, str], list[tuple[float, tuple[float, ...]]]] = field(
        default_factory=dict
    )

    def add(
        self, workload: str, count: int, side: str, seconds: float, cpu_s: Iterable[float]
    ) -> None:
        """Add a round."""
        self._rounds.setdefault((workload, count, side), []).append((seconds, tuple(cpu_s)))

    def all(self) -> tuple[RoundsRow, ...]:
        """Return the rows, in the order in which their first rounds were added."""
        return tuple(
            RoundsRow(
                workload=workload,
                count=count,
                side=side,
                seconds=tuple(seconds for seconds, _ in rounds),
                cpu_s=tuple(cpu_s for _, cpu_s in rounds),
            )
            for (workload, count, side), rounds in self._rounds.items()
        )


# --- the calls -----------------------------------------------------------------------------------


def increased(number: int) -> int:
    """The smallest call."""
    return number + 1


def arithmetic(steps: int) -> int:
    """Return the last of so many numbers of a linear congruential sequence."""
    number = 1
    for _ in range(steps):
        number = (1_103_515_245 * number + 12_345) & 0x7FFFFFFF
    return number


def process_of(steps: int) -> int:
    """Load what the calls need, compute for a while, and return the id of this process."""
    import_module("pyarrow.acero")  # which a join loads
    import_module("headgate.experiments.spillover.live_tables")
    arithmetic(steps)
    return os.getpid()


def demands(count: int) -> Demands:
    """Return calls of `arithmetic`: one after the other of one CPU and of two."""
    return [(1 + n % 2, (1 + n % 2) * STEPS) for n in range(count)]


def in_turn(sides: Sequence[str], round_number: int) -> list[str]:
    """Return the order of the sides in a round: each is the first one at some time."""
    first = round_number % len(sides)
    return [*sides[first:], *sides[:first]]
