"""Directories that all nodes share, in which runs may start themselves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headgate.live.cluster.ray_nodes import short_error
from headgate.live.node.marker import LOOK_S, Marker, Seen
from headgate.state import Snapshot

log = logging.getLogger(__name__)

_ANSWER_S = LOOK_S + 2.0
_SILENT = Seen(problem="it did not answer in time")


class SharedDirectories:
    """Asks the nodes that are up whether they have a directory; calls come from any thread."""

    def __init__(
        self,
        *,
        snapshot: Callable[[], Snapshot],
        agents: Mapping[str, Any],
        mounts: Mapping[str, str],
    ) -> None:
        """`agents` and `mounts` are of the nodes that are up, maintained by `Membership`."""
        self._snapshot, self._agents, self._mounts = snapshot, agents, mounts

    def check(self, marker: Marker, *, user: str) -> Mapping[str, Any]:
        """Return whether all nodes that are up have the marker's directory; see `verdict`."""
        view = self._snapshot()
        names = [view.node(row).id for row in view.live_nodes()]
        asked = representatives(names, self._mounts)
        seen = self._ask(list(dict.fromkeys(asked.values())), marker, user)
        return {"path": marker.path, **verdict({name: seen[asked[name]] for name in names})}

    def _ask(self, names: list[str], marker: Marker, user: str) -> dict[str, Seen]:
        """Return what each node answers in time."""
        import ray
        from ray.exceptions import RayError

        agents = dict(self._agents)
        calls = {n: agents[n].look_at.remote(marker, user) for n in names if n in agents}
        found = dict.fromkeys(names, _SILENT)
        if calls:
            ready, _ = ray.wait(list(calls.values()), num_returns=len(calls), timeout=_ANSWER_S)
            answered = set(ready)
            for name, call in calls.items():
                if call not in answered:
                    continue
                try:
                    found[name] = ray.get(call)
                except RayError as error:
                    log.warning("node %s did not look at a directory: %s", name, error)
                    found[name] = Seen(problem=short_error(error))
        return found


def representatives(names: Sequence[str], mounts: Mapping[str, str]) -> dict[str, str]:
    """Return which node is asked for each: one of those that see the same files, for all."""
    first: dict[str, str] = {}
    return {name: first.setdefault(mounts.get(name) or name, name) for name in names}


def verdict(seen: Mapping[str, Seen]) -> dict[str, Any]:
    """Return whether a directory is `shared` by all nodes, given how each sees it.

    `inode` is its number if it is the same on all of them, else 0; `nodes` says of each of the
    others why it does not have it. Without a node nothing is shared.
    """
    inodes = {found.inode for found in seen.values()}
    problems = {name: found.problem for name, found in seen.items() if found.problem}
    return {
        "shared": bool(seen) and not problems,
        "inode": inodes.pop() if len(inodes) == 1 and not problems else 0,
        "nodes": problems,
    }
