"""Drawings of a topology with the jobs on its leaves, as SVG: with a legend, as wide as a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from headgate.base.arrays import Floats
from headgate.base.text import visible
from headgate.model.topology import Mesh, Tree
from headgate.reports import colours
from headgate.reports.topology import Occupancy, short, tree_of, uses_of

_WIDTH, _MARGIN = 960.0, 12.0
_INSIDE = _WIDTH - 2 * _MARGIN
_SIZE = "width:100%;min-width:720px;max-width:1440px;height:auto"
"""As wide as the window; on a phone it scrolls, so that names can be read."""

_LETTER = 6.6  # width of a letter, at most on average
_LEVEL, _LINK, _BETWEEN = 26.0, 4.0, 18.0
_LEAST_CELL, _MOST_CELL, _MOST_STEP = 16.0, 120.0, 64.0
_FREE, _DOWN, _ABOVE, _INK = "#ffffff", "#9aa4ae", "#e8ecf1", "#1d2430"


def as_svg(occupancy: Occupancy, load: Floats | None = None) -> str:
    """Return the drawing as an SVG file; `load` is the use of every link, 0 to 1, as a heat map."""
    topology = occupancy.topology
    if isinstance(topology, Mesh):
        height, parts = _mesh(topology, occupancy, load)
    else:
        height, parts = _tree(tree_of(topology), occupancy, uses_of(topology, load))
    bottom, named = _legend(occupancy, height + 10, links=load is not None)
    body = "".join((*parts, *named))
    words = f"Topology with {occupancy.free(0, topology.leaves)} and the jobs on the others"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {bottom:g}" '
        f'width="{_WIDTH:g}" height="{bottom:g}" style="{_SIZE}" role="img" aria-labelledby="name" '
        'font-family="system-ui,DejaVu Sans,sans-serif" font-size="11">'
        f'<title id="name">{escape(words)}</title>{colours.hatches(body)}'
        f'<rect width="{_WIDTH:g}" height="{bottom:g}" fill="#fff"/>{body}</svg>\n'
    )


# --- trees ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Band:
    """Leaves that are drawn beside each other, from `top` on; `cell` is the width of one."""

    first: int
    end: int
    top: float
    cell: float


def _tree(tree: Tree, occupancy: Occupancy, uses: Floats | None) -> tuple[float, list[str]]:
    """Return the height and the parts: a box per vertex, above those of its children.

    What is above several bands is drawn in each.
    """
    most = max(1, int(_INSIDE / _cell(tree, occupancy)))
    bands = len(_band_ends(tree, most))
    even = -(-tree.leaves // bands)
    ends = next(e for n in range(even, most + 1) if len(e := _band_ends(tree, n)) <= bands)
    firsts = [0, *ends[:-1]]
    longest = max(end - first for first, end in zip(firsts, ends, strict=True))
    cell = min(_MOST_CELL, _INSIDE / longest)
    height = (float(tree.depth.max()) + 1) * _LEVEL + _BETWEEN
    parts = []
    for number, (first, end) in enumerate(zip(firsts, ends, strict=True)):
        band = _Band(first, end, _MARGIN + number * height, cell)
        inside = (tree.first_leaf < end) & (tree.end_leaf > first)
        for v in np.flatnonzero(inside).tolist():
            parts += _vertex(tree, v, band, occupancy, uses)
    return _MARGIN + len(ends) * height - _BETWEEN, parts


def _cell(tree: Tree, occupancy: Occupancy) -> float:
    """Return the least width of a leaf: that of the names of rows and of what is between.

    Names of jobs are in the legend, too: they count if all leaves fit beside each other.
    """
    level, wanted = _node_level(tree), _LEAST_CELL
    inner = tree.end > np.arange(tree.vertices) + 1
    for v in np.flatnonzero((tree.level == level) | ((tree.level > level) & inner)):
        leaves = int(tree.end_leaf[v] - tree.first_leaf[v])
        wanted = max(wanted, (len(short(tree, int(v))) * _LETTER + 8) / leaves)
    jobs = max((len(job) * _LETTER + 8 for job in occupancy.letters), default=0.0)
    if tree.leaves * max(wanted, jobs) <= _INSIDE:
        wanted = max(wanted, jobs)
    return min(_MOST_CELL, wanted)


def _node_level(tree: Tree) -> int:
    """Return the level of nodes, whose GPUs stay beside each other; else the one above leaves."""
    names = tree.level_names
    return names.index("node") if "node" in names else max(int(tree.level.max()) - 1, 0)


def _band_ends(tree: Tree, most: int) -> list[int]:
    """Return the ends of bands of at most so many leaves: whole rows, or parts of longer ones."""
    level = _node_level(tree)
    ends, first = list[int](), 0
    for v in range(tree.vertices):
        if tree.level[v] != level and tree.end[v] != v + 1:
            continue
        if v and tree.level[v] > level and tree.level[tree.parent[v]] >= level:
            continue
        end = int(tree.end_leaf[v])
        if end - first > most and int(tree.first_leaf[v]) > first:
            first = int(tree.first_leaf[v])
            ends.append(first)
        while end - first > most:
            first += most
            ends.append(first)
    return [*ends, tree.leaves]


def _vertex(
    tree: Tree, v: int, band: _Band, occupancy: Occupancy, uses: Floats | None
) -> list[str]:
    """Return the box of a vertex within a band, with its link and its name."""
    first, end = int(tree.first_leaf[v]), int(tree.end_leaf[v])
    left, right = max(first, band.first), min(end, band.end)
    x = _MARGIN + (left - band.first) * band.cell
    y = band.top + float(tree.depth[v]) * _LEVEL
    width = (right - left) * band.cell - 2
    is_leaf = tree.end[v] == v + 1
    name = visible(short(tree, v))
    title = visible(tree.label(v))
    title += f": {occupancy.words(first)}" if is_leaf else f", {occupancy.free(first, end)}"
    parts = []
    if uses is not None and v:
        title += f", link {uses[v]:.0%}"
        parts.append(_box(x, y, width, _LINK, colours.heat(float(uses[v])), title))
        name += f" · {uses[v]:.0%}" if uses[v] and not is_leaf else ""
    height = _LEVEL - _LINK - 4
    if is_leaf:
        return [*parts, *_leaf(x, y + _LINK, width, height, occupancy, first, name, title)]
    parts.append(_box(x, y + _LINK, width, height, _ABOVE, title))
    return [*parts, *_words(x, y + _LINK + height / 2, width, (name, short(tree, v)))]


# --- meshes --------------------------------------------------------------------------------------


def _mesh(mesh: Mesh, occupancy: Occupancy, load: Floats | None) -> tuple[float, list[str]]:
    """Return the height and the parts: a square per leaf, planes below each other, and links."""
    rows, columns = [1, *mesh.shape][-2:]
    planes = math.prod(mesh.shape) // (rows * columns)
    step = min(_INSIDE / columns, _MOST_STEP)
    plane, row, column = np.unravel_index(np.arange(mesh.leaves), (planes, rows, columns))
    x, y = _MARGIN + column * step, _MARGIN + (row + plane * (rows + 0.5)) * step
    side, parts = step * 0.6, list[str]()
    for leaf in range(mesh.leaves):
        title = f"{visible(mesh.label(leaf))}: {occupancy.words(leaf)}"
        square, name = (x[leaf], y[leaf], side, side), visible(mesh.label(leaf))
        parts += _leaf(*square, occupancy, leaf, name, title)
    for link, (a, b) in enumerate(zip(mesh.tail.tolist(), mesh.head.tolist(), strict=True)):
        near = abs(x[a] - x[b]) + abs(y[a] - y[b]) < 1.5 * step and plane[a] == plane[b]
        if not near or (load is None and a > b):
            continue
        aside = side / 2 + (0.0 if load is None else side / 8 * (1 if a < b else -1))
        colour = _DOWN if load is None else colours.heat(float(load[link]))
        x1, x2 = (x[a] + aside, x[b] + aside) if x[a] == x[b] else _between(x[a], x[b], side)
        y1, y2 = (y[a] + aside, y[b] + aside) if y[a] == y[b] else _between(y[a], y[b], side)
        title = mesh.link_label(link) + ("" if load is None else f": {load[link]:.0%}")
        parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="{max(step / 16, 1):.1f}"><title>{escape(visible(title))}</title></line>'
        )
    return float(y.max() + side), parts


def _between(a: float, b: float, side: float) -> tuple[float, float]:
    """Return the ends of a line between two squares in one direction."""
    return (a + side, b) if a < b else (a, b + side)


# --- parts ---------------------------------------------------------------------------------------


def _leaf(
    x: float,
    y: float,
    width: float,
    height: float,
    occupancy: Occupancy,
    leaf: int,
    name: str,
    title: str,
) -> list[str]:
    """Return the box of a leaf in the look of its job, with the job's name or letter if it fits."""
    held, middle = occupancy.holders[leaf], y + height / 2
    if not held:
        usable = occupancy.usable[leaf]
        box = _box(x, y, width, height, _FREE if usable else _DOWN, title)
        return [box, *_words(x, middle, width, (name, name.rpartition(":")[2]))]
    job = held[0]
    names = [f"{visible(job)} +{len(held) - 1}", "*"] if len(held) > 1 else [visible(job)]
    colour, ground = colours.ink(job), colours.ground(job)
    return [
        _box(x, y, width, height, colours.fill(job), title),
        *_words(x, middle, width, (*names, occupancy.symbol(leaf)), colour, ground),
    ]


