"""A closed loop of small tasks over unlike nodes, to compare balancers: dispatch and queues alone.

So many tasks are in flight at most; each that ends is followed by another one, of a random demand
and length, until all are submitted. A task is placed when it is submitted (`spill`, then the
balancer), and waits in the queue of its node, where the first that fits starts next. `python -m
tests.planning.balancers.dispatch` prints the table of docs/policies/balancers.md.
"""

from __future__ import annotations

import heapq
import sys
from dataclasses import dataclass, field

import numpy as np

from headgate.base.rng import stream
from headgate.planning.balancers import (
    BALANCERS,
    WITHOUT_GPUS,
    Balancer,
    Memo,
    Scores,
    Speeds,
    predicted_finish_s,
    spill,
    wait_work_s,
)

IN_FLIGHT = (10, 30, 100, 300, 700)
TOTAL = np.array([[16, 0, 64], [8, 0, 32], [32, 0, 64]])
"""CPUs, GPUs and GiB of each node."""

SPEED = (1.0, 2.0, 0.75)
DEMANDS = [np.array([cpus, 0, memory]) for cpus in (1, 2, 4) for memory in (1, 2, 8)]


@dataclass(slots=True)
class Loop:
    """One run of the loop. `speed` and `total` are those of the nodes."""

    balancer: Balancer
    in_flight: int
    total: np.ndarray = field(default_factory=lambda: TOTAL)
    speed: tuple[float, ...] = SPEED
    seed: int = 0
    speeds: Speeds = field(default_factory=Speeds)

    def throughput(self, tasks: int) -> float:
        """Return tasks per second, until the last one of so many has finished.

        Computing times are learnt, and remain known to a later call.
        """
        draws, rng = stream(self.seed, "tasks"), stream(self.seed, "balancer")
        nodes, memo, speeds = range(len(self.total)), Memo(), self.speeds
        free, load = self.total.copy(), np.zeros(self.total.shape, np.int64)
        ahead = np.zeros(self.total.shape)  # amounts x seconds that are expected to be left
        queues: list[list[tuple[int, float, np.ndarray]]] = [[] for _ in nodes]
        ends: list[tuple[float, int, int, int, float, np.ndarray]] = []
        now, number = 0.0, 0

        def submit() -> None:
            kind, work_s = draws.randrange(len(DEMANDS)), draws.uniform(0.5, 1.5)
            demand = DEMANDS[kind]
            seconds = np.nan_to_num(speeds.seconds(kind, nodes, nodes), nan=1.0)
            finish_s = predicted_finish_s(
                work_s=seconds,
                waits_s=wait_work_s(self.total, ahead),
                has_room=(free >= demand).all(axis=1),
                speed=np.ones(len(nodes)),
                read_s=np.zeros(len(nodes)),
            )
            scores = Scores.of(
                self.total, load, WITHOUT_GPUS, available=free, finish_s=finish_s, step_s=seconds
            )
            node = self.balancer.pick(spill(self.total, free, demand), scores, rng, memo)
            load[node] += demand
            ahead[node] += demand * seconds[node]
            queues[node].append((kind, work_s, demand * seconds[node]))
            start(node)

        def start(node: int) -> None:
            nonlocal number
            left = []
            for kind, work_s, expected in queues[node]:
                if (free[node] >= DEMANDS[kind]).all():
                    free[node] -= DEMANDS[kind]
                    seconds, number = work_s / self.speed[node], number + 1
                    ahead[node] -= expected / 2  # on average
                    heapq.heappush(ends, (now + seconds, number, node, kind, seconds, expected / 2))
                else:
                    left.append((kind, work_s, expected))
            queues[node] = left

        for _ in range(min(self.in_flight, tasks)):
            submit()
        for later in range(tasks):
            now, _, node, kind, seconds, expected = heapq.heappop(ends)
            free[node] += DEMANDS[kind]
            load[node] -= DEMANDS[kind]
            ahead[node] -= expected
            speeds.record(kind, node, node, seconds)
            start(node)
            if later + self.in_flight < tasks:
                submit()
        return tasks / now


def rate(balancer: Balancer, in_flight: int, *, tasks: int, seeds: int) -> float:
    """Return the mean tasks per second, after 200 tasks that were run before, 10 in flight."""
    rates = []
    for seed in range(seeds):
        before = Loop(balancer, 10, seed=seeds + seed)
        before.throughput(200)
        rates.append(Loop(balancer, in_flight, seed=seed, speeds=before.speeds).throughput(tasks))
    return sum(rates) / seeds


def table(tasks: int, seeds: int) -> dict[str, list[float]]:
    """Return tasks per second by balancer, for each number in flight."""
    return {
        name: [rate(each, count, tasks=tasks, seeds=seeds) for count in IN_FLIGHT]
        for name, each in BALANCERS.items()
    }


if __name__ == "__main__":
    for balancer, rates in table(1000, 3).items():
        sys.stdout.write(f"| `{balancer}` | " + " | ".join(f"{r:.1f}" for r in rates) + " |\n")
