"""Starts on GPUs, checked for the rest of their demands: CPUs, memory, custom kinds.

Policies that allocate single GPUs consider GPUs alone when they choose. A chosen start is kept if
the rest of the task's demand also fits its node; otherwise the task starts on another node that has
room, so that it does not wait for one node without limit, or waits with the reason. The GPUs of
those that wait are not left idle: as many other tasks start, in order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from headgate.planning.place.why import no_room
from headgate.planning.units.reading import read_s_by_node
from headgate.protocol import NO_STEPS, Reason, Refusal, Steps
from headgate.state import Scratch


class KeptRoom(Protocol):
    """What is kept free for units with reservations."""

    def leaves_room(self, task: int, node: int) -> bool:
        """Return whether a task leaves a node what is kept of it, GPUs aside."""
        ...

    def start(self, task: int) -> bool:
        """Place a task on GPUs, and beside amounts, that nothing needs while it runs."""
        ...


def feasible_starts(
    scratch: Scratch,
    steps: Steps,
    others: Iterable[int],
    *,
    place: bool = False,
    kept: KeptRoom | None = None,
) -> tuple[Steps, list[Refusal]]:
    """Return the starts whose demands fit their nodes, and the refusals of tasks that fit nowhere.

    Each start is a group of its own. If a task on GPUs demands anything else, or with `place`, all
    are placed in the scratch, and none is returned. `others` are tasks that were not chosen. With
    `kept`, all leave free what units with reservations need.
    O(starts); O(demands) if no task on GPUs demands anything else.
    """
    names = scratch.snapshot.names
    place = place or scratch.quotas.beyond_gpus
    if not place and not any(
        demand.gpus and needs for demand, needs in zip(names.demands, names.needs, strict=False)
    ):
        return steps, []
    lacking = [
        task
        for task, node, gpus in steps.starts
        if (kept is not None and not kept.leaves_room(task, node))
        or not scratch.place(task, node, gpus)
    ]
    return NO_STEPS, place_elsewhere(scratch, lacking, others, kept)


def place_elsewhere(
    scratch: Scratch, tasks: Iterable[int], others: Iterable[int], kept: KeptRoom | None = None
) -> list[Refusal]:
    """Place each task on the node with room where it reads fastest; return why some of them wait.

    For each that waits, one of the `others` is placed so, in their order, within ceilings. There is
    one refusal per demand and queue, or user of it. O(nodes x log + GPUs of nodes tried) for each
    task placed.
    """
    reasons: dict[_Kind, Reason] = {}  # resources are only taken, so it fits no node later
    jobs: dict[_Kind, dict[int, None]] = {}
    refused = 0
    for task in tasks:
        kind = _kind(scratch, task)
        if kind not in reasons:
            if kept.start(task) if kept is not None else _place(scratch, task, kind[0]):
                continue
            reasons[kind] = no_room(scratch, task)
        jobs.setdefault(kind, {})[scratch.snapshot.tasks.job[task]] = None
        refused += 1
    if refused:
        _place_others(scratch, others, refused, {*reasons})
    return [Refusal(reason=reasons[kind], jobs=tuple(rows)) for kind, rows in jobs.items()]


_Kind = tuple[int, int]
"""The demand of a task and the row of its job's quotas: tasks alike fit alike."""


def _kind(scratch: Scratch, task: int) -> _Kind:
    snapshot = scratch.snapshot
    return snapshot.tasks.demand[task], scratch.quotas.row_of(snapshot.tasks.job[task])


def _place_others(scratch: Scratch, tasks: Iterable[int], most: int, failed: set[_Kind]) -> None:
    """Place at most `most` tasks, none of a kind that has `failed` to fit."""
    for task in tasks:
        kind = _kind(scratch, task)
        if kind in failed:
            continue
        if not _place(scratch, task, kind[0]):
            failed.add(kind)
            continue
        most -= 1
        if not most:
            return


def _place(scratch: Scratch, task: int, demand: int) -> bool:
    """Place a task on the cheapest node that it fits; return whether there is one."""
    snapshot, ledger = scratch.snapshot, scratch.ledger
    enough_gpus = ledger.nodes.free_gpus.array() >= snapshot.tasks.gpus[task]
    nodes = np.flatnonzero(ledger.nodes_with_room(demand) & enough_gpus)
    if not len(nodes):
        return False
    rack, size_bytes = snapshot.nodes.rack.array(), snapshot.shards.size_bytes.array()
    read_s = read_s_by_node(snapshot, task, rack.astype(np.int64), size_bytes)[nodes]
    order: list[int] = nodes[np.argsort(read_s, kind="stable")].tolist()
    return any(scratch.place(task, node) for node in order)
