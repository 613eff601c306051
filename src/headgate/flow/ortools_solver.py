"""The solver that OR-tools brings: cost scaling, deterministic, exact in integers."""

from __future__ import annotations

import numpy as np
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from headgate.base.errors import InvariantBroken
from headgate.flow.network import Network, Solution


class OrToolsSolver:
    """`SimpleMinCostFlow`; its own maximum flow first, then least cost."""

    def solve(self, network: Network) -> Solution:
        """Return the cheapest of the largest flows; raise InvariantBroken if OR-tools gives up."""
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
            raise InvariantBroken(
                f"OR-tools ended with {status} on {network.vertices} vertices, {network.arcs} arcs"
            )
        return Solution(
            flow=solver.flows(arcs).astype(np.int64),
            cost=int(solver.optimal_cost()),
            sent=int(solver.maximum_flow()),
        )
