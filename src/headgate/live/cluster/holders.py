"""Holders: in a joined Ray cluster, one small Ray actor per GPU keeps it for Headgate's jobs.

Ray gives out the GPUs of a joined cluster to any program. A holder is a detached actor that
requires one GPU of a node and uses none of it, so that no program beside Headgate's jobs is given
that GPU. A GPU that Ray has given out already is held once it is free; until then it is withheld
from the jobs. Holders survive the controller: the next one finds them by their names.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from headgate.live.base.supervise import supervise
from headgate.live.cluster.names import end_actors, names_with
from headgate.live.cluster.ray_nodes import NAMESPACE, RayMember

log = logging.getLogger(__name__)

_HOLDER = "headgate-gpu:"
_SETTLE_S = 8.0  # a holder of a free GPU has started by then, as a rule
_RETRY_S = 1.0
_LEND_S = 5.0  # until the grant of a GPU that is lent is in the state
_PLACE_S = 20.0  # a shared program has its placement group by then, as a rule


class Holder:
    """Holds one GPU; `Holders` makes it a Ray actor."""

    async def gpu(self) -> int:
        """Return the index of the GPU among those that Ray has on this node."""
        import ray

        (gpu,) = ray.get_gpu_ids()
        visible = _inherited("CUDA_VISIBLE_DEVICES").split(",")  # of Ray on this node
        return visible.index(str(gpu)) if str(gpu) in visible else int(gpu)

    async def ended(self) -> None:
        """Never return: the call fails when this holder has ended."""
        await asyncio.Event().wait()


def _inherited(name: str) -> str:
    """Return a variable as this process was started with; Ray has changed it since."""
    entries = Path("/proc/self/environ").read_bytes().decode(errors="replace").split("\0")
    return next((e.partition("=")[2] for e in entries if e.startswith(f"{name}=")), "")


@dataclass(slots=True)
class _NodeHolders:
    """The holders of one node: work that keeps each alive, and the GPU of each that has one.

    `lent` are GPUs whose holders have ended for a shared program, and since when. No holder starts
    before `paused_until`: one that waits for a GPU would get it instead of the program. Times are
    those of the event loop.
    """

    keepers: list[asyncio.Task[None]] = field(default_factory=list)
    gpus: dict[int, int] = field(default_factory=dict)  # number of the holder -> index
    lent: dict[int, float] = field(default_factory=dict)  # index -> time
    paused_until: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    returned: asyncio.Event = field(default_factory=asyncio.Event)


class Holders:
    """Keeps a holder for every GPU of the nodes; all methods belong to one event loop."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeHolders] = {}  # by Ray's id

    async def hold(self, member: RayMember) -> None:
        """Hold the GPUs of a node from now on, and wait until those that are free now are held.

        For some seconds at most: whatever is not held then is withheld until it is.
        """
        if member.ray_id in self._nodes or not member.gpus:
            return
        wanted = min(member.gpus, await asyncio.to_thread(_holdable, member))
        holders = self._nodes[member.ray_id] = _NodeHolders()
        holders.keepers = [
            asyncio.create_task(
                supervise(f"holding {member.name}", partial(_keep, member, number, holders))
            )
            for number in range(member.gpus)
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_S):
                while len(holders.gpus) < wanted:
                    holders.changed.clear()
                    await holders.changed.wait()

    def withheld(self, member: RayMember) -> tuple[int, ...]:
        """Return the indices of the GPUs of a node that are not held, ascending."""
        holders = self._nodes.get(member.ray_id)
        held = set() if holders is None else {*holders.gpus.values()} - {*holders.lent}
        return tuple(gpu for gpu in range(member.gpus) if gpu not in held)

    def lent(self, member: RayMember) -> frozenset[int]:
        """Return the indices of the GPUs of a node whose holders have ended for shared programs."""
        holders = self._nodes.get(member.ray_id)
        return frozenset() if holders is None else frozenset(holders.lent)

    async def lend(self, member: RayMember, gpus: Collection[int]) -> None:
        """End the holders of these GPUs of a node, until `take_back`: Ray may give them out."""
        holders = self._nodes.get(member.ray_id)
        held = {} if holders is None else {gpu: n for n, gpu in holders.gpus.items() if gpu in gpus}
        if holders is None or not held:
            return
        now = asyncio.get_running_loop().time()
        holders.lent.update(dict.fromkeys(held, now))
        holders.paused_until = now + _PLACE_S
        waiting = [number for number in range(member.gpus) if number not in holders.gpus]
        names = [_name(member.ray_id, number) for number in (*waiting, *held.values())]
        await asyncio.to_thread(end_actors, names)

    def take_back(self, member: RayMember, used: Collection[int]) -> None:
        """Hold the lent GPUs of a node again, except those in `used`, and those just lent."""
        holders, now = self._nodes.get(member.ray_id), asyncio.get_running_loop().time()
        if holders is None:
            return
        for gpu, since in tuple(holders.lent.items()):
            if gpu not in used and now > since + _LEND_S:
                del holders.lent[gpu]
                holders.returned.set()

    def drop(self, ray_id: str) -> None:
        """Forget a node that Ray has lost, with its holders."""
        holders = self._nodes.pop(ray_id, None)
        if holders is not None:
            for keeper in holders.keepers:
                keeper.cancel()


async def _keep(member: RayMember, number: int, holders: _NodeHolders) -> None:
    """Keep one holder of a node alive, and its GPU among those held while it has one."""
    from ray.exceptions import RayError

    while True:
        gpu = None
        while (  # noqa: ASYNC110  # until a time that may move
            pause_s := holders.paused_until - asyncio.get_running_loop().time()
        ) > 0:
            await asyncio.sleep(pause_s)
        try:
            holder = await asyncio.to_thread(_start, member, number)
            gpu = holders.gpus[number] = await holder.gpu.remote()  # waits until one is free
            holders.changed.set()
            await holder.ended.remote()
        except (RayError, ValueError) as error:  # ValueError: a dying holder has the name
            if gpu is not None and gpu not in holders.lent:
                what = type(error).__name__
                log.warning("the holder of GPU %d of %s has ended: %s", gpu, member.name, what)
        finally:
            holders.gpus.pop(number, None)
        await asyncio.sleep(_RETRY_S)
        while gpu in holders.lent:
            holders.returned.clear()
            await holders.returned.wait()


def _name(ray_id: str, number: int) -> str:
    return f"{_HOLDER}{ray_id}:{number}"


def _start(member: RayMember, number: int) -> Any:
    """Return the handle of a holder, started if there is none."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return (
        ray.remote(Holder)
        .options(
            name=_name(member.ray_id, number),
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            num_gpus=1,
            max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(member.ray_id, soft=False),
        )
        .remote()
    )


def _holdable(member: RayMember) -> int:
    """Return how many GPUs of a node are free, or held already: so many holders start soon."""
    state: Any = import_module("ray._private.state")  # what a node has free has no public API
    free = state.available_resources_per_node().get(member.ray_id, {}).get("GPU", 0)
    return int(free) + len(names_with(f"{_HOLDER}{member.ray_id}:"))


def end_holders() -> None:
    """End all holders of the cluster: Ray gives out their GPUs again."""
    end_actors(names_with(_HOLDER))
