"""OR-tools as an oracle: an independent min-cost flow solver."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from headgate.base.arrays import Ints
from headgate.flow import Network


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Optimum:
    """The cost of a min-cost max-flow, and the units that it sends."""

    flow: Ints
    cost: int
    sent: int


class OrToolsSolver:
    """`SimpleMinCostFlow`; its own maximum flow first, then least cost."""

    def solve(self, network: Network) -> Optimum:
        """Return a min-cost max-flow; raise when OR-tools gives up."""
        solver = SimpleMinCostFlow()
        arcs = solver.add_arcs_with_capacity_and_unit_cost(
            network.tail.astype(np.int32),
            network.head.astype(np.int32),
            network.capacity,
            network.cost,
        )
        solver.set_nodes_supplies(np.arange(network.vertices, dtype=np.int32), network.supply)
        status = solver.solve_max_flow_with_min_cost()
        if status != solver.OPTIMAL:
            raise RuntimeError(
                f"OR-tools ended with {status} on {network.vertices} vertices, {network.arcs} arcs"
            )
        flow = solver.flows(arcs).astype(np.int64)
        used = np.flatnonzero(flow)
        # Its own cost saturates at the largest int64.
        units = zip(flow[used].tolist(), network.cost[used].tolist(), strict=True)
        return Optimum(flow=flow, cost=sum(u * c for u, c in units), sent=solver.maximum_flow())
