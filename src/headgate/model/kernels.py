"""Volumes of known programs: the eight NPB kernels, and data-parallel training.

NPB: problem sizes and iterations are those of the NAS Parallel Benchmarks 3.3 (NAS-95-020); the
volumes are derived from the algorithms of its MPI programs, largest messages only (docs/
contention.md has the formulas, and where a pattern stands in for another one). Training: the
gradients of all parameters, 4 bytes each, are summed once a step; parameters as published with the
models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headgate.model.communication import Pattern

CLASSES = "ABCD"
"""Classes of NPB problems, by size."""

# by class: what the comment says, and the iterations
_PAIRS = {"A": 28, "B": 30, "C": 32, "D": 36}  # EP: binary logarithm; sums once, at the end
_KEYS = {"A": 23, "B": 25, "C": 27, "D": 31}  # IS: binary logarithm; 10 iterations
_FFT = {"A": (23, 6), "B": (25, 20), "C": (27, 20), "D": (31, 25)}  # FT: log2 of grid points
_ORDER = {"A": (14_000, 15), "B": (75_000, 75), "C": (150_000, 75), "D": (1_500_000, 100)}  # CG
_MULTIGRID = {"A": (256, 4), "B": (256, 20), "C": (512, 20), "D": (1024, 50)}  # MG: side
_SIDE = {"A": 64, "B": 102, "C": 162, "D": 408}  # LU, BT, SP
_TURNS = {
    "LU": {"A": 250, "B": 250, "C": 250, "D": 300},
    "BT": {"A": 200, "B": 200, "C": 200, "D": 250},
    "SP": {"A": 400, "B": 400, "C": 400, "D": 500},
}
_CG_INNER = 26  # matrix products of an iteration of CG: 25 steps and a norm
_NUMBER = 8  # bytes

KERNELS = ("EP", "IS", "FT", "CG", "MG", "LU", "BT", "SP")
"""The kernels and pseudo-applications of NPB."""

MODELS = {
    "alexnet": 61_100_840,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "deep-speech-2": 35_000_000,  # about, of its English model
    "gpt-2": 124_439_808,
    "inception-v3": 27_161_264,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "vgg16": 138_357_544,
}
"""Parameters of models that are trained data-parallel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """What a program sends: its pattern, bytes per step as `Communication`, and its steps."""

    pattern: Pattern
    bytes_per_step: int
    steps: int


def wrong_processes(kernel: str, processes: int) -> str:
    """Return what numbers of processes an NPB kernel runs on if this is none of them, else ""."""
    if kernel in ("BT", "SP"):
        return "" if math.isqrt(processes) ** 2 == processes else "square numbers"
    if kernel == "EP" or processes & (processes - 1) == 0:
        return ""
    return "powers of two"


def npb_volume(kernel: str, size: str, processes: int) -> Volume:
    """Return what a kernel of NPB sends on so many processes, per iteration.

    `size` is its class. `wrong_processes` names the numbers of processes that it runs on.
    """
    p = processes
    if kernel == "EP":  # ten counts and two sums
        return Volume(pattern=Pattern.TREE, bytes_per_step=12 * _NUMBER, steps=1)
    if kernel == "IS":  # keys of 4 bytes
        size_bytes = 4 * 2 ** _KEYS[size] / p
        return Volume(pattern=Pattern.ALL_TO_ALL, bytes_per_step=round(size_bytes), steps=10)
    if kernel == "FT":  # one transposition of complex numbers
        points, steps = _FFT[size]
        size_bytes = 2 * _NUMBER * 2**points / p
        return Volume(pattern=Pattern.ALL_TO_ALL, bytes_per_step=round(size_bytes), steps=steps)
    sent, steps = _GRIDS[kernel](size, p)
    per_neighbour = round(sent * _NUMBER / 4)
    return Volume(pattern=Pattern.NEIGHBOURS, bytes_per_step=per_neighbour, steps=steps)


# What one process inside the grid sends to its four neighbours together: numbers, and the steps.


def _cg(size: str, p: int) -> tuple[float, int]:
    order, turns = _ORDER[size]
    stages = (p.bit_length()) // 2  # of the sums over the columns of processes, 2 ** stages
    rows = p / 2**stages
    return order / rows * (stages + 1), turns * _CG_INNER


def _mg(size: str, p: int) -> tuple[float, int]:
    side, turns = _MULTIGRID[size]
    power = p.bit_length() - 1
    across = [2 ** ((power + 2 - axis) // 3) for axis in range(3)]  # processes
    local = [side / a for a in across]
    faces = sum(math.prod(local) / local[axis] for axis in range(3) if across[axis] > 1)
    # three exchanges of both faces on every level, each level a quarter of the one above
    return 3 * 4 / 3 * 2 * faces, turns


def _lu(size: str, p: int) -> tuple[float, int]:
    side = _SIDE[size]
    # to each of four: five numbers for each point of a side in a sweep, twice two layers for both
    return 4 * 15 * side * side / math.sqrt(p), _TURNS["LU"][size]


def _solved(size: str, p: int, numbers: int) -> float:
    """Return what BT and SP send: six faces of two layers, and along three dimensions of solving.

    `numbers` are those sent for each point of a cell's face, forward and back.
    """
    side, q = _SIDE[size], math.sqrt(p)
    return 6 * 2 * 5 * side**2 / q + 3 * numbers * side**2 * (q - 1) / q**2


def _bt(size: str, p: int) -> tuple[float, int]:
    return _solved(size, p, 5 * 5 + 5 + 5), _TURNS["BT"][size]


def _sp(size: str, p: int) -> tuple[float, int]:
    return _solved(size, p, 22 + 10), _TURNS["SP"][size]


_GRIDS = {"CG": _cg, "MG": _mg, "LU": _lu, "BT": _bt, "SP": _sp}


def training_volume(model: str) -> Volume:
    """Return what a step of data-parallel training sends: all gradients, summed over a ring."""
    return Volume(pattern=Pattern.RING, bytes_per_step=4 * MODELS[model], steps=1)
