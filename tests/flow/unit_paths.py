"""Path decomposition of a flow: the path of each unit."""

from __future__ import annotations

import numpy as np

from headgate.base.arrays import Ints
from headgate.flow.network import BadNetwork, Network


def unit_paths(network: Network, flow: Ints, starts: Ints) -> Ints:
    """Return one path per start vertex (repeats allowed) through a flow without cycles.

    Shape `[starts, longest path]`: the arcs of each path in order, padded with -1. Each path
    follows arcs that still carry flow until it comes to a vertex that none leaves; no arc is used
    more often than it carries flow. Where units are interchangeable, those of earlier starts take
    the arcs of lower number. O(longest path x (arcs with flow + starts)). Raises BadNetwork when
    the flow does not have the units to start.
    """
    used = np.flatnonzero(flow)
    used = used[np.argsort(network.tail[used], kind="stable")]
    tail, head, left = network.tail[used], network.head[used], flow[used].copy()
    leaves = np.zeros(network.vertices, bool)
    leaves[tail] = True
    at = starts.astype(np.int64, copy=True)
    steps: list[Ints] = []
    while (moving := np.flatnonzero(leaves[at])).size:
        moving = moving[np.argsort(at[moving], kind="stable")]
        taken = _take(tail, left, at[moving])
        step = np.full(len(starts), -1, np.int64)
        step[moving] = used[taken]
        steps.append(step)
        at[moving] = head[taken]
        left -= np.bincount(taken, minlength=len(left))
    return np.stack(steps, axis=1) if steps else np.empty((len(starts), 0), np.int64)


def _take(tail: Ints, left: Ints, at: Ints) -> Ints:
    """Return for each unit (`at` ascending) the arc it takes, as an index into `tail`."""
    # Every arc counts as one slot per unit of flow left; the n-th unit of a vertex takes the n-th
    # slot among those that leave it.
    slot = np.repeat(np.arange(len(tail)), left)
    slot_tail = tail[slot]
    nth = np.arange(len(at)) - np.searchsorted(at, at)
    place = np.searchsorted(slot_tail, at) + nth
    if place.max() >= len(slot) or (slot_tail[place] != at).any():
        raise BadNetwork("more units start than the flow carries away")
    return slot[place]
