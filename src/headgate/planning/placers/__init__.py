"""Where the tasks of a job that start together are placed: closed sets, subtrees, and baselines."""

from headgate.planning.placers.boxes import Boxes
from headgate.planning.placers.layout import Layout, Places, Request
from headgate.planning.placers.make import layout_of
from headgate.planning.placers.rules import (
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
from headgate.planning.placers.subtrees import Subtrees

__all__ = [
    "BestFitSubtree",
    "Block",
    "Boxes",
    "ByLinks",
    "ClosedMinimum",
    "Cyclic",
    "Layout",
    "Placer",
    "Places",
    "Request",
    "Sequential",
    "Subtrees",
    "layout_of",
    "nodes_needed",
    "place_all",
]
