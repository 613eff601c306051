"""Probes: short transfers and disk reads, timed round-robin on all nodes while the cluster works.

A probe gets the bandwidth that any other transfer would get at that moment, on links and disks in
use: that is the bandwidth that the policy should assume. Probes run one after the other, so that
none slows another down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from headgate.live.actors.master_client import ReachableNodes
from headgate.live.base.config import PROBE_PERIOD_S
from headgate.live.membership.bandwidth import Estimate, moved
from headgate.model import Bandwidth
from headgate.protocol import BandwidthMeasured, Event
from headgate.state import Snapshot

log = logging.getLogger(__name__)

_PER_ROUND = 2  # probes of each kind
_RESPONSE_S = 20.0
_DISK_BYTES_PER_S = 5e8  # assumed where disks cannot be read past the page cache

Racks = Sequence[Sequence[str]]


class BandwidthProbe:
    """Keeps estimates of disk, rack and cluster bandwidth; all methods belong to one event loop."""

    def __init__(
        self,
        *,
        agents: Mapping[str, Any],
        reachable: ReachableNodes,
        post: Callable[[Sequence[Event]], Future[None]],
        now: Callable[[], float],
        snapshot: Callable[[], Snapshot],
        period_s: float,
    ) -> None:
        """`agents` and `reachable` are those of the nodes that are up, maintained by `Membership`.

        A round of probes is made every `period_s` seconds, or only on request when that is 0.
        """
        self._agents, self._reachable = agents, reachable
        self._post, self._now, self._snapshot = post, now, snapshot
        self._period_s = period_s
        half_life_s = period_s or PROBE_PERIOD_S
        self._disk, self._rack, self._cluster = (
            Estimate(half_life_s=half_life_s) for _ in range(3)
        )
        self._turn = 0
        self._wanted = asyncio.Event()
        self._probed: tuple[str, ...] = ()
        self._probe: asyncio.Task[float | None] | None = None

    async def run(self) -> None:
        """Probe in rounds until cancelled; may be run again after a round that failed."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._period_s or None):
                    await self._wanted.wait()
            self._wanted.clear()
            await self.probe_round()

    def request_round(self) -> None:
        """Request a round now, or after one in progress."""
        self._wanted.set()

    def node_lost(self, name: str) -> None:
        """End a probe in which this node takes part."""
        if self._probe is not None and name in self._probed:
            self._probe.cancel()

    async def probe_round(self) -> None:
        """Time a few transfers of each type; post the bandwidth if its estimate has moved."""
        turns = range(self._turn, self._turn + _PER_ROUND)
        self._turn += _PER_ROUND
        for estimate, pick in (
            (self._rack, pair_in_rack),
            (self._cluster, pair_across),
            (self._disk, one_node),
        ):
            rates = [await self._time(pick(self._racks(), turn)) for turn in turns]
            estimate.take([rate for rate in rates if rate is not None], self._now())
        known = self._snapshot().bandwidth
        fresh = self._bandwidth(known)
        if (
            moved(known.disk_bytes_per_s, fresh.disk_bytes_per_s)
            or moved(known.rack_bytes_per_s, fresh.rack_bytes_per_s)
            or moved(known.cluster_bytes_per_s, fresh.cluster_bytes_per_s)
        ):
            event = BandwidthMeasured(at=self._now(), bandwidth=fresh)
            await asyncio.wrap_future(self._post([event]))

    def _racks(self) -> Racks:
        """Return the nodes of each rack, in order."""
        racks: dict[str, list[str]] = {}
        for name in sorted(self._agents):
            racks.setdefault(self._reachable.members[name].rack, []).append(name)
        return [racks[rack] for rack in sorted(racks)]

    def _bandwidth(self, known: Bandwidth) -> Bandwidth:
        """Return the estimates; a remote read includes a disk read, so it is never faster."""
        near, far = self._rack.value, self._cluster.value
        rack = near or far or known.rack_bytes_per_s
        cluster = far or near or known.cluster_bytes_per_s
        disk = self._disk.value or max(_DISK_BYTES_PER_S, rack)
        return Bandwidth(
            disk_bytes_per_s=disk,
            rack_bytes_per_s=min(rack, disk),
            cluster_bytes_per_s=min(cluster, rack, disk),
        )

    async def _time(self, nodes: tuple[str, ...]) -> float | None:
        """Return bytes per second of a transfer to the first of two nodes, or of the disk of one.

        None if the probe failed.
        """
        here = [n for n in nodes if n in self._agents and n in self._reachable.addresses]
        if not nodes or len(here) < len(nodes):
            return None
        agent = self._agents[nodes[0]]
        if len(nodes) == 1:
            return await self._call(nodes, agent.time_disk)
        return await self._call(nodes, agent.time_transfer, *self._reachable.addresses[nodes[1]])

    async def _call(self, nodes: tuple[str, ...], method: Any, *arguments: Any) -> float | None:
        from ray.exceptions import RayError

        self._probed, self._probe = (
            nodes,
            asyncio.create_task(_with_timeout(method.remote(*arguments))),
        )
        try:
            await asyncio.wait({self._probe})
            return None if self._probe.cancelled() else self._probe.result()
        except (RayError, TimeoutError) as error:
            log.warning("no bandwidth of %s: %s", ", ".join(nodes), error)
            return None
        finally:
            self._probe.cancel()
            self._probed, self._probe = (), None


async def _with_timeout(call: Awaitable[float | None]) -> float | None:
    async with asyncio.timeout(_RESPONSE_S):
        return await call


def pair_in_rack(racks: Racks, turn: int) -> tuple[str, ...]:
    """Return the reader and the source of turn number `turn`, in one rack; () without a pair.

    The racks alternate. Of r racks, all pairs of a rack with m nodes occur in r m (m - 1) turns.
    """
    racks = [rack for rack in racks if len(rack) > 1]
    if not racks:
        return ()
    turn, rack = divmod(turn, len(racks))
    nodes = racks[rack]
    turn, reader = divmod(turn, len(nodes))
    step = 1 + turn % (len(nodes) - 1)
    return nodes[reader], nodes[(reader + step) % len(nodes)]


def pair_across(racks: Racks, turn: int) -> tuple[str, ...]:
    """Return the reader and the source of turn number `turn`, in two racks; () with one rack.

    Of r racks, each pair occurs in r (r - 1) turns, and all its m n pairs of nodes in m n times as
    many.
    """
    if len(racks) < 2:
        return ()
    turn, here = divmod(turn, len(racks))
    turn, step = divmod(turn, len(racks) - 1)
    there = racks[(here + 1 + step) % len(racks)]
    turn, reader = divmod(turn, len(racks[here]))
    return racks[here][reader], there[turn % len(there)]


def one_node(racks: Racks, turn: int) -> tuple[str, ...]:
    """Return the node of turn number `turn`; () without nodes."""
    nodes = [node for rack in racks for node in rack]
    return (nodes[turn % len(nodes)],) if nodes else ()
