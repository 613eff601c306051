"""Supervision of a local cluster: the controller restarts nodes that ended, with backoff."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from headgate.live.ray_nodes import LocalCluster, age_s, local_cluster, members, spawn_node
from headgate.live.supervise import Backoff
from headgate.model import Node

log = logging.getLogger(__name__)

_LOOK_S = 2.0
_START_S = 60.0  # limit for a node to come up
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _STEADY_S = 5.0, 300.0, 900.0

STARTS = 8
"""Most consecutive starts of a node without a steady time between them."""


def node_backoff() -> Backoff:
    """Return the pauses between the starts of one node."""
    return Backoff(first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S, steady_s=_STEADY_S)


@dataclass(slots=True, kw_only=True)
class _Watched:
    """One node: the time since it is up, or of its next start; in seconds of the event loop."""

    up_s: float
    start_s: float | None = None  # None while it is up
    backoff: Backoff = field(default_factory=node_backoff)


class NodeSupervisor:
    """Restarts the nodes that Ray no longer lists; `run` must be supervised.

    A node that Ray has declared lost never returns on its own, even if its processes run: Ray ends
    it when it reconnects. Nodes that were stopped on purpose, clusters that were only joined and
    the head (see `headgate.live.head`) are not restarted.
    """

    def __init__(
        self,
        state: Path,
        *,
        present: Callable[[], Collection[str]] | None = None,
        spawn: Callable[[Path, Node], None] = spawn_node,
    ) -> None:
        """`present` names the nodes that Ray lists, `spawn` starts one; both block."""
        self._state, self._present, self._spawn = state, present or _listed, spawn
        self._watched: dict[str, _Watched] = {}

    async def run(self) -> None:
        """Look at the nodes periodically until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            await self.look(clock())
            await asyncio.sleep(_LOOK_S)

    async def look(self, now_s: float) -> None:
        """Start the nodes whose pause has ended; `now_s` is in seconds of the event loop."""
        cluster = await asyncio.to_thread(local_cluster, self._state)
        if cluster is None:
            return
        present = await asyncio.to_thread(self._present)
        for name in cluster.nodes:
            watched = self._watched.setdefault(name, _Watched(up_s=now_s))
            if name in present or name not in cluster.sessions:
                if watched.start_s is not None:
                    watched.start_s, watched.up_s = None, now_s
            elif watched.start_s is None:
                pause_s = watched.backoff.failed(now_s - watched.up_s)
                watched.start_s = now_s + pause_s
                log.warning("node %s is down; it is started again in %.0f s", name, pause_s)
            elif now_s >= watched.start_s and not _is_starting(cluster, name):
                await self._start(cluster.nodes[name], watched, now_s)

    async def _start(self, node: Node, watched: _Watched, now_s: float) -> None:
        if watched.backoff.failures > STARTS:
            watched.start_s = math.inf
            log.error(
                "node %s did not stay up in %d starts and is left down; its log is %s, and "
                "headgate down, then headgate up, starts all nodes",
                node.id, STARTS, self._state / "logs" / f"{node.id}.log",
            )  # fmt: skip
            return
        # if it does not come up, or fails to start here, the next attempt is later
        watched.start_s = now_s + watched.backoff.failed(after_s=0)
        log.warning("node %s is started, attempt %d", node.id, watched.backoff.failures - 1)
        await asyncio.to_thread(self._spawn, self._state, node)


def _listed() -> set[str]:
    return {member.name for member in members()}


def _is_starting(cluster: LocalCluster, name: str) -> bool:
    age = age_s(cluster, name)
    return age is not None and age < _START_S
