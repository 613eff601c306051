"""Min-cost flow: networks as arrays, laminar problems, solvers, certificates; free of jobs."""

from headgate.base import not_built
from headgate.base.arrays import Ints

try:
    import headgate.flow._native  # noqa: F401  # before any module that needs it
except ImportError as missing:
    raise not_built("headgate.flow", missing) from missing

from headgate.flow._native import LaminarSolver, Outcome, fetch_options
from headgate.flow.network import COST_LIMIT, AnyInts, BadNetwork, InfeasibleFlow, Network, Solution
from headgate.flow.options import OptionsPart, joined_options, options_of
from headgate.flow.solve import NativeSolver, solve
from headgate.flow.verify import Certificate, Fault, verify, verify_laminar

__all__ = [
    "COST_LIMIT",
    "AnyInts",
    "BadNetwork",
    "Certificate",
    "Fault",
    "InfeasibleFlow",
    "Ints",
    "LaminarSolver",
    "NativeSolver",
    "Network",
    "OptionsPart",
    "Outcome",
    "Solution",
    "fetch_options",
    "joined_options",
    "options_of",
    "solve",
    "verify",
    "verify_laminar",
]
