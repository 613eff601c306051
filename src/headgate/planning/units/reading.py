"""Seconds that a task reads on each node."""

from __future__ import annotations

from itertools import chain

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.state import Snapshot


def read_s_by_node(snapshot: Snapshot, task: int, rack: Ints, size_bytes: Ints) -> Floats:
    """Return the seconds of reading on each node, `[nodes]`, as `View.expected_read_s`."""
    shards = snapshot.reads(task)
    if not any(size_bytes[list(shards)]):
        return np.zeros(len(rack))
    holders = [snapshot.replicas(shard) for shard in shards]
    size = size_bytes[list(shards)] if shards else np.zeros(0, np.int64)
    read = np.repeat(np.arange(len(shards)), [len(nodes) for nodes in holders])
    node = np.fromiter(chain.from_iterable(holders), np.int64)
    racks = int(rack.max(initial=0)) + 1
    nearby, where = np.divmod(
        np.unique(read * racks + rack[node]), racks
    )  # each rack with a replica, once per shard
    on_node = np.bincount(node, size[read], len(rack))  # sums of bytes are exact below 2^53
    in_rack = np.bincount(where, size[nearby], racks)[rack]
    bandwidth = snapshot.bandwidth
    seconds: Floats = (
        on_node / bandwidth.disk_bytes_per_s
        + (in_rack - on_node) / bandwidth.rack_bytes_per_s
        + (size.sum() - in_rack) / bandwidth.cluster_bytes_per_s
    )
    return seconds
