"""Where the tasks of a job that start together are placed: closed sets, subtrees, and baselines."""

from headgate.model.topology import FatTree, Ints, Mesh, Topology, Tree
from headgate.planning.placers.boxes import Boxes
from headgate.planning.placers.layout import Layout, Places, Request
from headgate.planning.placers.rules import (
    BestFitSubtree,
    Block,
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


def layout_of(topology: Topology, sites: Ints | None = None) -> Layout:
    """Return the layout of sites in a topology: at leaves of a mesh, at vertices of a tree.

    By default every leaf is a site. It may be kept and used for any number of searches.
    """
    if isinstance(topology, Mesh):
        return Boxes(topology, sites)
    if isinstance(topology, FatTree):
        return Subtrees(topology.tree, sites)
    assert isinstance(topology, Tree), f"no layout for {type(topology).__name__}"
    return Subtrees(topology, sites)
