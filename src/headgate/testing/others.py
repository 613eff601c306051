"""What processes outside Headgate use of nodes, at random: for tests."""

from __future__ import annotations

from headgate.base.rng import Random
from headgate.model import Node
from headgate.protocol import GpuOutside, Outside
from headgate.state import State

_PID = 4711


def random_outside(rng: Random, node: Node) -> Outside:
    """Return what others use of a node: nothing, some or all of each that it has."""
    gpus = [
        GpuOutside(index, rng.randint(1, gpu.memory_bytes), _PID)
        for index, gpu in enumerate(node.gpus)
        if gpu.memory_bytes and rng.random() < 0.4
    ]
    return Outside(
        cpus_milli=rng.choice((0, 500 * node.cpus, 1000 * node.cpus)),
        memory_bytes=rng.choice((0, rng.randint(0, node.memory_bytes or 0))),
        gpus=tuple(gpus),
    )


def use_outside(state: State, rng: Random, *, chance: float) -> None:
    """Have others use some of a node that is up, with this chance."""
    nodes = state.live_nodes()
    if nodes and rng.random() < chance:
        node = rng.choice(nodes)
        state.nodes.reported_at[node] = state.now
        state.ledger.set_outside(node, random_outside(rng, state.node(node)))