def _box(x: float, y: float, width: float, height: float, fill: str, title: str) -> str:
    edge = f' stroke="{_DOWN}" stroke-width="0.8"' if fill == _FREE else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}" fill="{fill}"'
        f"{edge}><title>{escape(visible(title))}</title></rect>"
    )


def _words(
    x: float, middle: float, width: float, names: Sequence[str], ink: str = _INK, ground: str = ""
) -> list[str]:
    """Return the first of some names that fits into a box, if one does; `ground` is around it."""
    fitting = [name for name in names if name and _LETTER * len(name) + 6 <= width]
    if not fitting:
        return []
    halo = f' stroke="{ground}" stroke-width="4" paint-order="stroke"' if ground else ""
    return [
        (
            f'<text x="{x + width / 2:.1f}" y="{middle + 4:.1f}" text-anchor="middle" '
            f'fill="{ink}"{halo}>{escape(fitting[0])}</text>'
        )
    ]


def _legend(occupancy: Occupancy, top: float, *, links: bool) -> tuple[float, list[str]]:
    """Return the end and the parts of the legend: jobs, states, and what red means."""
    leaves = range(occupancy.topology.leaves)
    free = any(occupancy.usable[leaf] and not occupancy.holders[leaf] for leaf in leaves)
    down = any(not occupancy.usable[leaf] for leaf in leaves)
    entries = [
        (colours.fill(job), f"{letter} {visible(job)}") for job, letter in occupancy.letters.items()
    ]
    entries += [(_FREE, "free")] * free + [(_DOWN, "down or unknown")] * down
    if any(len(held) > 1 for held in occupancy.holders):
        entries.append((_ABOVE, "* several jobs, in the colour of the first"))
    parts, x, y = list[str](), _MARGIN, top
    for fill, words in entries:
        width = len(words) * _LETTER + 34
        if x > _MARGIN and x + width > _WIDTH:
            x, y = _MARGIN, y + 20
        parts.append(_box(x, y, 13, 13, fill, words))
        parts.append(f'<text x="{x + 19:.1f}" y="{y + 11:.1f}">{escape(words)}</text>')
        x += width
    if links:
        y += 24
        parts += _scale(y)
    return y + 13 + _MARGIN, parts


def _scale(y: float) -> list[str]:
    """Return the legend of the colours of links."""
    step, boxes, x = 14.0, 11, _MARGIN + 150
    words = (
        (_MARGIN, "Use of links: 0 % (grey)"),
        (x + boxes * step + 8, "100 %: red is a full link, on which jobs slow each other down"),
    )
    return [
        *(f'<text x="{left:.1f}" y="{y + 11:.1f}">{escape(text)}</text>' for left, text in words),
        *(
            _box(x + n * step, y, step, 13, colours.heat(n / (boxes - 1)), f"{n * 10} %")
            for n in range(boxes)
        ),
    ]
