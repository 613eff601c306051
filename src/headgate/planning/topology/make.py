"""The layout of a topology."""

from __future__ import annotations

from headgate.base.arrays import Ints
from headgate.model.topology import FatTree, Mesh, Topology, Tree
from headgate.planning.topology.boxes import Boxes
from headgate.planning.topology.layout import Layout
from headgate.planning.topology.subtrees import Subtrees


def layout_of(topology: Topology, sites: Ints | None = None) -> Layout:
    """Return the layout of sites in a topology: at leaves of a mesh, at vertices of a tree.

    By default every leaf is a site. It may be kept and used for any number of searches.
    """
    if isinstance(topology, Mesh):
        return Boxes(topology, sites)
    if isinstance(topology, FatTree):
        topology = topology.tree
    assert isinstance(topology, Tree), f"no layout for {type(topology).__name__}"
    return Subtrees(topology, sites)
