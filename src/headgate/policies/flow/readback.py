"""Stage 4 of a round: from an optimal flow to the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from headgate.base.arrays import Ints
from headgate.base.order import in_order, nth_of_equals
from headgate.planning.moves.migration import Migration
from headgate.planning.place.feasible_starts import feasible_starts
from headgate.planning.shares.standing import Standing
from headgate.policies.flow.eligible import Round
from headgate.policies.flow.placed import Placed
from headgate.policies.flow.refusals import refusals
from headgate.policies.flow.solve import Flow
from headgate.protocol import NO_STEPS, Lazy, Memo, OnDemand, Plan, Refusal, Steps
from headgate.state import Scratch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """A policy's choice from an optimal flow: the tasks that start now, and the rest of its plan.

    `wait_price` is the price of waiting of each job, `[jobs]`, in microseconds, for refusals.
    `backfilled` are all starts if some of them are on the scratch already.
    """

    starts: Placed
    wait_price: Ints
    backfilled: Placed | None = None
    stops: Steps = NO_STEPS
    memo: Memo = field(default_factory=dict)
    again_at: float | None = None


def flow_placements(round_: Round, flow: Flow) -> Placed:
    """Return the tasks that the flow places, as indices into `Standing.task`, and their nodes.

    Of a task group, the first tasks are placed: they are equal to the flow.
    """
    placed, group = flow.placed(round_.tasks.row), round_.tasks.task_group
    if not len(placed.task):
        return placed
    group = group - group.min()
    count = np.bincount(group)
    several = np.flatnonzero(count[group[placed.task]] > 1)
    if not len(several):
        return placed
    wanted = np.zeros(len(count), bool)
    wanted[group[placed.task[several]]] = True
    members = np.flatnonzero(wanted[group])
    members = members[in_order(group[members])]
    several = several[in_order(group[placed.task[several]])]
    sought = group[placed.task[several]]
    task = placed.task.copy()
    task[several] = members[np.searchsorted(group[members], sought) + nth_of_equals(sought)]
    order = np.argsort(task)
    return replace(placed, task=task).only(order)


def plan(
    round_: Round,
    choice: Choice,
    scratch: Scratch,
    waiting_for_cpus: Iterable[Refusal],
    *,
    fill: bool,
) -> Plan:
    """Return the plan of a round: tentative placements of `scratch`, and the policy's choice.

    A chosen start is kept if the rest of the task's demand also fits the node; to `fill`, another
    task gets the GPU of one that fits nowhere. Then multi-GPU units that are left get what these
    starts leave.
    """
    units = round_.units
    before = len(scratch.starts)
    others = _others(round_, choice) if fill else ()
    steps = _steps(round_.standing, choice.starts)
    starts, no_room = feasible_starts(scratch, steps, others, place=bool(units))
    started = np.array([start.task for start in scratch.starts[before:]], np.int64)
    units.place_rest()
    # A task that moves must not be one that is stopped for another.
    moved = Migration() if choice.stops else units.migration()

    def why() -> Iterator[Refusal]:
        yield from waiting_for_cpus
        yield from no_room
        yield from units.refusals()
        yield from refusals(round_, choice.starts, choice.wait_price, choice.backfilled, started)

    return Plan(
        steps=scratch.steps() + starts + choice.stops + moved.steps,
        memo={**choice.memo, **moved.memo},
        node_memo=scratch.node_memos(),
        again_at=choice.again_at,
        refusals=OnDemand(why),
        reservations=Lazy(units.planned),
    )


def _others(round_: Round, choice: Choice) -> Iterator[int]:
    """Yield the tasks that were not chosen; none where GPUs are reserved."""
    if next(iter(round_.units.planned()), None) is None:
        chosen = {*choice.starts.task.tolist()}
        yield from (t for n, t in enumerate(round_.standing.task.tolist()) if n not in chosen)


def _steps(standing: Standing, placed: Placed) -> Steps:
    """Assign each placed task a GPU of its node and class, lower indices to earlier tasks."""
    classes = standing.free.shape[1]
    cell = placed.node * classes + placed.gpu_class
    first = (
        np.cumsum(standing.free.ravel()) - standing.free.ravel()
    )  # `free_gpu` is by node and class
    gpu = (
        standing.free_gpu[first[cell] + nth_of_equals(cell)]
        - standing.snapshot.nodes.first_gpu.array()[placed.node]
    )
    return Steps.one_gpu_each(standing.task[placed.task], placed.node, gpu)
