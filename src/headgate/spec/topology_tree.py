"""Trees of topology files: level by level or switch by switch, and what is below the nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headgate.base.errors import nearest
from headgate.model.topology import ClusterTree, GroupLevel, NodeShape
from headgate.spec.document import Document, Place, dotted
from headgate.spec.shape import parse, shown
from headgate.spec.topology_shapes import (
    GpusShape,
    GroupLevelShape,
    LevelShape,
    SwitchShape,
    TopologyShape,
    node_names,
)

_EMPTY = "has no nodes: every branch must end at nodes, which have GPUs or CPUs"


@dataclass(slots=True)
class _Vertex:
    parent: int
    level: int | None
    place: Place
    is_node: bool = False


@dataclass(slots=True)
class TreeBuilder:
    """Collects the vertices of a tree, adding problems to the document."""

    document: Document
    shape: TopologyShape
    _levels: list[LevelShape] = field(default_factory=list)
    _vertices: dict[str, _Vertex] = field(default_factory=dict)  # by path or name, in order

    def build(self) -> ClusterTree | None:
        """Return the tree, None if it has a problem."""
        self._read_levels()
        if "tree" in self.document.data:
            self._vertices[self._levels[0].name] = _Vertex(-1, 0, ("tree",))
            self._add_members(self.shape.tree, 0, "", ("tree",))
        else:
            self._add_switches(self.shape.switches or [])
        shapes, shape_of = self._shapes()
        if not self.document.is_clean(()):
            return None
        uplinks = self._uplinks()
        return ClusterTree(
            level_names=tuple(level.name for level in self._levels),
            names=tuple(self._vertices),
            parents=tuple(vertex.parent for vertex in self._vertices.values()),
            levels=tuple(vertex.level or 0 for vertex in self._vertices.values()),
            bytes_per_s=uplinks,
            shapes=shapes,
            shape=shape_of,
        )

    def _read_levels(self) -> None:
        """Read the levels; without enough valid ones, use two, so that all else is checked too."""
        document = self.document
        seen: set[str] = set()
        for number, raw in enumerate(self.shape.levels):
            place: Place = ("levels", number)
            level = parse(document, LevelShape, raw, place) or LevelShape()
            self._levels.append(level)
            if level.name in seen:
                document.add((*place, "name"), f"the level '{level.name}' exists already")
            seen.add(level.name)
            if number and level.bandwidth is None and document.is_clean((*place, "bandwidth")):
                hint = "that of the link from each of its members to the level above, per direction"
                document.add((*place, "bandwidth"), "is missing", hint)
            if not number and level.bandwidth is not None:
                text = "the topmost level has no link upwards"
                document.add((*place, "bandwidth"), text, "remove it")
        if len(self._levels) < 2:
            if document.is_clean(("levels",)):
                hint = "such as core, rack, node, each but the first with its bandwidth"
                document.add(("levels",), "must list two levels or more, from the top", hint)
            self._levels = [LevelShape(name="core"), LevelShape(name="node", bandwidth=1)]

    # --- level by level ---------------------------------------------------------------------------

    def _add_members(self, members: Any, depth: int, path: str, place: Place) -> None:
        """Add what is below a vertex of a depth: vertices by name, or nodes."""
        last = len(self._levels) - 1
        parent = len(self._vertices) - 1
        if not isinstance(members, dict):
            self._add_nodes(members, parent, place)
            return
        if not members:
            self.document.add(place, _EMPTY)
        for name, inside in members.items():
            member_place = (*place, name)
            if depth + 1 >= last:
                text = f"is deeper than the {last + 1} levels given"
                self.document.add(
                    member_place, text, "add a level, or write the names of nodes in a list"
                )
                continue
            full = f"{path}/{name}" if path else name
            if full in self._vertices:
                self.document.add(member_place, f"the name '{full}' is used already")
                continue
            self._vertices[full] = _Vertex(parent, depth + 1, member_place)
            self._add_members(inside, depth + 1, full, member_place)

    def _add_nodes(self, raw: Any, parent: int, place: Place) -> None:
        if raw is None or raw == []:
            self.document.add(place, _EMPTY)
            return
        for name, name_place in node_names(self.document, raw, place):
            known = self._vertices.get(name)
            if known is None:
                level = len(self._levels) - 1
                self._vertices[name] = _Vertex(parent, level, name_place, is_node=True)
            elif known.is_node:
                self._in_two(name, known, name_place)
            else:
                self.document.add(
                    name_place, f"'{name}' is both a node and a {self._level_of(known)}"
                )

    def _in_two(self, name: str, known: _Vertex, place: Place) -> None:
        parents = list(self._vertices)
        where = parents[known.parent] if known.parent >= 0 else dotted(known.place)
        line = self.document.line(known.place)
        text = f"'{name}' is in {where} already (line {line})"
        self.document.add(place, text, "a node or switch has one place")

    def _level_of(self, vertex: _Vertex) -> str:
        return self._levels[vertex.level].name if vertex.level is not None else "switch"

    # --- switch by switch -------------------------------------------------------------------------

    def _add_switches(self, listed: list[Any]) -> None:
        """Add the switches, and what they connect: other switches, and nodes."""
        members: list[tuple[Place, Any]] = []  # of the switches, which are the first vertices
        names = [level.name for level in self._levels]
        for number, raw in enumerate(listed):
            place: Place = ("switches", number)
            switch = parse(self.document, SwitchShape, raw, place)
            if switch is None:
                continue
            level = None
            if switch.level is not None:
                if switch.level in names[:-1]:
                    level = names.index(switch.level)
                else:
                    hint = partial(nearest, switch.level, names[:-1])
                    text = f"unknown level of switches {shown(switch.level)}"
                    self.document.add((*place, "level"), text, hint)
            if switch.name in self._vertices:
                text = f"the switch '{switch.name}' exists already"
                self.document.add((*place, "name"), text)
                continue
            self._vertices[switch.name] = _Vertex(-1, level, place)
            members.append(((*place, "members"), switch.members))
        if not members and self.document.is_clean(("switches",)):
            self.document.add(("switches",), "must not be empty")
        for parent, (place, raw) in enumerate(members):
            self._connect(parent, raw, place)
        self._check_root()
        self._settle_levels()

    def _connect(self, parent: int, raw: Any, place: Place) -> None:
        if raw is None or raw == []:
            if self.document.is_clean(place):
                self.document.add(place, _EMPTY)
            return
        for member, name_place in node_names(self.document, raw, place):
            known = self._vertices.get(member)
            if known is None:
                level = len(self._levels) - 1
                self._vertices[member] = _Vertex(parent, level, name_place, is_node=True)
            elif known.parent >= 0:
                self._in_two(member, known, name_place)
            else:
                known.parent = parent

    def _check_root(self) -> None:
        """Add a problem for every cycle, and for several roots."""
        vertices = list(self._vertices.values())
        names = list(self._vertices)
        done: set[int] = set()
        for start in range(len(vertices)):
            path: list[int] = []
            vertex = start
            while vertex >= 0 and vertex not in done and vertex not in path:
                path.append(vertex)
                vertex = vertices[vertex].parent
            if vertex in path:
                ring = " in ".join(names[v] for v in [*path[path.index(vertex) :], vertex])
                text = f"is part of a cycle: {ring}"
                self.document.add((*vertices[vertex].place, "members"), text, "remove one of them")
            done.update(path)
        roots = [v for v in vertices if v.parent < 0]
        if len(roots) > 1 and self.document.is_clean(()):
            top = next(name for name, v in self._vertices.items() if v is roots[0])
            hint = "add a switch whose members they are"
            for root in roots[1:]:
                text = f"no link leads from here to {top}: a tree has one topmost switch"
                self.document.add((*root.place, "name"), text, hint)

    def _settle_levels(self) -> None:
        """Give switches without a level that below their parent's; levels must descend."""
        if not self.document.is_clean(()):
            return
        vertices = list(self._vertices.values())
        last = len(self._levels) - 1
        for vertex in vertices:
            self._settle(vertices, vertex)
        for vertex in vertices:
            level, place = vertex.level or 0, (*vertex.place, "level")
            if level >= last and not vertex.is_node:
                hint = "add a level, or give the switches their 'level'"
                self.document.add(place, f"is deeper than the {last + 1} levels given", hint)
            elif vertex.parent >= 0 and (vertices[vertex.parent].level or 0) >= level:
                text = "must be below the level of the switch that it is a member of"
                self.document.add(place, text)

    @staticmethod
    def _settle(vertices: list[_Vertex], vertex: _Vertex) -> None:
        open_ones = []
        while vertex.level is None:
            open_ones.append(vertex)
            if vertex.parent < 0:
                break
            vertex = vertices[vertex.parent]
        level = -1 if vertex.level is None else vertex.level
        for below in reversed(open_ones):
            level = below.level = level + 1

    # --- bandwidths and GPUs ----------------------------------------------------------------------

    def _uplinks(self) -> tuple[float, ...]:
        return tuple(
            math.inf
            if vertex.parent < 0
            else self.shape.bandwidths.get(name) or self._levels[vertex.level or 0].bandwidth or 1.0
            for name, vertex in self._vertices.items()
        )

    def _shapes(self) -> tuple[tuple[NodeShape, ...], tuple[int, ...]]:
        """Return what is below nodes, and which of it is below each vertex, -1 for none."""
        document, shapes = self.document, list[NodeShape]()
        for key in self.shape.bandwidths:
            if key not in self._vertices:
                self._unknown(("bandwidths", key), key)
        of = dict.fromkeys(self._vertices, -1)
        if self.shape.gpus is not None:
            shapes.append(node_shape(document, self.shape.gpus, ("gpus",)))
            of |= {name: 0 for name, vertex in self._vertices.items() if vertex.is_node}
        for pattern, raw in self.shape.nodes.items():
            place: Place = ("nodes", pattern)
            shapes.append(node_shape(document, raw, place))
            for name, _ in node_names(document, pattern, place):
                vertex = self._vertices.get(name)
                if vertex is None or not vertex.is_node:
                    self._unknown(place, name)
                else:
                    of[name] = len(shapes) - 1
        return tuple(shapes), tuple(of.values()) if shapes else ()

    def _unknown(self, place: Place, name: str) -> None:
        if self.document.is_clean(("tree",)) and self.document.is_clean(("switches",)):
            hint = partial(nearest, name, self._vertices)
            self.document.add(place, f"unknown node or switch '{name}'", hint)


