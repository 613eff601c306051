"""Fragmentation of free GPUs for a mix of demands, and the policy that descends its gradient.

Published by Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent", USENIX ATC 2023. What is free on a node is a fragment for a demand
if the demand does not fit there; if it does, those GPUs are whose free part is too small. A node's
fragmentation is the mean over the mix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.planning.packing.mix import Mix
from headgate.planning.packing.room import WHOLE, FreeNodes, PodDemand, fits
from headgate.planning.packing.scorers import Options, Scorer

_DIGITS = 6  # of a thousandth of a GPU: equal nodes have equal growth, however sums are rounded
_SCORES = 100


def usable_milli(room: FreeNodes, mix: Mix) -> Floats:
    """Return by node what a pod of the mix can use of the free GPUs, in the mean."""
    return _usable(room.cpu_milli, room.gpu, mix, mix.accepted(room.model))


def fragment_milli(room: FreeNodes, mix: Mix) -> Floats:
    """Return by node the free thousandths of GPUs that are fragments for a pod of the mix."""
    return room.free_milli() - usable_milli(room, mix)


def _usable(cpu_milli: Ints, gpu: Ints, mix: Mix, accepted: Bools) -> Floats:
    """Return what is usable; `cpu_milli` [n], `gpu` [n, g], `accepted` [n, demands]."""
    enough = gpu[:, :, None] >= mix.levels  # [n, g, levels]
    count = enough.sum(axis=1)
    free = np.where(enough, gpu[:, :, None], 0).sum(axis=1)
    fit = (cpu_milli[:, None] >= mix.cpu_milli) & accepted
    fit &= (count[:, mix.level] >= mix.gpus) & (mix.gpus > 0)
    usable: Floats = np.where(fit, free[:, mix.level] * mix.share, 0.0).sum(axis=1)
    return usable


@dataclass(frozen=True, slots=True)
class Fgd(Scorer):
    """The node and GPU where fragmentation for the mix grows least.

    As published, growth in GPUs is compared by whole percents of the logistic function. Nodes whose
    growth differs little are thus equal, so that the first of them fills up before the next one.
    """

    mix: Mix

    def options(self, room: FreeNodes, demand: PodDemand) -> Options:
        nodes = len(room)
        cost, slot = np.full(nodes, np.inf), np.zeros(nodes, np.int64)
        rows = np.flatnonzero(fits(room, demand))
        if not len(rows):
            return Options(cost, slot)
        some = room.rows(rows)
        before = fragment_milli(some, self.mix)
        node, slots, cpu_milli, gpu = placed(some, demand)
        accepted = self.mix.accepted(some.model)[node]
        after = gpu.sum(axis=1) - _usable(cpu_milli, gpu, self.mix, accepted)
        grows = np.round(after - before[node], _DIGITS)
        score = np.floor(_SCORES / (1 + np.exp(grows / WHOLE)) + 10.0**-_DIGITS)
        best, chosen = first_least(node, -score, len(rows))
        cost[rows], slot[rows] = best, slots[chosen]
        return Options(cost, slot)


def placed(room: FreeNodes, demand: PodDemand) -> tuple[Ints, Ints, Ints, Ints]:
    """Return every way to place a demand on nodes that have room for it.

    That is by way: the node, the GPU if it takes one, and what is free afterwards: CPUs, and GPUs
    [ways, g]. GPUs of one node with equal free parts are one way; several GPUs are those with the
    least free. Ways are in order of nodes, then of free parts.
    """
    nodes = np.arange(len(room))
    if demand.gpus == 0:
        return nodes, np.zeros_like(nodes), room.cpu_milli - demand.cpu_milli, room.gpu
    order = np.argsort(room.gpu, axis=1, kind="stable")
    free = np.take_along_axis(room.gpu, order, axis=1)
    enough = free >= demand.milli
    if demand.gpus == 1:
        first = np.ones_like(enough)
        first[:, 1:] = free[:, 1:] != free[:, :-1]
        node, place = np.nonzero(enough & first)
        slots = order[node, place]
        gpu = room.gpu[node]
        gpu[np.arange(len(node)), slots] -= demand.milli
        return node, slots, room.cpu_milli[node] - demand.cpu_milli, gpu
    taken = enough & (enough.cumsum(axis=1) <= demand.gpus)
    gpu = free - np.where(taken, demand.milli, 0)
    return nodes, np.zeros_like(nodes), room.cpu_milli - demand.cpu_milli, gpu


def first_least(node: Ints, cost: Floats, nodes: int) -> tuple[Floats, Ints]:
    """Return by node the least cost of its ways, and the first way with that; `node` ascends."""
    starts = np.searchsorted(node, np.arange(nodes))
    least = np.minimum.reduceat(cost, starts)
    ways = np.flatnonzero(cost == least[node])
    chosen = ways[np.searchsorted(node[ways], np.arange(nodes))]
    return least, chosen
