"""Spares: masters and executors that are started before an account needs them.

Starting an actor takes a second or more, of which most is the start of its process. The controller
keeps some ready: masters beside itself, executors on every node. The client of a master gives them
to its account. One for which none is ready starts its own.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from headgate.live.actors.executor import TaskExecutor
from headgate.live.actors.master import Master
from headgate.live.cluster.names import end_actors, free_spares, give_spare, spare_name
from headgate.live.cluster.ray_nodes import NAMESPACE, RayMember

log = logging.getLogger(__name__)

_START_S = 120.0
_LOOK_S = 0.5
_RETRY_S = 30.0  # after a failed start
_QUIET_S = 1.0  # after a spare was taken: the processes of the job come first


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a kind of spares is kept: executors on one node, masters on the controller's."""

    master: bool
    ray_id: str


class Spares:
    """The spares of a cluster; all methods run on one event loop."""

    def __init__(self, root: Path, members: dict[str, RayMember], *, per_node: int) -> None:
        """Keep `per_node` executors on each of `members` and as many masters here; 0 keeps none.

        `root` is Headgate's directory on every node.
        """
        self._root, self._members, self._per_node = str(root), members, per_node
        self._ready: dict[_Place, list[str]] = {}
        self._starting: dict[str, asyncio.Task[None]] = {}  # by machine
        self._not_before_s: dict[_Place, float] = {}

    async def give(self, name: str, ray_id: str | None = None) -> None:
        """Let a spare serve as the master `name`, or as the executor `name` of a node, if any is.

        Without effect if there is an actor of this name.
        """
        if not self._per_node:
            return
        node = ray_id or await asyncio.to_thread(_here)
        place = _Place(master=ray_id is None, ray_id=str(node))
        ready = self._ready.get(place)
        if not ready:
            return
        spare = ready.pop()
        self._pause(place, _QUIET_S)
        if not await asyncio.to_thread(give_spare, spare, name):
            ready.append(spare)

    async def run(self) -> None:
        """Start spares that are missing, one at a time on each machine, until cancelled.

        Spares of an earlier controller, whose program may be another version, end first.
        """
        self._ready.clear()
        await asyncio.to_thread(end_spares)
        if not self._per_node:
            return
        here = await asyncio.to_thread(_here)
        while True:
            for place, member in self._places(here):
                machine = _machine(member)
                if machine not in self._starting and self._is_missing(place):
                    work = self._starting[machine] = asyncio.create_task(self._add(place, member))
                    work.add_done_callback(partial(self._ended, machine, place))
            await asyncio.sleep(_LOOK_S)

    def _ended(self, machine: str, place: _Place, work: asyncio.Task[None]) -> None:
        del self._starting[machine]
        if not work.cancelled() and (error := work.exception()) is not None:
            log.warning("a spare could not be started: %r", error)
            self._pause(place, _RETRY_S)

    def _pause(self, place: _Place, pause_s: float) -> None:
        self._not_before_s[place] = asyncio.get_running_loop().time() + pause_s

    def _places(self, here: str) -> Sequence[tuple[_Place, RayMember]]:
        """Return where spares belong, with the machine; drop those of lost nodes."""
        members = tuple(self._members.values())
        places = [(_Place(master=False, ray_id=m.ray_id), m) for m in members]
        if members:
            at_controller = next((m for m in members if m.ray_id == here), members[0])
            places.insert(0, (_Place(master=True, ray_id=here), at_controller))
        known = [place for place, _ in places]
        for lost in [place for place in self._ready if place not in known]:
            del self._ready[lost]
        return places

    def _is_missing(self, place: _Place) -> bool:
        now_s = asyncio.get_running_loop().time()
        few = len(self._ready.get(place, ())) < self._per_node
        return few and now_s >= self._not_before_s.get(place, 0.0)

    async def _add(self, place: _Place, member: RayMember) -> None:
        name = spare_name(place.ray_id, secrets.token_hex(4))
        start = partial(_start, name, place, member.name, self._root)
        actor = await asyncio.to_thread(start)
        try:
            async with asyncio.timeout(_START_S):
                await actor.__ray_ready__.remote()
        except BaseException:
            await asyncio.to_thread(end_actors, [name])
            raise
        self._ready.setdefault(place, []).append(name)


def _start(name: str, place: _Place, node: str, root: str) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    options = {
        "name": name,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "num_cpus": 0,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(place.ray_id, soft=False),
    }
    if place.master:
        master = ray.remote(Master).options(**options, max_restarts=-1)
        return master.remote(spare=name, root=root)
    return ray.remote(TaskExecutor).options(**options).remote(node=node, root=root)


def end_spares() -> None:
    """End all spares that serve no account."""
    end_actors(free_spares())


def _machine(member: RayMember) -> str:
    """Return the address of a machine; all virtual nodes with loopback addresses share one."""
    return "" if member.address.startswith("127.") else member.address


def _here() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())
