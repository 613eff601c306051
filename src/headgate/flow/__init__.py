"""Min-cost flow: networks as arrays, solvers behind one protocol, paths, prices; knows no job."""

from headgate.flow.network import COST_LIMIT, BadNetwork, Ints, Network, Solution, Solver
from headgate.flow.ortools_solver import OrToolsSolver
from headgate.flow.paths import unit_paths
from headgate.flow.potentials import UNREACHABLE, potentials

__all__ = [
    "COST_LIMIT",
    "UNREACHABLE",
    "BadNetwork",
    "Ints",
    "Network",
    "OrToolsSolver",
    "Solution",
    "Solver",
    "potentials",
    "unit_paths",
]
