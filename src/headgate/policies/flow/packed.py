"""Tasks that read nothing, which the flow may place on any free GPU, where others miss it least."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headgate.base.arrays import Ints
from headgate.planning.packing.cluster import ClusterPacking
from headgate.planning.shares.standing import Standing
from headgate.policies.flow.placed import Placed
from headgate.state import Scratch


def packed(standing: Standing, scratch: Scratch, starts: Placed) -> Placed:
    """Return the starts with other nodes for tasks without inputs, on GPUs of the same class.

    By demand and class, nodes are filled in the order of what others miss if one task starts there
    (`planning.packing.cluster`). O(tasks + nodes x log), and for each demand and class O(nodes with
    free GPUs x their GPUs x demands in flight).
    """
    packing = ClusterPacking(scratch)
    if not len(starts.task) or not packing.matters:
        return starts
    snapshot, rows = standing.snapshot, standing.task[starts.task]
    offsets, _ = snapshot.inputs.shards.flat(snapshot.tasks.input.take(rows).astype(np.int64))
    reads = np.diff(offsets) > 0
    free = standing.free.copy()
    np.subtract.at(free, (starts.node[reads], starts.gpu_class[reads]), 1)
    is_open = np.zeros(len(snapshot.gpus.node), bool)
    is_open[standing.free_gpu] = True
    demand, classes = snapshot.tasks.demand.take(rows).astype(np.int64), free.shape[1]
    pair, node = demand * classes + starts.gpu_class, starts.node.copy()
    for each in np.unique(pair[~reads]).tolist():
        some = np.flatnonzero((pair == each) & ~reads)
        gpu_class = each % classes
        room = _room(scratch, each // classes, free[:, gpu_class])
        nodes = np.flatnonzero(room)
        if room.sum() < len(some):
            return starts  # some lack CPUs or memory, and start where they find them
        loss, _ = packing.losses(each // classes, nodes, is_open)
        nodes = nodes[np.lexsort((room[nodes], loss))]
        nodes_of = np.repeat(nodes, room[nodes])[: len(some)]
        node[some] = nodes_of
        np.subtract.at(free[:, gpu_class], nodes_of, 1)
    return replace(starts, node=node)


def _room(scratch: Scratch, demand: int, free: Ints) -> Ints:
    """Return how many tasks of a demand start on each node, given its free GPUs."""
    return np.minimum(scratch.ledger.room(demand), np.maximum(free, 0))
