"""Reasons why what waits needs other nodes than those that are up."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.base.text import enumerated
from headgate.base.units import format_seconds, format_size
from headgate.model import WHOLE
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBusyOutside(Reason):
    """It would fit a node but for what processes outside Headgate use of it.

    That is `used` of a `resource`: thousandths of `cpus`, or bytes of `memory`, or of that of a
    `gpu` (index), of which the process `pid` uses most (0 if unknown). It is likewise on `others`
    more nodes.
    """

    node: str
    resource: str
    used: int
    gpu: int | None = None
    pid: int = 0
    others: int = 0

    def cause(self) -> str:
        more = "1 more node" if self.others == 1 else f"{self.others} more nodes"
        return self.brief() + (f", likewise on {more}" if self.others else "")

    def brief(self) -> str:
        what = "CPUs" if self.resource == "cpus" else "memory"
        what = what if self.gpu is None else f"GPU {self.gpu}"
        used = f"{self.used / WHOLE:.3g}" if self.resource == "cpus" else format_size(self.used)
        by = f" by pid {self.pid}" if self.pid else ""
        of = " " if self.resource == "cpus" else " of "
        return f"{self.node}: {used}{of}{what} in use{by} outside Headgate"

    def way_out(self) -> str:
        return "starts when that ends, or when enough is free elsewhere"
