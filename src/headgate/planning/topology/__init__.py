"""The cluster as a tree, a mesh or a fat tree: closed sets, compact ones, best fits."""

from headgate.planning.topology.boxes import Boxes
from headgate.planning.topology.layout import Layout, Places, Request
from headgate.planning.topology.make import layout_of
from headgate.planning.topology.subtrees import Subtrees

__all__ = ["Boxes", "Layout", "Places", "Request", "Subtrees", "layout_of"]
