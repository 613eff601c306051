"""Why a job waits for nodes that are not there: infeasible, ordered, or draining."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.base.text import enumerated
from headgate.base.units import format_size
from headgate.model import Demand, Node, Task, amount_of
from headgate.model.scaling import Shape
from headgate.planning.scaling.decision import Pending, holds
from headgate.planning.scaling.scaler import why_unmet
from headgate.planning.units.fit import (
    by_size,
    demand_text,
    infeasible_demand,
    infeasible_gang,
    members_that_fit,
    most_on_one_node,
    on_labels,
    one_node_text,
)
from headgate.protocol import Reason
from headgate.protocol.node_reasons import Infeasible, NodesDraining
from headgate.state import Snapshot, State
from headgate.state.queues import as_needed
from headgate.state.view import View


def node_reason(view: View, job: int, now: float, task: int | None = None) -> Reason | None:
    """Return why a job waits, if the nodes that are up and not draining could not hold it, idle.

    With `task`, the row of one, why that one does. O(distinct demands of its waiting tasks x
    nodes); of a gang O(its tasks x nodes).
    """
    spec = as_needed(view, job)
    up = view.live_nodes()
    gang, apart = bool(view.jobs.gang[job]), spec.distinct_nodes
    rows = view.waiting_of(job).tolist() if task is None or gang else [task]
    tasks = [spec.tasks[view.ordinal(row)] for row in rows]
    nodes = [view.node(row) for row in up if not view.nodes.draining[row]]
    lacking = _lacking(tasks, nodes, gang=gang, apart=apart)
    if lacking is None:
        return None
    draining = [view.node(row) for row in up if view.nodes.draining[row]]
    if draining and _lacking(tasks, [*nodes, *draining], gang=gang, apart=apart) is None:
        drains = [view.fleet.drains.get(node.id) for node in draining]
        why = next((drain.reason for drain in drains if drain and drain.reason), "")
        return NodesDraining(nodes=tuple(node.id for node in draining), why=why)
    return _infeasible(view, lacking, nodes, gang=gang, apart=apart, now=now)


def _lacking(
    tasks: Sequence[Task], nodes: Sequence[Node], *, gang: bool, apart: bool
) -> tuple[Demand, ...] | None:
    """Return the demands of tasks that idle nodes cannot hold, None if they can hold all."""
    if not gang:
        demands = dict.fromkeys(task.demand for task in tasks)
        return tuple(d for d in demands if infeasible_demand(d, nodes))[:1] or None
    if not infeasible_gang(tasks, nodes, distinct_nodes=apart):
        return None
    placed = members_that_fit(tasks, nodes, distinct_nodes=apart) if nodes else 0
    return tuple(sorted((task.demand for task in tasks), key=by_size)[: len(tasks) - placed])


def _infeasible(
    view: View,
    lacking: tuple[Demand, ...],
    nodes: Sequence[Node],
    *,
    gang: bool,
    apart: bool,
    now: float,
) -> Infeasible:
    demand = lacking[0]
    one = demand_text(demand)
    need = (
        f"{len(lacking)} more places with {one} each{on_labels(demand)}"
        if gang
        else f"{one} on {one_node_text(demand)}"
    )
    largest = "" if gang or not nodes else most_on_one_node(demand, nodes)
    fleet = view.fleet
    if fleet.scaling is None:
        return Infeasible(need=need, largest=largest)
    coming = []
    for order in fleet.orders.values():
        shape = fleet.shape(order.shape)
        if shape is not None and holds(shape, demand):
            coming.append((order.at + shape.ready_after_s - now, shape, order))
    if coming:
        ready_s, shape, order = min(coming, key=lambda each: each[0])
        return Infeasible(
            need=need,
            largest=largest,
            scales=True,
            shape=shape.name,
            resources=shape_text(shape),
            ready_s=ready_s,
            failure=order.message,
        )
    assert isinstance(view, Snapshot | State), "one of a whole state"
    snapshot = view if isinstance(view, Snapshot) else view.freeze()
    unit = Pending(demands=lacking if gang else (demand,), distinct_nodes=apart)
    unmet = why_unmet(snapshot, unit)
    return Infeasible(need=need, largest=largest, scales=True, unmet=unmet)


def shape_text(shape: Shape) -> str:
    """Return what a node of a shape has."""
    words = []
    if shape.gpus:
        words.append("1 GPU" if len(shape.gpus) == 1 else f"{len(shape.gpus)} GPUs")
    words.append("1 CPU" if shape.cpus == 1 else f"{shape.cpus} CPUs")
    if shape.memory_bytes is not None:
        words.append(format_size(shape.memory_bytes))
    words += [f"{amount_of(milli)} of '{name}'" for name, milli in shape.custom]
    return enumerated(words)
