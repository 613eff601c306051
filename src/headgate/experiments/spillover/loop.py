"""Tasks that queue at nodes: a simulation of dispatch and queues alone.

Tasks are submitted on the first node; so many are in flight at most, and each that ends is followed
by another one until all are submitted. A task is placed when it is submitted (`spill`, then the
balancer), for good: it waits in the queue of its node, where the first task that fits starts next.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.base.rng import Random
from headgate.planning.balancers import (
    WITHOUT_GPUS,
    Balancer,
    LeastCost,
    Memo,
    Scores,
    Speeds,
    predicted_finish_s,
    spill,
    wait_work_s,
)

_UNKNOWN_S = 1.0
"""The computing time that is assumed of a kind without any finished task."""

_AT_ONE_TIME = 50
"""How many tasks for which no node has room are placed by one view of the nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopCluster:
    """Nodes: CPUs, GPUs and GiB of each, and by how much it divides computing times."""

    name: str
    total: tuple[tuple[int, int, int], ...]
    speed: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LoopTask:
    """A task: its kind (a place in the list of demands), its time to compute and to read.

    `work_s` is at a speed of 1; `read_s` by node, empty without data.
    """

    kind: int
    work_s: float
    read_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOutcome:
    """What a run of the loop took; `busy_s` is CPU time by node, `placed` the tasks by node."""

    makespan_s: float
    busy_s: tuple[float, ...]
    placed: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class Loop:
    """One run. Computing times are recorded in `speeds`, which may know earlier ones."""

    cluster: LoopCluster
    demands: Sequence[tuple[int, int, int]]
    balancer: Balancer
    rng: Random
    speeds: Speeds = field(default_factory=Speeds)

    _now: float = 0.0
    _started: int = 0
    _arrived: int = 0
    _memo: Memo = field(default_factory=dict)
    _total: Ints = field(init=False)
    _free: Ints = field(init=False)
    _load: Ints = field(init=False)
    _ahead: Floats = field(init=False)  # amounts x seconds that are expected to be left
    _vectors: list[Ints] = field(init=False)
    _queues: list[list[deque[tuple[int, LoopTask, float]]]] = field(init=False)  # by node and kind
    _ends: list[tuple[float, int, int, LoopTask, float, float]] = field(default_factory=list)
    _busy_s: list[float] = field(init=False)
    _placed: list[int] = field(init=False)

    def __post_init__(self) -> None:
        """Start with idle nodes."""
        nodes = len(self.cluster.total)
        self._total = np.array(self.cluster.total, np.int64)
        self._free, self._load = self._total.copy(), np.zeros_like(self._total)
        self._ahead = np.zeros(self._total.shape)
        self._vectors = [np.array(demand, np.int64) for demand in self.demands]
        self._queues = [[deque() for _ in self.demands] for _ in range(nodes)]
        self._busy_s, self._placed = [0.0] * nodes, [0] * nodes

    def run(self, tasks: Sequence[LoopTask], in_flight: int) -> LoopOutcome:
        """Run all tasks. O(tasks x (nodes + kinds))."""
        self._submit(tasks[:in_flight])
        following = in_flight
        for _ in tasks:
            self._end_next()
            self._submit(tasks[following : following + 1])
            following += 1
        return LoopOutcome(
            makespan_s=self._now, busy_s=tuple(self._busy_s), placed=tuple(self._placed)
        )

    def _submit(self, tasks: Sequence[LoopTask]) -> None:
        begin = 0
        while begin < len(tasks):
            first = tasks[begin]
            alike = 1
            if not self._room(first.kind).any() and not first.read_s:
                most = min(len(tasks), begin + _AT_ONE_TIME)
                while begin + alike < most and tasks[begin + alike].kind == first.kind:
                    alike += 1
            self._place(tasks[begin : begin + alike])
            begin += alike

    def _room(self, kind: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        room: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.all(
            self._free >= self._vectors[kind], axis=1
        )
        return room

    def _place(self, tasks: Sequence[LoopTask]) -> None:
        """Place tasks of one kind by one view of the nodes, and queue them there."""
        kind, demand = tasks[0].kind, self._vectors[tasks[0].kind]
        expected_s = np.full(len(self._total), _UNKNOWN_S)
        finish_s = step_s = None
        local: int | None = 0
        if isinstance(self.balancer, LeastCost):
            local = None  # the local node has no other advantage than its queue and its data
            nodes = range(len(self._total))
            expected_s = np.nan_to_num(self.speeds.seconds(kind, nodes, nodes), nan=_UNKNOWN_S)
            finish_s = predicted_finish_s(
                work_s=expected_s,
                waits_s=wait_work_s(self._total, self._ahead),
                has_room=self._room(kind),
                speed=np.ones(len(nodes)),
                read_s=np.array(tasks[0].read_s or [0.0] * len(nodes)),
            )
            step_s = wait_work_s(self._total, demand * expected_s[:, None])
        scores = Scores.of(
            self._total,
            self._load,
            WITHOUT_GPUS,
            available=self._free,
            finish_s=finish_s,
            step_s=step_s,
        )
        candidates = spill(self._total, self._free, demand, local)
        picks = self.balancer.pick_many(candidates, scores, len(tasks), self.rng, self._memo)
        for task, node in zip(tasks, picks.tolist(), strict=True):
            held_s = float(expected_s[node]) + (task.read_s[node] if task.read_s else 0.0)
            self._load[node] += demand
            self._ahead[node] += demand * held_s
            self._arrived += 1
            self._placed[node] += 1
            self._queues[node][kind].append((self._arrived, task, held_s))
        for node in dict.fromkeys(picks.tolist()):
            self._start(node)

    def _start(self, node: int) -> None:
        """Start tasks of the node's queue: each time the first one that fits."""
        free, queues = self._free[node], self._queues[node]
        while True:
            fitting = [
                (queue[0][0], kind)
                for kind, queue in enumerate(queues)
                if queue and (free >= self._vectors[kind]).all()
            ]
            if not fitting:
                return
            _, kind = min(fitting)
            _, task, held_s = queues[kind].popleft()
            demand = self._vectors[kind]
            free -= demand
            self._ahead[node] -= demand * (held_s / 2)  # on average so much of it is left
            compute_s = task.work_s / self.cluster.speed[node]
            seconds = compute_s + (task.read_s[node] if task.read_s else 0.0)
            self._busy_s[node] += compute_s * int(demand[0])
            self._started += 1
            end = (self._now + seconds, self._started, node, task, compute_s, held_s / 2)
            heapq.heappush(self._ends, end)

    def _end_next(self) -> None:
        self._now, _, node, task, compute_s, left_s = heapq.heappop(self._ends)
        demand = self._vectors[task.kind]
        self._free[node] += demand
        self._load[node] -= demand
        self._ahead[node] -= demand * left_s
        if isinstance(self.balancer, LeastCost):
            self.speeds.record(task.kind, node, node, compute_s)
        self._start(node)
