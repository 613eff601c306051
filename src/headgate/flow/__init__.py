"""Min-cost flow: networks as arrays, solvers behind one protocol, and paths; knows no job."""

from headgate.flow.network import COST_LIMIT, BadNetwork, Ints, Network, Solution, Solver
from headgate.flow.ortools_solver import OrToolsSolver
from headgate.flow.paths import unit_paths

__all__ = [
    "COST_LIMIT",
    "BadNetwork",
    "Ints",
    "Network",
    "OrToolsSolver",
    "Solution",
    "Solver",
    "unit_paths",
]
