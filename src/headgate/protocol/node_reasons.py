"""Reasons why what waits needs other nodes than those that are up."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.base.text import enumerated
from headgate.base.units import format_seconds
from headgate.protocol.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible(Reason):
    """No node that is up could hold a task, even idle, or all nodes together a whole gang.

    `largest` is what nodes have at most. Where the cluster scales, `shape` is that of a node that
    was ordered and holds it, `resources` what that has, and `ready_s` in how many seconds it is
    expected (0: any moment); `failure` is the last failure of that order. Without an order, `unmet`
    is why none was made; empty: the next round orders one.
    """

    need: str
    largest: str = ""
    shape: str = ""
    resources: str = ""
    ready_s: float | None = None
    failure: str = ""
    unmet: str = ""
    scales: bool = False

    def cause(self) -> str:
        return f"needs {self.need}" + (f", {self.largest}" if self.largest else "")

    def way_out(self) -> str:
        if not self.scales:
            return "starts when such a node joins"
        if not self.shape:
            return f"no node is ordered: {self.unmet}" if self.unmet else "a node will be ordered"
        when = ""
        if self.ready_s is not None:
            late = self.ready_s <= 0
            when = ", late" if late else f", ready in about {format_seconds(self.ready_s)}"
        failed = f" (the provider failed: {self.failure}; it tries again)" if self.failure else ""
        return f"node {self.shape} with {self.resources} ordered{when}{failed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesDraining(Reason):
    """Nodes that would suffice are draining: no run may start on them."""

    nodes: tuple[str, ...]
    why: str = ""

    def cause(self) -> str:
        are = "is" if len(self.nodes) == 1 else "are"
        why = f" ({self.why})" if self.why else ""
        return f"{enumerated(self.nodes)} {are} draining{why}, and the others do not suffice"

    def way_out(self) -> str:
        return "starts when another such node joins, or after headgate resume"
