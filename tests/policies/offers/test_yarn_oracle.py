"""Rounds of capacity and fair on random states against their definition, one offer at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from tests.cases import cases

from headgate.policies.offers.yarn import Capacity, Fair
from headgate.state import Snapshot, TaskState
from headgate.state.life import HOLDING
from headgate.testing.random_worlds import is_narrow, random_state

Placed = tuple[int, int, int]  # task, node, GPU


class Oracle:
    """Compares all tasks and all free GPUs before each placement, and takes the first pair."""

    def __init__(self, snapshot: Snapshot, *, evenly: bool) -> None:
        self.snapshot, self.evenly = snapshot, evenly
        self.free = {
            (node, gpu): int(snapshot.gpu_memory_bytes_of(node)[gpu])
            for node in snapshot.live_nodes()
            for gpu in snapshot.free_gpus_of(node).tolist()
        }
        tasks = snapshot.tasks
        self.waiting = [
            t
            for t in range(len(tasks.state))
            if tasks.state[t] == TaskState.WAITING and tasks.gpus[t]
        ]
        self.held: Counter[object] = Counter()
        for t in range(len(tasks.state)):
            if tasks.state[t] in HOLDING:
                self.hold(t)
        self.first: dict[object, int] = {}
        for t in self.waiting:
            for owner in self.owners(t):
                self.first.setdefault(owner, tasks.job[t])
        self.levels: Counter[int] = Counter()

    def owners(self, task: int) -> tuple[object, ...]:
        job = self.snapshot.tasks.job[task]
        queue, user = self.snapshot.jobs.queue[job], self.snapshot.jobs.user[job]
        return ("queue", queue), ("user", queue, user), ("job", job)

    def hold(self, task: int) -> None:
        self.held.update(dict.fromkeys(self.owners(task), self.snapshot.tasks.gpus[task]))

    def level(self, task: int, node: int) -> int:
        on: Counter[int] = Counter()
        for shard in set(self.snapshot.reads(task)):
            for holder in self.snapshot.replicas(shard):
                on[holder] += self.snapshot.shards.size_bytes[shard]
        best = [n for n, size_bytes in on.items() if size_bytes and size_bytes == max(on.values())]
        if not best or node in best:
            return 0
        rack = self.snapshot.nodes.rack
        return 1 if rack[node] in [rack[n] for n in best] else 2

    def offers(self) -> Iterator[tuple[object, ...]]:
        for task in self.waiting:
            queue, user, job = self.owners(task)
            row = self.snapshot.tasks.job[task]
            spec = self.snapshot.queue(self.snapshot.jobs.queue[row])
            if spec.max_gpus is not None and self.held[queue] >= spec.max_gpus:
                continue
            for (node, gpu), memory in self.free.items():
                if memory >= self.snapshot.tasks.memory_bytes[task]:
                    yield (
                        *(self.held[queue] / spec.weight, self.first[queue]),
                        *(self.held[user], self.first[user]),
                        -self.snapshot.jobs.priority[row],
                        *(self.held[job] if self.evenly else 0, row),
                        *(self.level(task, node), task),
                        *(memory, node, gpu),
                    )

    def run(self) -> list[Placed]:
        placed: list[Placed] = []
        while (offer := min(self.offers(), default=None)) is not None:
            level, task, _, node, gpu = offer[-5:]
            self.levels[level] += 1
            del self.free[node, gpu]
            self.waiting.remove(task)
            self.hold(task)
            placed.append((task, node, gpu))
        return placed


@pytest.mark.parametrize("policy", [Capacity(), Fair()], ids=lambda p: p.name)
def test_plan_equals_the_oracles(policy: Capacity | Fair) -> None:
    levels: Counter[int] = Counter()
    for seed in range(cases(400)):
        snapshot = random_state(seed, is_narrow).freeze()
        plan = policy.decide(snapshot, Random(0))
        oracle = Oracle(snapshot, evenly=isinstance(policy, Fair))
        expected = oracle.run()
        assert [(p.task, p.node, *p.gpus) for p in plan.starts if p.gpus] == expected, seed
        levels += oracle.levels
    assert min(levels[n] for n in range(3)) > 4  # the states have placements at all levels
