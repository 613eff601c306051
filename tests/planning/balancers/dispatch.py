"""A closed loop of small tasks over unlike nodes, to compare balancers: dispatch and queues alone.

So many tasks are in flight at any time; each that ends is followed by another one, of a random
demand and length. A task is placed when it is submitted (`spill`, then the balancer), and waits in
the queue of its node, where the first that fits starts next. `python -m
tests.planning.balancers.dispatch` prints the table of docs/policies/balancers.md.
"""

from __future__ import annotations

import heapq
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

SPEED = (1.0, 2.0, 0.5)
DEMANDS = [np.array([cpus, 0, memory]) for cpus in (1, 2, 4) for memory in (1, 2, 8)]


@dataclass(slots=True)
class Loop:
    """One run of the loop. `speed` and `total` are those of the nodes."""

    balancer: Balancer
    in_flight: int
    total: np.ndarray = field(default_factory=lambda: TOTAL)
    speed: tuple[float, ...] = SPEED
    seed: int = 0

    def throughput(self, tasks: int) -> float:
        """Return tasks finished per second, the first fifth left out."""
        draws, rng = stream(self.seed, "tasks"), stream(self.seed, "balancer")
        nodes, memo, speeds = range(len(self.total)), Memo(), Speeds()
        free, load = self.total.copy(), np.zeros(self.total.shape, np.int64)
        ahead = np.zeros(self.total.shape)  # amounts x seconds that are expected to be left
        queues: list[list[tuple[int, float, np.ndarray]]] = [[] for _ in nodes]
        ends: list[tuple[float, int, int, int, float, np.ndarray]] = []
        now, began_at, done, number = 0.0, 0.0, 0, 0

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
                    heapq.heappush(
                        ends, (now + seconds, number, node, kind, seconds, expected / 2)
                    )
                else:
                    left.append((kind, work_s, expected))
            queues[node] = left

        for _ in range(self.in_flight):
            submit()
        while done < tasks:
            now, _, node, kind, seconds, expected = heapq.heappop(ends)
            free[node] += DEMANDS[kind]
            load[node] -= DEMANDS[kind]
            ahead[node] -= expected
            speeds.record(kind, node, node, seconds)
            done += 1
            if done == tasks // 5:
                began_at = now
            start(node)
            submit()
        return (tasks - tasks // 5) / (now - began_at)


def table(tasks: int, seeds: int) -> dict[str, list[float]]:
    """Return tasks per second by balancer, for each number in flight."""
    return {
        name: [
            sum(Loop(each, count, seed=seed).throughput(tasks) for seed in range(seeds)) / seeds
            for count in IN_FLIGHT
        ]
        for name, each in BALANCERS.items()
    }


if __name__ == "__main__":
    for balancer, rates in table(4000, 3).items():
        print(f"| `{balancer}` | " + " | ".join(f"{rate:.1f}" for rate in rates) + " |")
