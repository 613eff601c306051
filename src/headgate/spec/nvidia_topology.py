"""The text of `nvidia-smi topo -m`: how the GPUs of a node are connected."""

from __future__ import annotations

import re

import numpy as np

from headgate.base.errors import Problem, SpecError
from headgate.model.topology import NodeShape
from headgate.model.topology.closeness import Closeness, node_shape

_GPU = re.compile(r"GPU([0-9]+)")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_CLOSENESS = {
    "PIX": Closeness.SWITCH,
    "PXB": Closeness.SWITCH,
    "PHB": Closeness.BRIDGE,
    "NODE": Closeness.SOCKET,
    "SYS": Closeness.SYSTEM,
}
_HINT = "save the whole output: nvidia-smi topo -m > topo.txt"


def parse_nvidia_topology(text: str, *, name: str = "topo.txt") -> NodeShape:
    """Return what is below a node; raise SpecError with every problem of the text.

    NVLinks hide which PCIe switches two GPUs are on: these count as their own group only where
    some GPUs are joined by NVLinks and others are not.
    """
    problems: list[Problem] = []
    columns: list[int] = []
    rows: dict[int, dict[int, str]] = {}
    for number, line in enumerate(_ESCAPES.sub("", text).splitlines(), start=1):
        words = line.split()
        if not words or not _GPU.fullmatch(words[0]):
            continue
        if not columns:
            columns = [int(m[1]) for word in words if (m := _GPU.fullmatch(word))]
            continue
        gpu = int(words[0].removeprefix("GPU"))
        cells = dict(zip(columns, words[1:], strict=False))
        if len(cells) < len(columns) or gpu not in columns or gpu in rows:
            what = f"the row of GPU{gpu} does not match the heading"
            problems.append(Problem(path=name, problem=what, line=number))
        for other, cell in cells.items():
            if not _is_known(cell, diagonal=other == gpu):
                what = f"unknown connection '{cell}' of GPU{gpu} and GPU{other}"
                problems.append(Problem(path=name, problem=what, line=number))
        rows[gpu] = cells
    if not columns or len(rows) < len(columns):
        what = "has no matrix of GPUs" if not columns else "lacks rows of its matrix of GPUs"
        problems.append(Problem(path=name, problem=what, hint=_HINT))
    if problems:
        raise SpecError(problems)
    cells_of = [[rows[a][b] for b in sorted(columns)] for a in sorted(columns)]
    near = np.array([[_closeness(cell) for cell in row] for row in cells_of])
    nvlinks = [int(cell[2:]) for row in cells_of for cell in row if cell.startswith("NV")]
    return node_shape(np.minimum(near, near.T), nvlinks=min(nvlinks, default=0))


def _is_known(cell: str, *, diagonal: bool) -> bool:
    if diagonal:
        return cell == "X"
    return cell in _CLOSENESS or re.fullmatch(r"NV[1-9][0-9]?", cell) is not None


def _closeness(cell: str) -> int:
    if cell == "X":
        return 0
    return _CLOSENESS.get(cell, Closeness.NVLINK)


def gpus_yaml(shape: NodeShape) -> str:
    """Return a shape as the key `gpus` of a topology file."""
    lines = ["gpus:", f"  bandwidth: {shape.gpu_bytes_per_s:g}"]
    if shape.levels:
        lines.append("  levels:")
    for level in shape.levels:
        groups = ", ".join(f"[{', '.join(map(str, group))}]" for group in level.groups)
        lines.append(
            f"    - {{name: {level.name}, bandwidth: {level.bytes_per_s:g}, groups: [{groups}]}}"
        )
    return "\n".join(lines)
