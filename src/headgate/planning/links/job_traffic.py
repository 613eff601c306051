"""What jobs send over the links of a cluster, from where their tasks run."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from headgate.base.arrays import Ints
from headgate.model import WHOLE, Communication, Job, Node, Pattern, Task
from headgate.planning.links.traffic import BestSets, Traffic, traffic_of
from headgate.planning.topology.fabric import Fabric
from headgate.planning.units.fit import runs_that_fit
from headgate.state import Snapshot
from headgate.state.ledger import runs_in

Places = Iterable[tuple[str, tuple[int, ...]]]
"""Of some tasks: the node of each, and the indices of its GPUs."""

_MOST_WINDOWS = 8


def communicates(job: Job) -> bool:
    """Return whether a job has declared messages that may use links."""
    of = job.communication
    return of is not None and of.pattern is not Pattern.NONE and of.bytes_per_step > 0


def _capacity(node: Node) -> tuple[object, ...]:
    return node.gpus, node.cpus, node.memory_bytes, node.custom, node.labels


class JobTraffic:
    """Traffic of jobs in the fabric of one snapshot, which holds while its nodes stay the same.

    The ranks of tasks are their GPUs, or, of tasks without any, the tasks; each is on the leaf of
    its GPU, or of its node where the topology has no GPUs or the task needs none.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.fabric = Fabric.of(snapshot)
        self.topology = self.fabric.topology
        self._rows = {snapshot.node(row).id: row for row in range(len(snapshot.nodes.spec))}
        self._first_gpu = snapshot.nodes.first_gpu.array()
        specs: list[Node] = snapshot.nodes.spec.array().tolist()
        self._kinds = [*{_capacity(n): n for n in specs}.values()]
        self._best = BestSets(self.topology)
        self._known: dict[tuple[Communication, int, Task, bool], float] = {}

    def leaves(self, places: Places) -> Ints:
        """Return the leaf of each rank."""
        of_rank: list[int] = []
        for node, gpus in places:
            row = self._rows[node]
            if gpus:
                first = int(self._first_gpu[row])
                of_rank += [int(self.fabric.gpu_leaf[first + gpu]) for gpu in gpus]
            else:
                of_rank.append(int(self.fabric.first_leaf[row]))
        return np.array(of_rank, np.int64)

    def traffic(self, communication: Communication, places: Places) -> Traffic:
        """Return what a step of tasks that communicate sends from these places."""
        return traffic_of(self.topology, self.leaves(places), communication)

    def diameter(self, places: Places) -> int:
        """Return the hops between the two ranks that are farthest apart."""
        return self.topology.diameter(np.unique(self.leaves(places)))

    def best_step_s(self, job: Job, tasks: int) -> float:
        """Return the seconds of a step of a job's first tasks in their best possible set, alone.

        Infinite where there is none. See `headgate.planning.links.traffic.BestSets`; where each
        task is on another node, sets of adjacent nodes.
        """
        task, communication = job.tasks[0], job.communication
        assert communication is not None, "asked of jobs that communicate"
        key = (communication, tasks, task, job.distinct_nodes)
        if key not in self._known:
            self._known[key] = self._least_step_s(job, communication, tasks, task)
        return self._known[key]

    def _least_step_s(
        self, job: Job, communication: Communication, tasks: int, task: Task
    ) -> float:
        demand, ranks = task.demand, max(1, task.demand.gpus)
        on_gpus = bool(demand.gpus) and bool((self.fabric.leaf_gpu >= 0).any())
        if job.distinct_nodes:
            within = np.arange(ranks) if on_gpus else np.zeros(ranks, np.int64)
            return self._least_apart_s(communication, tasks, within)
        if on_gpus:
            return self._best.step_s(communication, tasks * ranks, runs_in(WHOLE, demand.gpu_milli))
        fitting = max((runs_that_fit(node, demand) for node in self._kinds), default=0)
        return self._best.step_s(communication, tasks * ranks, max(1, fitting) * ranks)

    def _least_apart_s(self, communication: Communication, tasks: int, within: Ints) -> float:
        """Return the least seconds of a step of tasks on as many nodes.

        `within` are the leaves of each task's ranks, counted from the first leaf of its node. Of
        sets of nodes that follow each other in the topology, those of least diameter and widest
        links are tried.
        """
        fabric, topology = self.fabric, self.topology
        multi_gpu = fabric.end_leaf - fabric.first_leaf > within.max()
        first = np.sort(fabric.first_leaf[(fabric.first_leaf >= 0) & multi_gpu])
        windows = len(first) - tasks + 1
        if windows < 1:
            return math.inf
        start = np.arange(windows)
        hops = topology.hops(first[start], first[start + tasks - 1])
        near = start[hops == hops.min()][: 64 * _MOST_WINDOWS]
        sets = [first[begin : begin + tasks] for begin in near.tolist()]
        sets.sort(key=lambda nodes: -topology.narrowest(nodes))
        leaves = [(nodes[:, None] + within).ravel() for nodes in sets[:_MOST_WINDOWS]]
        sent = (traffic_of(topology, ranks, communication) for ranks in leaves)
        return min(traffic.step_alone_s(topology.capacity) for traffic in sent)
