"""Where the tasks of a unit are placed: choosers of GPUs and nodes, best sets and baselines."""

from headgate.planning.place.choose.rules import (
    BestFitSubtree,
    Block,
    ByLinks,
    ClosedMinimum,
    Cyclic,
    Placer,
    Sequential,
    nodes_needed,
    place_all,
)

__all__ = [
    "BestFitSubtree",
    "Block",
    "ByLinks",
    "ClosedMinimum",
    "Cyclic",
    "Placer",
    "Sequential",
    "nodes_needed",
    "place_all",
]
