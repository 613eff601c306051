"""Nodes that come and go by order: what a plan may order, and what becomes of it.

An order is on its way until its node joins or the provider gives up. A node that was made for an
order is removed when it is drained by scaling, or lost: the provider is to remove what is left of
it, until it reports that nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from headgate.protocol import (
    AddNode,
    Command,
    Event,
    LabelsChanged,
    NodeDraining,
    NodeJoined,
    NodeRemoved,
    NodeResumed,
    Ordered,
    OrderFailed,
    Plan,
    PlanAdmitted,
    RemoveNode,
    ScalingChanged,
    Steps,
)
from headgate.state import State, moves
from headgate.state.fleet import Drain, Order, without
from headgate.state.view import View

# --- admission -----------------------------------------------------------------------------------


def scaling_fault(view: View, plan: Plan) -> str | None:
    """Return what is wrong with the orders and drains of a plan on its own snapshot."""
    fleet = view.fleet
    for name in plan.orders:
        if fleet.shape(name) is None:
            return f"there is no shape {name!r} to order"
    for row in plan.drains:
        if not 0 <= row < len(view.nodes.alive) or not view.nodes.alive[row]:
            return f"node {row}, which is to be drained, is not up"
        if view.node(row).id not in fleet.made:
            return f"node {view.node(row).id}, which is to be drained, was not ordered"
    return None


def orders_of(state: State, plan: Plan) -> tuple[Ordered, ...]:
    """Return the orders of a plan with their keys; none of a shape that is no longer offered."""
    offered = [name for name in plan.orders if state.fleet.shape(name) is not None]
    first = state.fleet.next_order
    return tuple(Ordered(f"{name}-{first + n}", name) for n, name in enumerate(offered))


def drains_of(state: State, plan: Plan, steps: Steps) -> tuple[str, ...]:
    """Return the nodes to be drained that are idle, with the steps of the same plan."""
    used = {*steps.starts.node.tolist(), *steps.moves.node.tolist()}
    return tuple(
        state.node(row).id
        for row in dict.fromkeys(plan.drains)
        if row not in used
        and state.nodes.alive[row]
        and not state.nodes.draining[row]
        and state.node(row).id in state.fleet.made
        and not state.ledger.grants_on(row)
    )


# --- transitions ---------------------------------------------------------------------------------


def scaling_changed(state: State, event: ScalingChanged) -> bool:
    """Store the catalogue; orders of shapes that it no longer has stay on their way."""
    state.fleet = replace(state.fleet, scaling=event.scaling)
    return True


def order(state: State, event: PlanAdmitted) -> Iterator[Command]:
    """Record the orders and drains of an admitted plan; yield their commands."""
    if not event.orders and not event.drains:
        return
    fleet, placed = state.fleet, {}
    for key, name in event.orders:
        shape = fleet.shape(name)
        assert shape is not None, "admission checks shapes"
        placed[key] = Order(shape=name, at=event.at)
        yield AddNode(order=key, shape=shape)
    number = fleet.next_order + len(event.orders)
    state.fleet = replace(fleet, orders={**fleet.orders, **placed}, next_order=number)
    for node in event.drains:
        drain(state, NodeDraining(at=event.at, node=node, by="", reason="idle"))
        yield _remove(state, node)


def order_failed(state: State, event: OrderFailed) -> bool:
    """Record a failure of an order; return whether there is such an order."""
    fleet = state.fleet
    known = fleet.orders.get(event.order)
    if known is None:
        return False
    orders = without(fleet.orders, event.order)
    if not event.given_up:
        failed = replace(known, failures=known.failures + 1, message=event.message)
        orders = {**fleet.orders, event.order: failed}
    state.fleet = replace(fleet, orders=orders)
    return True


def joined(state: State, event: NodeJoined) -> Iterator[Command]:
    """Record which order a node that joined was made for; one that is not needed is removed."""
    fleet, key, node = state.fleet, event.order, event.node.id
    if node in fleet.drains:
        _set_draining(state, node)
    if not key:
        return
    known = fleet.orders.get(key)
    if known is not None:
        shape, orders = known.shape, without(fleet.orders, key)
        state.fleet = replace(fleet, orders=orders, made={**fleet.made, node: (key, shape)})
    elif key in fleet.removing:  # it joins while the provider removes it
        drain(state, NodeDraining(at=event.at, node=node, by="", reason="not needed"))
        yield RemoveNode(order=key, node=node)


def lost(state: State, node: str) -> Iterator[Command]:
    """Let the provider remove what is left of a lost node that was made for an order."""
    fleet = state.fleet
    if node in fleet.made:
        yield _remove(state, node)
    if node in fleet.drains and not fleet.drains[node].by:
        state.fleet = replace(state.fleet, drains=without(state.fleet.drains, node))


def node_removed(state: State, event: NodeRemoved) -> bool:
    """Forget an order of which nothing is left; return whether it was to be removed."""
    fleet = state.fleet
    state.fleet = replace(fleet, removing=without(fleet.removing, event.order))
    return event.order in fleet.removing


def drain(state: State, event: NodeDraining) -> bool:
    """Let no run start on a node; return whether that is new. Places held there are given up."""
    node, fleet = event.node, state.fleet
    row = state.names.node_rows.get(node)
    if row is None or node in fleet.drains:
        return False
    drained = Drain(by=event.by, at=event.at, reason=event.reason)
    state.fleet = replace(fleet, drains={**fleet.drains, node: drained})
    if state.nodes.alive[row]:
        _set_draining(state, node)
    return True


def resume(state: State, event: NodeResumed) -> bool:
    """Let runs start on a draining node again; return whether it was draining for a user."""
    node, fleet = event.node, state.fleet
    if node not in fleet.drains or not fleet.drains[node].by:
        return False
    state.fleet = replace(fleet, drains=without(fleet.drains, node))
    row = state.names.node_rows[node]
    if state.nodes.alive[row]:
        state.ledger.drain(row, draining=False)
    return True


def label(state: State, event: LabelsChanged) -> bool:
    """Give a node other labels; return whether they differ from those that it has."""
    node, fleet = event.node, state.fleet
    row = state.names.node_rows.get(node)
    if fleet.labels.get(node) == event.labels:
        return False
    state.fleet = replace(fleet, labels={**fleet.labels, node: event.labels})
    if row is not None:
        state.ledger.set_labels(row, event.labels)
    return True


def _set_draining(state: State, node: str) -> None:
    row = state.names.node_rows[node]
    for task in moves.units_to(state, row):
        moves.give_up(state, task)
    state.ledger.drain(row, draining=True)


def _remove(state: State, node: str) -> RemoveNode:
    fleet = state.fleet
    key, _ = fleet.made[node]
    made, removing = without(fleet.made, node), {**fleet.removing, key: node}
    state.fleet = replace(fleet, made=made, removing=removing)
    return RemoveNode(order=key, node=node)


def node_commands(state: State) -> Iterator[Command]:
    """Yield the commands of all orders on their way and of nodes that are being removed."""
    fleet = state.fleet
    for key, each in fleet.orders.items():
        shape = fleet.shape(each.shape)
        if shape is not None:
            yield AddNode(order=key, shape=shape)
    for key, node in fleet.removing.items():
        yield RemoveNode(order=key, node=node)


TRANSITIONS: Mapping[type[Event], Callable[[State, Any], bool]] = {
    ScalingChanged: scaling_changed,
    OrderFailed: order_failed,
    NodeRemoved: node_removed,
    NodeDraining: drain,
    NodeResumed: resume,
    LabelsChanged: label,
}
"""The transitions that change nothing but nodes; each returns whether it changed something."""
