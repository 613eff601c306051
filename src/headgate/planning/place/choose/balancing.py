"""Balancers on a cluster: which node of those with room a task starts on.

Draws are from a stream of the state's version and the task, so a round that is repeated, to explain
it, draws the same. What a balancer remembers is in the memo of the policy by node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.base.rng import Random, stream
from headgate.model import CPUS, MEMORY, UNLIMITED, WHOLE
from headgate.planning.balancers import WITH_GPUS, WITHOUT_GPUS, Balancer, Scores, Speeds
from headgate.planning.place.choose.compact import Compact, soonest_first
from headgate.planning.place.timetable import Timetable
from headgate.state import Scratch, Snapshot, TaskState
from headgate.state.tables import GPU_GONE


class Balancing:
    """Picks nodes for the tasks of one round."""

    def __init__(self, scratch: Scratch, balancer: Balancer) -> None:
        """Read the total resources of nodes; O(nodes + GPUs)."""
        snapshot = scratch.snapshot
        self._scratch, self._snapshot, self._balancer = scratch, snapshot, balancer
        self._gpu_node = snapshot.gpus.node.array().astype(np.int64)
        up = snapshot.gpus.task.array() != GPU_GONE
        memory = snapshot.nodes.total.kind(MEMORY)
        self._counts_memory = memory < UNLIMITED
        self._total = self._amounts(snapshot.nodes.total.kind(CPUS), up * WHOLE, memory)

    def pick(self, task: int, candidates: Ints) -> int:
        """Return the node (row) for a task, of some with room for it; O(nodes + GPUs)."""
        ledger, name = self._scratch.ledger, self._balancer.name
        free_milli = np.where(ledger.open_gpus(), ledger.gpus.free_milli.array(), 0)
        free = ledger.nodes.free
        cpus, memory = (np.maximum(free.kind(kind), 0) for kind in (CPUS, MEMORY))
        available = self._amounts(cpus, free_milli, memory)
        on_gpus = self._snapshot.demand(task).gpus > 0
        finish_s = self._finish_s(task, candidates) if name == "least-cost" else None
        scores = Scores.of(
            self._total,
            self._total - available,
            WITH_GPUS if on_gpus else WITHOUT_GPUS,
            available=available,
            finish_s=finish_s,
            step_s=finish_s,
        )
        if not self._balancer.lasts:
            return self._balancer.pick(candidates, scores, self._rng(task), {})
        memo = {name: self._scratch.node_memo(name)}
        node = self._balancer.pick(candidates, scores, self._rng(task), memo)
        self._scratch.write_node_memo(name, memo[name])
        return node

    def _rng(self, task: int) -> Random:
        return stream(self._snapshot.version, self._balancer.name, task)

    def _amounts(self, cpus: Ints, gpus_milli: Ints, memory: Ints) -> Floats:
        """Return amounts `[nodes, 3]`; without memory where that is not limited."""
        gpus = np.bincount(self._gpu_node, gpus_milli, minlength=len(cpus))
        return np.stack([cpus, gpus, np.where(self._counts_memory, memory, 0)], axis=1)

    def _finish_s(self, task: int, candidates: Ints) -> Floats:
        """Return when a task would finish on candidates that have room, `[nodes]`; else inf.

        Without a run of its kind that ended, only the time to read its data counts.
        """
        kind, nodes = self._snapshot.tasks.runtime_class[task], candidates.tolist()
        computes_s = self._speeds.seconds(kind, nodes, [self._classes[node] for node in nodes])
        reads_s = [self._snapshot.expected_read_s(task, node) for node in nodes]
        finish_s = np.full(len(self._total), math.inf)
        finish_s[candidates] = np.nan_to_num(computes_s) + np.array(reads_s)
        return finish_s

    @cached_property
    def _classes(self) -> Sequence[tuple[int, int]]:
        nodes = self._snapshot.nodes
        cpus, gpus = nodes.total.kind(CPUS).tolist(), nodes.gpu_count.array().tolist()
        return [*zip(cpus, gpus, strict=True)]

    @cached_property
    def _speeds(self) -> Speeds:
        return node_speeds(self._snapshot, self._classes)


def node_speeds(snapshot: Snapshot, classes: Sequence[tuple[int, int]]) -> Speeds:
    """Return the computing times of the finished tasks of a snapshot, by kind and node (rows).

    All of a kind count alike. `classes` are those of the nodes. O(tasks).
    """
    tasks, speeds = snapshot.tasks, Speeds(fading=1.0)
    done = np.flatnonzero(tasks.state.array() == int(TaskState.FINISHED))
    computed_s = tasks.ended_at.take(done) - tasks.started_at.take(done) - tasks.read_s.take(done)
    whole = np.isfinite(computed_s) & (tasks.progress_s.take(done) == 0)
    done, computed_s = done[whole], np.maximum(computed_s[whole], 0.001)
    kind = tasks.runtime_class.take(done).astype(np.int64)
    pair = kind * len(classes) + tasks.node.take(done)
    pairs, group = np.unique(pair, return_inverse=True)
    count = np.bincount(group, minlength=len(pairs))
    mean_s = np.exp(np.bincount(group, np.log(computed_s), minlength=len(pairs)) / count)
    for each, seconds, runs in zip(pairs.tolist(), mean_s.tolist(), count.tolist(), strict=True):
        of_kind, node = divmod(each, len(classes))
        speeds.record(of_kind, node, classes[node], seconds, runs)
    return speeds


class ByBalancer:
    """Each task starts on the node that a balancer picks of those with room.

    Reservations are those of `Compact`. A start costs O(GPUs) for each task.
    """

    claim_order = staticmethod(soonest_first)
    takes_first_fit = True

    def __init__(self, table: Timetable, balancer: Balancer) -> None:
        """Pick by a balancer."""
        self._table, self._compact = table, Compact(table)
        self.gpus_at = self._compact.gpus_at
        self._balancing = Balancing(table.scratch, balancer)

    def place(
        self, demand: int, tasks: list[int], run_s: float, used: set[int], *, distinct: bool
    ) -> bool:
        """Place tasks of one demand; return whether all are placed."""
        used, table = set(used), self._table
        for task in tasks:
            room = table.room_now(demand, 1, run_s, used, distinct=distinct)
            candidates = np.flatnonzero(room)
            if not len(candidates):
                return False
            node = self._balancing.pick(task, candidates)
            gpus = next(self._compact.gpus(demand, node, run_s, 1))
            placed = table.scratch.place(task, node, gpus)
            assert placed, "a candidate has room"
            if distinct:
                used.add(node)
        return True
