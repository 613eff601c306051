"""What is below a node, from how near its GPUs are to each other."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from headgate.base.arrays import Ints
from headgate.model.cluster_topology import GroupLevel, NodeShape

PCIE_BYTES_PER_S = 16e9
"""Bandwidth of 16 lanes of PCI Express of the third generation."""

SOCKET_BYTES_PER_S = 20e9
"""Bandwidth between processors, as of two UPI links."""

NVLINK_BYTES_PER_S = 25e9
"""Bandwidth of one NVLink of the second or third generation."""


class Closeness(IntEnum):
    """What a message between two GPUs of a node crosses at most; larger is farther."""

    NVLINK = 1
    SWITCH = 2  # PCIe switches
    BRIDGE = 3  # a PCIe host bridge
    SOCKET = 4  # several host bridges of one processor
    SYSTEM = 5  # the link between processors


_ABOVE = {
    Closeness.NVLINK: PCIE_BYTES_PER_S,
    Closeness.SWITCH: PCIE_BYTES_PER_S,
    Closeness.BRIDGE: PCIE_BYTES_PER_S,
    Closeness.SOCKET: SOCKET_BYTES_PER_S,
}


def node_shape(closeness: Ints, *, nvlinks: int = 0) -> NodeShape:
    """Return the groups of GPUs; `closeness[a, b]` is that of GPUs a and b, in both orders.

    `nvlinks` is the least number of NVLinks between two GPUs that have any. A level that separates
    no GPUs, or groups none, is left out. Bandwidths are usual ones, since none are reported.
    """
    count = len(closeness)
    levels: list[GroupLevel] = []
    last = count
    for level, rate in _ABOVE.items():
        groups = _groups(closeness <= level)
        if len(groups) not in (last, 1):
            name = level.name.lower()
            levels.insert(0, GroupLevel(name=name, bytes_per_s=rate, groups=tuple(groups)))
            last = len(groups)
    own = nvlinks * NVLINK_BYTES_PER_S
    return NodeShape(levels=tuple(levels), gpu_bytes_per_s=own or PCIE_BYTES_PER_S)


def _groups(near: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> list[tuple[int, ...]]:
    """Return the sets of GPUs that are near each other, directly or through others."""
    group = np.arange(len(near))
    for a, b in zip(*np.nonzero(near), strict=True):
        group[group == group[a]] = group[b]
    return [tuple(np.flatnonzero(group == g).tolist()) for g in dict.fromkeys(group.tolist())]
