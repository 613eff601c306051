"""Topologies as arrays: trees, meshes, tori and fat trees; distances, routes and closed sets."""

from headgate.model.cluster_topology import (
    ClusterFatTree,
    ClusterMesh,
    ClusterTopology,
    ClusterTree,
    GroupLevel,
    NodeShape,
)
from headgate.model.topology.annexed import Annexed
from headgate.model.topology.base import BadTopology, Topology
from headgate.model.topology.fat_tree import FatTree
from headgate.model.topology.mesh import Mesh
from headgate.model.topology.tree import Tree

__all__ = [
    "Annexed",
    "BadTopology",
    "ClusterFatTree",
    "ClusterMesh",
    "ClusterTopology",
    "ClusterTree",
    "FatTree",
    "GroupLevel",
    "Mesh",
    "NodeShape",
    "Topology",
    "Tree",
]
