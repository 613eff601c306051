"""Nodes that come and go by order, and waits for nodes that were not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.model import Job, Node
from headgate.planning.place.submission_check import fits_no_node
from headgate.protocol import (
    Command,
    Event,
    JobCancelled,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    SlotsWithdrawn,
)


class NodeFigures:
    """An observer: nodes added and removed by order, and how long jobs were infeasible.

    A job is infeasible from its submission on until the nodes that are up could hold each of its
    tasks, or its whole gang, were they idle; one that never becomes feasible counts to the end.
    O(nodes) for each infeasible job when a node joins.
    """

    def __init__(self) -> None:
        self._added = self._removed = 0
        self._wait_s = 0.0
        self._up: dict[str, Node] = {}
        self._ordered: set[str] = set()
        self._infeasible: dict[str, tuple[Job, float]] = {}
        self._known: dict[tuple[object, ...], bool] = {}  # demands that the nodes can hold or not

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        """Take note of a batch of events."""
        del commands
        for event in batch:
            match event:
                case NodeJoined():
                    self._join(event)
                case NodeLost():
                    self._known.clear()
                    self._up.pop(event.node, None)
                    self._removed += event.node in self._ordered
                    self._ordered.discard(event.node)
                case JobSubmitted():
                    if not self._fits(event.job):
                        self._infeasible[event.job.id] = (event.job, event.at)
                case JobCancelled() | SlotsWithdrawn():
                    self._feasible(event.job, event.at)
                case _:
                    pass

    def figures(self, until: float) -> dict[str, Any]:
        """Return the figures as of a time, in seconds of the world's clock."""
        open_s = sum(until - since for _, since in self._infeasible.values())
        return {
            "nodes_added": self._added,
            "nodes_removed": self._removed,
            "infeasible_wait_s": self._wait_s + open_s,
        }

    def _join(self, event: NodeJoined) -> None:
        self._known.clear()
        self._up[event.node.id] = event.node
        if event.order:
            self._added += 1
            self._ordered.add(event.node.id)
        for job, _ in [*self._infeasible.values()]:
            if self._fits(job):
                self._feasible(job.id, event.at)

    def _feasible(self, job: str, at: float) -> None:
        if job in self._infeasible:
            self._wait_s += at - self._infeasible.pop(job)[1]

    def _fits(self, job: Job) -> bool:
        demands = tuple(dict.fromkeys(task.demand for task in job.tasks))
        key = (demands, job.distinct_nodes, job.unit_tasks)
        if key not in self._known:
            self._known[key] = fits_no_node(job, [*self._up.values()]) is None
        return self._known[key]