def node_shape(document: Document, raw: Any, place: Place) -> NodeShape:
    """Return what is below a node: the levels of groups of its GPUs."""
    shape = parse(document, GpusShape, raw, place) or GpusShape()
    levels: list[GroupLevel] = []
    for number, item in enumerate(shape.levels):
        level_place = (*place, "levels", number)
        level = parse(document, GroupLevelShape, item, level_place)
        if level is None:
            continue
        groups = _groups(document, level, shape.count, level_place)
        above = levels[-1] if levels else None
        if above is not None and document.is_clean(level_place):
            _check_nested(document, groups, above, level_place)
        levels.append(GroupLevel(name=level.name, bytes_per_s=level.bandwidth, groups=groups))
    return NodeShape(levels=tuple(levels), gpu_bytes_per_s=shape.bandwidth)


def _groups(
    document: Document, level: GroupLevelShape, count: int | None, place: Place
) -> tuple[tuple[int, ...], ...]:
    """Return the groups of a level: given, or `each` GPUs by index."""
    if (level.each is None) == (level.groups is None):
        if document.is_clean(place):
            text = "must say either 'each', how many GPUs a group has, or 'groups', their indices"
            document.add(place, text)
        return ()
    if level.each is not None:
        if count is None:
            text = "requires 'count', the number of GPUs of a node"
            document.add((*place, "each"), text)
            return ()
        return tuple(
            tuple(range(first, min(first + level.each, count)))
            for first in range(0, count, level.each)
        )
    seen: set[int] = set()
    for number, group in enumerate(level.groups or ()):
        if not group:
            document.add((*place, "groups", number), "has no GPU: a leaf needs a GPU or a CPU")
        for index, gpu in enumerate(group):
            if gpu in seen:
                text = f"GPU {gpu} is in two groups of this level, or twice in one"
                document.add((*place, "groups", number, index), text)
            if count is not None and gpu >= count:
                text = f"there is no GPU {gpu}: the node has {count}, from 0"
                document.add((*place, "groups", number, index), text)
            seen.add(gpu)
    return tuple(tuple(group) for group in level.groups or ())


def _check_nested(
    document: Document, groups: tuple[tuple[int, ...], ...], above: GroupLevel, place: Place
) -> None:
    """Add a problem for each group that is in more than one group of the level above."""
    of = {gpu: number for number, group in enumerate(above.groups) for gpu in group}
    for number, group in enumerate(groups):
        if len({of.get(gpu, -1) for gpu in group}) > 1:
            text = f"GPUs {', '.join(map(str, group))} are in several of the level {above.name}"
            document.add((*place, "groups", number), text, "list the wider level first")
