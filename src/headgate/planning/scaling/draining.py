"""Requests of users to drain nodes and to resume them, checked on a snapshot."""

from __future__ import annotations

from headgate.base.errors import Problem, SpecError, nearest
from headgate.protocol import NodeDraining, NodeResumed
from headgate.state import Snapshot


def drain_request(
    view: Snapshot, node: str, *, user: str, reason: str, at: float
) -> NodeDraining | None:
    """Return the event that drains a node, None if it is draining; SpecError `not_found`."""
    _known(view, node)
    if node in view.fleet.drains:
        return None
    return NodeDraining(at=at, node=node, by=user, reason=reason)


def resume_request(view: Snapshot, node: str, *, user: str, at: float) -> NodeResumed | None:
    """Return the event that resumes a node, None if it is not draining.

    SpecError `not_found`, and `in_use` for a node that scaling removes.
    """
    _known(view, node)
    drain = view.fleet.drains.get(node)
    if drain is None:
        return None
    if not drain.by:
        text = f"node {node} is idle and is being removed: it cannot be resumed"
        raise SpecError([Problem(path=node, problem=text)], code="in_use")
    return NodeResumed(at=at, node=node, by=user)


def _known(view: Snapshot, node: str) -> None:
    names = [view.node(row).id for row in range(len(view.nodes.spec))]
    if node not in names:
        problem = Problem(path=node, problem=f"there is no node {node}", hint=nearest(node, names))
        raise SpecError([problem], code="not_found")
