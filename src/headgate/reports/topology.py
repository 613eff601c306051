"""Drawings of a topology with the jobs on its leaves, as text.

`holders` are the jobs on each leaf, `usable` is False where a leaf is down or is no known node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from string import ascii_letters, digits

import numpy as np
from numpy.typing import NDArray

from headgate.base.arrays import Floats
from headgate.base.text import visible
from headgate.base.units import format_size
from headgate.model.topology import FatTree, Mesh, Topology, Tree

FREE, DOWN, SEVERAL, MORE = ".", "-", "*", "#"
_LETTERS = ascii_letters[26:] + ascii_letters[:26] + digits
_MOST_ROWS = 200
_MOST_SYMBOLS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """What is on the leaves of a topology."""

    topology: Topology
    holders: Sequence[Sequence[str]]
    usable: Sequence[bool]
    letters: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        """Give each job a letter, in the order of the leaves; from the 63rd on, all the same."""
        jobs = dict.fromkeys(job for held in self.holders for job in held)
        letters = {
            job: _LETTERS[number] if number < len(_LETTERS) else MORE
            for number, job in enumerate(jobs)
        }
        object.__setattr__(self, "letters", letters)

    def symbol(self, leaf: int) -> str:
        """Return one character for a leaf."""
        held = self.holders[leaf]
        if held:
            return self.letters[held[0]] if len(held) == 1 else SEVERAL
        return FREE if self.usable[leaf] else DOWN

    def free(self, first: int, end: int) -> str:
        """Return how many of some leaves are free."""
        usable = [leaf for leaf in range(first, end) if self.usable[leaf]]
        free = sum(not self.holders[leaf] for leaf in usable)
        return f"{free} of {len(usable)} free"

    def words(self, leaf: int) -> str:
        """Return what is on a leaf."""
        state = "free" if self.usable[leaf] else "down"
        return ", ".join(self.holders[leaf]) or state


def as_text(occupancy: Occupancy, load: Floats | None = None) -> str:
    """Return the drawing as lines of text, with a legend; large subtrees in one line each.

    `load` is the use of every link, 0 to 1: lines of trees show that of links in use, meshes have
    its tenths between the symbols of neighbours.
    """
    topology = occupancy.topology
    if isinstance(topology, Mesh):
        lines = _mesh_lines(topology, occupancy, load)
    else:
        lines = _tree_lines(tree_of(topology), occupancy, uses_of(topology, load))
    used = {occupancy.symbol(leaf) for leaf in range(topology.leaves)}
    legend = [
        f"{letter} {visible(job)}"
        for job, letter in occupancy.letters.items()
        if letter in used - {MORE}
    ]
    for symbol, words in ((MORE, "other jobs"), (SEVERAL, "several jobs"), (FREE, "free"),
                          (DOWN, "down or unknown")):  # fmt: skip
        legend += [f"{symbol} {words}"] if symbol in used else []
    return "\n".join([*lines, "", "  ".join(legend)])


def tree_of(topology: Topology) -> Tree:
    """Return a tree, or that of the closed sets of a fat tree."""
    if isinstance(topology, FatTree):
        return topology.tree
    assert isinstance(topology, Tree), "there is no other kind"
    return topology


def uses_of(topology: Topology, load: Floats | None) -> Floats | None:
    """Return the use of the link above each vertex of a tree, in the direction used more.

    A fat tree has several links above a switch or pod: that of the busiest.
    """
    if load is None:
        return None
    tree = tree_of(topology)
    uses = np.zeros(tree.vertices)
    if isinstance(topology, FatTree):
        by_level = load.reshape(3, topology.leaves, 2).max(axis=2)[::-1]  # of pods first
        for v in range(1, tree.vertices):
            below = slice(int(tree.first_leaf[v]), int(tree.end_leaf[v]))
            uses[v] = by_level[int(tree.depth[v]) - 1, below].max()
    else:
        uses[1:] = load.reshape(-1, 2).max(axis=1)
    return uses


def _tree_lines(tree: Tree, occupancy: Occupancy, uses: Floats | None) -> list[str]:
    """Return a line per vertex, down to the level whose vertices are rows of symbols."""
    level = _row_level(tree)
    shown = [
        v
        for v in range(tree.vertices)
        if tree.level[v] <= level and (v == 0 or tree.level[tree.parent[v]] < level)
    ]
    names = ["  " * int(tree.depth[v]) + short(tree, v) for v in shown]
    width = max(map(len, names))
    lines = []
    for name, v in zip(names, shown, strict=True):
        first, end = int(tree.first_leaf[v]), int(tree.end_leaf[v])
        facts = [name.ljust(width)]
        is_row = tree.level[v] == level or tree.end[v] == v + 1
        if is_row and end - first <= _MOST_SYMBOLS:
            facts.append(_symbols(tree, v, occupancy))
        if end - first > 1:
            facts.append(occupancy.free(first, end))
        if v and not is_row:
            facts.append(f"{format_size(tree.uplink[v])}/s")
        if uses is not None and uses[v]:
            facts.append(f"link {uses[v]:.0%}")
        lines.append("  ".join(facts).rstrip())
    return lines


def _row_level(tree: Tree) -> int:
    """Return the level whose vertices are rows: that of nodes, or one above with few vertices."""
    names = tree.level_names
    level = names.index("node") if "node" in names else int(tree.level.max()) - 1
    while level > 1 and (tree.level == level).sum() > _MOST_ROWS:
        level -= 1
    return max(level, 0)


def short(tree: Tree, vertex: int) -> str:
    """Return the name of a vertex among its siblings."""
    return visible(tree.label(vertex).rpartition("/")[2])


def _symbols(tree: Tree, vertex: int, occupancy: Occupancy) -> str:
    """Return the symbols of the leaves below a vertex, with a space between its groups."""
    leaves = range(int(tree.first_leaf[vertex]), int(tree.end_leaf[vertex]))
    parents = tree.parent[tree.leaf_vertex[leaves.start : leaves.stop]].tolist()
    text, last = "", parents[0]
    for leaf, parent in zip(leaves, parents, strict=True):
        text += (" " if parent != last else "") + occupancy.symbol(leaf)
        last = parent
    return text


def _mesh_lines(mesh: Mesh, occupancy: Occupancy, load: Floats | None) -> list[str]:
    """Return a line per row of the mesh, in planes where it has three dimensions.

    With a load, lines between rows are for the links between them.
    """
    lines = [f"{' x '.join(map(str, mesh.shape))} mesh, {occupancy.free(0, mesh.leaves)}"]
    symbols = np.array([occupancy.symbol(leaf) for leaf in range(mesh.leaves)])
    rows, columns = [1, *mesh.shape][-2:]
    planes = mesh.leaves // (rows * columns)
    drawn = np.full((planes, 2 * rows - 1, 2 * columns - 1), " ")
    drawn[:, ::2, ::2] = symbols.reshape(planes, rows, columns)
    heated = load is not None and bool(load.any())
    hottest = _draw_uses(mesh, load, drawn) if load is not None and heated else 0.0
    for number, plane in enumerate(drawn):
        if planes > 1:
            lines.append(f"plane {number}")
        lines += ["".join(row).rstrip() for row in (plane if heated else plane[::2]).tolist()]
    if heated:
        lines += ["", "0 to 9 between two: use of their link in tenths, rounded down"]
    if hottest:
        lines.append(f"links around the edges or between planes: at most {hottest:.0%}")
    return lines


def _draw_uses(mesh: Mesh, load: Floats, drawn: NDArray[np.str_]) -> float:
    """Draw the tenths of the links in use, and return the most use of those left out.

    The direction used more counts. `drawn` is `[planes, 2 rows - 1, 2 columns - 1]`, with leaves at
    even places.
    """
    planes, height, width = drawn.shape
    shape = (planes, (height + 1) // 2, (width + 1) // 2)
    a, b = (np.array(np.unravel_index(each, shape)) for each in (mesh.tail, mesh.head))
    near = (a[0] == b[0]) & (np.abs(a - b).sum(axis=0) == 1)
    uses = np.zeros(drawn.shape)
    cells = (a[0][near], (a + b)[1][near], (a + b)[2][near])
    np.maximum.at(uses, cells, load[near])
    tenths = np.minimum(uses * 10, 9).astype(np.int64).astype(str)
    drawn[uses > 0] = tenths[uses > 0]
    return float(load[~near].max(initial=0.0))
