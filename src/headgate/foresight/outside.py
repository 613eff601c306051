"""Why a job waits for what processes outside Headgate use of nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headgate.model import CPUS, MEMORY
from headgate.planning.place.first_fit import first_fit
from headgate.protocol import Reason
from headgate.protocol.node_reasons import NodeBusyOutside
from headgate.protocol.reasons import GPU_MEMORY, NothingFits
from headgate.state import Snapshot
from headgate.state.ledger import Ledger
from headgate.state.tables import GPU_GONE
from headgate.state.view import View


def is_used_outside(view: View) -> bool:
    """Return whether processes outside Headgate use any of a node; O(nodes + GPUs)."""
    return bool(view.nodes.outside.array().any() or view.gpus.outside_bytes.array().any())


class BusyNodes:
    """The nodes of a snapshot that processes outside Headgate use, and what would fit without."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Look at a snapshot; O(nodes + GPUs)."""
        self._snapshot = snapshot
        self._now, self._without = Ledger.tentative(snapshot), Ledger.tentative(snapshot)
        self._without.forget_outside()
        some = np.flatnonzero(snapshot.nodes.outside.array().any(axis=1))
        of_gpus = np.flatnonzero(snapshot.gpus.outside_bytes.array())
        self._busy = np.union1d(some, snapshot.gpus.node.take(of_gpus)).tolist()

    def reason(self, job: int, task: int | None, chosen: Reason) -> NodeBusyOutside | None:
        """Return that a job, or a task of it (row), would fit but for such use, if so.

        `chosen` is what it waits for otherwise: for a node that can hold it, such use may be all
        that lies between. O(its waiting tasks + nodes).
        """
        waiting = self._snapshot.waiting_of(job).tolist()
        if not waiting:
            return None
        spec, gang = self._snapshot.job(job), self._snapshot.jobs.gang[job]
        tasks = waiting if gang else [waiting[0] if task is None else task]
        apart = spec.gang and spec.distinct_nodes
        demand = self._snapshot.tasks.demand[tasks[0]]
        if self._fit(self._now, tasks, apart=apart):
            return None
        if self._fit(self._without, tasks, apart=apart):
            found = [node for node in self._busy if self._is_freed(demand, node)]
        elif isinstance(chosen, NothingFits):
            found = [node for node in self._busy if self._could_hold(demand, node)]
        else:
            return None
        return self._named(demand, found or self._busy)

    def _fit(self, ledger: Ledger, tasks: Sequence[int], *, apart: bool) -> bool:
        """Return whether first fit places all tasks in a ledger, `apart` on a node each."""
        demands = [self._snapshot.tasks.demand[task] for task in tasks]
        with ledger.trial():
            return first_fit(ledger, tasks, demands, self._snapshot.live_nodes(), apart=apart)

    def _is_freed(self, demand: int, node: int) -> bool:
        """Return whether a run of a demand fits a node without that use, and not with it."""
        fits = self._without.best_gpus(demand, node) is not None
        return fits and self._now.best_gpus(demand, node) is None

    def _could_hold(self, demand: int, node: int) -> bool:
        """Return whether a node that is idle, and not used by others, holds a run of a demand."""
        if self._without.exceeds_capacity(demand, node):
            return False
        first, nodes = self._snapshot.nodes.first_gpu[node], self._snapshot.nodes
        end = first + nodes.gpu_count[node]
        up = self._snapshot.gpus.task.span(first, end) != GPU_GONE
        suits = self._without.suits(demand, first, end) & up
        return int(suits.sum()) >= self._snapshot.names.demands[demand].gpus

    def _named(self, demand: int, nodes: Sequence[int]) -> NodeBusyOutside:
        """Return the reason with the first of some nodes, and what of it is used."""
        node, view = nodes[0], self._snapshot
        name, others = view.node(node).id, len(nodes) - 1
        for kind, amount in view.names.needs[demand]:
            used = view.nodes.outside.at(node, kind)
            if used and self._now.nodes.free.at(node, kind) < amount:
                resource = view.names.resources[kind]
                return NodeBusyOutside(node=name, resource=resource, used=used, others=others)
        first = view.nodes.first_gpu[node]
        of_gpus = view.gpus.outside_bytes.span(first, first + view.nodes.gpu_count[node])
        if not of_gpus.any():
            kind = MEMORY if view.nodes.outside.at(node, MEMORY) else CPUS
            used = view.nodes.outside.at(node, kind)
            resource = view.names.resources[kind]
            return NodeBusyOutside(node=name, resource=resource, used=used, others=others)
        gpu = int(of_gpus.argmax())
        return NodeBusyOutside(
            node=name,
            resource=GPU_MEMORY,
            used=int(of_gpus[gpu]),
            gpu=gpu,
            pid=view.gpus.outside_pid[first + gpu],
            others=others,
        )
