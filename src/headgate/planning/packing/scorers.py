"""How policies rank the nodes that have room for a pod.

A scorer is a pure function of what is free on nodes and of one demand: the costs of the nodes, the
least first, and which of their GPUs a demand for one GPU takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.planning.packing.room import WHOLE, FreeNodes, PodDemand, fits, kind_of, tightest

__all__ = [
    "BestFit",
    "DotProduct",
    "GpuClustering",
    "GpuPacking",
    "NodeScorer",
    "Options",
    "Scorer",
    "Uniform",
]

LARGEST_CPU_MILLI = 128_000
LARGEST_GPU_MILLI = 8 * WHOLE
"""The largest node: CPUs and GPUs of different nodes are compared relative to it."""

_ROUNDING = 1e-9  # relative to a percent: sums that are whole but for rounding stay so


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """By node the cost of placing a demand there, infinite without room, and on which GPU."""

    cost: Floats
    slot: Ints


class Scorer(ABC):
    """Ranks nodes for a demand."""

    @abstractmethod
    def options(self, room: FreeNodes, demand: PodDemand) -> Options:
        """Return costs and GPUs by node; nodes are independent of each other."""


class NodeScorer(Scorer):
    """Ranks nodes; a demand for one GPU takes the one with the least free."""

    def options(self, room: FreeNodes, demand: PodDemand) -> Options:
        cost = np.where(fits(room, demand), self.cost(room, demand), np.inf)
        return Options(cost, tightest(room, demand))

    @abstractmethod
    def cost(self, room: FreeNodes, demand: PodDemand) -> Floats:
        """Return the cost by node, meaningful where the demand fits."""


class Uniform(NodeScorer):
    """All nodes with room are equal."""

    def cost(self, room: FreeNodes, demand: PodDemand) -> Floats:
        del demand
        return np.zeros(len(room))


def _percents(cost: Floats) -> Floats:
    """Return costs from 0 to 1 in whole percents, rounded up, as the published scores are."""
    found: Floats = np.ceil(100 * cost - _ROUNDING)
    return found


class BestFit(NodeScorer):
    """The node with the least left of CPUs and GPUs, each relative to the largest node."""

    def cost(self, room: FreeNodes, demand: PodDemand) -> Floats:
        cpu = (room.cpu_milli - demand.cpu_milli) / LARGEST_CPU_MILLI
        gpu = (room.free_milli() - demand.gpu_milli) / LARGEST_GPU_MILLI
        return _percents(0.5 * cpu + 0.5 * gpu)


class DotProduct(NodeScorer):
    """The node with the least inner product of what is free and of what is asked."""

    def cost(self, room: FreeNodes, demand: PodDemand) -> Floats:
        cpu = room.cpu_milli * (demand.cpu_milli / LARGEST_CPU_MILLI**2)
        gpu = room.free_milli() * (demand.gpu_milli / LARGEST_GPU_MILLI**2)
        return _percents(0.5 * cpu + 0.5 * gpu)


class GpuPacking(NodeScorer):
    """First GPUs that are shared already, then free GPUs of used nodes, last idle nodes.

    Among shared GPUs those with the least free, among free GPUs the fewest that are taken, among
    idle nodes those with the fewest GPUs. Demands without GPUs have no preference.
    """

    def cost(self, room: FreeNodes, demand: PodDemand) -> Floats:
        if demand.gpus == 0:
            return np.zeros(len(room))
        whole = (room.gpu == WHOLE).sum(axis=1)
        idle = whole == room.gpus
        enough = np.where(room.gpu >= demand.milli, room.gpu, 0)
        most = np.iinfo(np.int64).max
        taken = np.sort(np.where(enough > 0, enough, most), axis=1)[:, : demand.gpus]
        taken_whole = (taken == WHOLE).sum(axis=1)
        shared = np.where(taken < most, taken, 0).sum(axis=1) / WHOLE
        steps = LARGEST_GPU_MILLI / WHOLE + 1  # more than a tier is wide
        tier = np.where(idle, 2.0, np.where(taken_whole > 0, 1.0, 0.0))
        within = np.where(idle, room.gpus, np.where(taken_whole > 0, taken_whole, shared))
        return tier * steps + within


class GpuClustering(NodeScorer):
    """Nodes with pods of the same kind alone, then with others too, then idle, then the others.

    Within each the node with the least free of its GPUs. Demands without GPUs have no preference.
    """

    def cost(self, room: FreeNodes, demand: PodDemand) -> Floats:
        if demand.gpus == 0:
            return np.zeros(len(room))
        kind = kind_of(demand)
        same = (room.kinds & kind) > 0
        alone = room.kinds == kind
        idle = room.kinds == 0
        tier = np.where(alone, 0.0, np.where(same, 1.0, np.where(idle, 2.0, 3.0)))
        return tier + room.free_milli() / (LARGEST_GPU_MILLI + 1)
