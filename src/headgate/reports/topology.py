"""Drawings of a topology with the jobs on its leaves: as text, and as SVG.

`holders` are the jobs on each leaf, `usable` is False where a leaf is down or is no known node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from string import ascii_letters, digits

import numpy as np
from numpy.typing import NDArray

from headgate.base.text import visible
from headgate.base.units import format_size
from headgate.model.topology import FatTree, Floats, Mesh, Topology, Tree

FREE, DOWN, SEVERAL, MORE = ".", "-", "*", "#"
_LETTERS = ascii_letters[26:] + ascii_letters[:26] + digits
_MOST_ROWS = 200
_MOST_SYMBOLS = 100
_WIDTH = 960.0
_LETTER = 7.0  # width of a letter, at most on average
_LEVEL = 22.0
_MOST_CELL = 48.0
_LOWEST_HUE = 210  # of an idle link: blue; a full one is red


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
        lines = _tree_lines(_tree_of(topology), occupancy, _uses(topology, load))
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


def _tree_of(topology: Topology) -> Tree:
    """Return a tree, or that of the closed sets of a fat tree."""
    if isinstance(topology, FatTree):
        return topology.tree
    assert isinstance(topology, Tree), "there is no other kind"
    return topology


def _uses(topology: Topology, load: Floats | None) -> Floats | None:
    """Return the use of the link above each vertex of a tree, in the direction used more.

    A fat tree has several links above a switch or pod: that of the busiest.
    """
    if load is None:
        return None
    tree = _tree_of(topology)
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
    names = ["  " * int(tree.depth[v]) + _short(tree, v) for v in shown]
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


def _short(tree: Tree, vertex: int) -> str:
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
    at = (a[0][near], (a + b)[1][near], (a + b)[2][near])
    np.maximum.at(uses, at, load[near])
    tenths = np.minimum(uses * 10, 9).astype(np.int64).astype(str)
    drawn[uses > 0] = tenths[uses > 0]
    return float(load[~near].max(initial=0.0))


# --- SVG -----------------------------------------------------------------------------------------


def as_svg(occupancy: Occupancy, load: Floats | None = None) -> str:
    """Return the drawing as an SVG file; `load` is the use of every link, 0 to 1, as a heat map."""
    topology = occupancy.topology
    if isinstance(topology, Mesh):
        height, parts = _mesh_svg(topology, occupancy, load)
    else:
        tree = _tree_of(topology)
        height, parts = _tree_svg(tree, occupancy, _uses(topology, load))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {height:g}" '
        'font-family="sans-serif" font-size="11">'
        f'<rect width="{_WIDTH:g}" height="{height:g}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _tree_svg(tree: Tree, occupancy: Occupancy, uses: Floats | None) -> tuple[float, list[str]]:
    """Return the height and the parts: a box per vertex, above those of its children."""
    cell = _WIDTH / tree.leaves
    parts = []
    for v in range(tree.vertices):
        first, end = int(tree.first_leaf[v]), int(tree.end_leaf[v])
        x, y = first * cell, float(tree.depth[v]) * _LEVEL
        width = max((end - first) * cell - min(1.0, cell / 4), 0.2)
        is_leaf = tree.end[v] == v + 1
        fill = _fill(occupancy, first) if is_leaf else "#e8ecf1"
        title = tree.label(v)
        title += f": {occupancy.words(first)}" if is_leaf else f", {occupancy.free(first, end)}"
        if uses is not None and v:
            title += f", link {uses[v]:.0%}"
            parts.append(_box(x, y, width, 4, _heat(float(uses[v])), title))
            y += 4
        parts.append(_box(x, y, width, _LEVEL - 6, fill, title))
        parts.extend(_name(x, y, width, _short(tree, v)))
    return (float(tree.depth.max()) + 1) * _LEVEL, parts


def _mesh_svg(mesh: Mesh, occupancy: Occupancy, load: Floats | None) -> tuple[float, list[str]]:
    """Return the height and the parts: a square per leaf, planes below each other, and links."""
    rows, columns = [1, *mesh.shape][-2:]
    planes = math.prod(mesh.shape) // (rows * columns)
    step = min(_WIDTH / columns, _MOST_CELL)
    plane, row, column = np.unravel_index(np.arange(mesh.leaves), (planes, rows, columns))
    x, y = column * step, (row + plane * (rows + 0.5)) * step
    side, parts = step * 0.6, list[str]()
    for leaf in range(mesh.leaves):
        title = f"{mesh.label(leaf)}: {occupancy.words(leaf)}"
        parts.append(_box(x[leaf], y[leaf], side, side, _fill(occupancy, leaf), title))
        parts.extend(_name(x[leaf], y[leaf] + side / 2 - 8, side, mesh.label(leaf)))
    for link, (a, b) in enumerate(zip(mesh.tail.tolist(), mesh.head.tolist(), strict=True)):
        near = abs(x[a] - x[b]) + abs(y[a] - y[b]) < 1.5 * step and plane[a] == plane[b]
        if not near or (load is None and a > b):
            continue
        aside = side / 2 + (0.0 if load is None else side / 8 * (1 if a < b else -1))
        color = "#c9d1da" if load is None else _heat(float(load[link]))
        x1, x2 = (x[a] + aside, x[b] + aside) if x[a] == x[b] else _between(x[a], x[b], side)
        y1, y2 = (y[a] + aside, y[b] + aside) if y[a] == y[b] else _between(y[a], y[b], side)
        title = mesh.link_label(link) + ("" if load is None else f": {load[link]:.0%}")
        parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" '
            f'stroke-width="{max(step / 16, 1):.1f}"><title>{escape(visible(title))}</title></line>'
        )
    return float(y.max() + step), parts


def _between(a: float, b: float, side: float) -> tuple[float, float]:
    """Return the ends of a line between two squares in one direction."""
    return (a + side, b) if a < b else (a, b + side)


def _box(x: float, y: float, width: float, height: float, fill: str, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}" fill="{fill}">'
        f"<title>{escape(visible(title))}</title></rect>"
    )


def _name(x: float, y: float, width: float, name: str) -> list[str]:
    """Return a name in a box, where the box is wide enough."""
    if _LETTER * len(name) + 6 > width:
        return []
    return [f'<text x="{x + 4:.1f}" y="{y + 12:.1f}">{escape(visible(name))}</text>']


def _fill(occupancy: Occupancy, leaf: int) -> str:
    """Return the colour of a leaf: grey levels for none, else that of its first job."""
    held = occupancy.holders[leaf]
    if not held:
        return "#f4f6f8" if occupancy.usable[leaf] else "#9aa4ae"
    number = list(occupancy.letters).index(held[0])
    return f"hsl({number * 137 % 360} 55% {45 + 12 * (number // 8 % 3)}%)"


def _heat(use: float) -> str:
    return f"hsl({_LOWEST_HUE * (1 - min(max(use, 0.0), 1.0)):.0f} 75% 50%)"
