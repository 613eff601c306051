"""Supervision of a local cluster: the controller restarts nodes that ended, with backoff."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from headgate.live.base.supervise import Backoff
from headgate.live.cluster.ray_nodes import LocalCluster, age_s, local_cluster, members, spawn_node
from headgate.model import Node

log = logging.getLogger(__name__)

_LOOK_S = 2.0
_START_S = 60.0  # limit for a node to come up
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _STEADY_S = 5.0, 300.0, 900.0

STARTS = 8
"""Consecutive starts of a node, without a steady time between them, that are reported."""


def node_backoff() -> Backoff:
    """Return the pauses between the starts of one node."""
    return Backoff(first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S, steady_s=_STEADY_S)


def not_steady(state: Path, name: str, backoff: Backoff) -> str:
    """Return the problem of a node that does not stay up, '' for one that may yet."""
    if backoff.failures <= STARTS:
        return ""
    starts, log_file = backoff.failures - 1, state / "logs" / f"{name}.log"
    return (
        f"node {name} did not stay up in {starts} starts; it is started again every "
        f"{_LONGEST_PAUSE_S / 60:g} min; its log is {log_file}"
    )


@dataclass(slots=True, kw_only=True)
class _Watched:
    """One node: the times of its last and of its next start, in seconds of the event loop."""

    started_s: float
    start_s: float | None = None  # None while it is up or starting
    backoff: Backoff = field(default_factory=node_backoff)


class NodeSupervisor:
    """Restarts the nodes that Ray no longer lists; `run` must be supervised.

    A node that Ray has declared lost never returns on its own, even if its processes run: Ray ends
    it when it reconnects. Nodes that were stopped on purpose, clusters that were only joined and
    the head (see `headgate.live.cluster.head`) are not restarted.
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
            watched = self._watched.setdefault(name, _Watched(started_s=now_s))
            if name in present or name not in cluster.sessions:
                watched.start_s = None
            elif _is_starting(cluster, name):
                continue
            elif watched.start_s is None:
                self._plan_start(name, watched, now_s)
            elif now_s >= watched.start_s:
                watched.started_s, watched.start_s = now_s, None
                log.warning("node %s is started, attempt %d", name, watched.backoff.failures)
                await asyncio.to_thread(self._spawn, self._state, cluster.nodes[name])

    def _plan_start(self, name: str, watched: _Watched, now_s: float) -> None:
        """Set the time of the next start of a node that is down."""
        pause_s = watched.backoff.failed(now_s - watched.started_s)
        watched.start_s = now_s + pause_s
        log.warning("node %s is down; it is started again in %.0f s", name, pause_s)
        if problem := not_steady(self._state, name, watched.backoff):
            log.error("%s", problem)


def _listed() -> set[str]:
    return {member.name for member in members()}


def _is_starting(cluster: LocalCluster, name: str) -> bool:
    age = age_s(cluster, name)
    return age is not None and age < _START_S
