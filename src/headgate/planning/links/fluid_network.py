"""A modelled network: transfers as fluids that share links max-min fairly.

Every node has a disk, a link up and a link down; every rack an uplink up and one down; between the
racks lies one aggregation, or a core that never blocks. A transfer crosses

    on the node      the disk
    in the rack      source disk, source up, reader down
    across racks     source disk, source up, source rack up, aggregation, reader rack down,
                     reader down
    from a shared path (no source)   aggregation, reader rack down, reader down

and moves at a constant rate until a transfer that shares links with it, directly or through others,
starts or ends. Rates are those of progressive filling (Bertsekas and Gallager, Data Networks,
section 6.5.2): all rise together until a link is saturated, whose transfers then keep their rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.base.arrays import Floats
from headgate.base.errors import InvariantBroken
from headgate.model import Locality

_NO_LINK = 0  # pads the routes that cross fewer than six links; never saturated
_HOPS = 6
_SAME = 1e-12  # two rates that differ by less, relative to either, are one rate

_ROW = np.dtype(
    [
        ("id", "i8"),
        ("order", "i8"),  # counts starts
        ("route", "i8", (_HOPS,)),  # links crossed
        ("rate", "f8"),  # bytes per second, since ...
        ("since", "f8"),  # ... this time, when ...
        ("left", "f8"),  # ... these bytes were left, so that it ends at ...
        ("end", "f8"),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A read of bytes by a node from another one; `source` is None for a shared path."""

    id: int
    reader: str
    source: str | None
    size_bytes: int
    locality: Locality


@dataclass(frozen=True, slots=True)
class _NodeLinks:
    rack: str
    disk: int
    up: int
    down: int


class FluidNetwork:
    """The transfers under way, their rates, and when the next of them ends.

    Times are seconds of virtual time and never decrease; no call may skip a completion, which
    `finish` must process first. Changes at one instant are collected, and rates computed once, on
    first use: O(transfers x links crossed) per saturated link, in NumPy, over only the transfers
    that a change can reach.
    """

    def __init__(
        self,
        racks: Mapping[str, str],
        *,
        disk_bytes_per_s: float,
        node_link_bytes_per_s: float,
        rack_uplink_bytes_per_s: float,
        aggregation_bytes_per_s: float | None,
    ) -> None:
        """`racks` gives the rack of every node; no aggregation means a core that never blocks."""
        self._disk = disk_bytes_per_s
        self._node_link = node_link_bytes_per_s
        self._rack_uplink = rack_uplink_bytes_per_s
        self._capacities = [np.inf]  # of all links; `_capacity` has those known at the last update
        self._capacity: Floats = np.zeros(0)
        self._spare_nodes: list[_NodeLinks] = []
        self._nodes: dict[str, _NodeLinks] = {}
        self._racks: dict[str, tuple[int, int]] = {}
        self._aggregation = _NO_LINK
        if aggregation_bytes_per_s is not None:
            self._aggregation = self._add_links(aggregation_bytes_per_s)
        self._now = -np.inf
        self._started = 0
        self._transfers: dict[int, tuple[Transfer, int]] = {}
        self._moved = [0, 0, 0]
        self._dirty: list[int] = []  # links whose transfers changed at this instant
        self._free: list[int] = []
        self._table = np.zeros(0, _ROW)
        self._grow()
        for node, rack in racks.items():
            self.add_node(node, rack)

    # The nodes.

    def add_node(self, node: str, rack: str) -> None:
        """Add a node's disk and links, and its rack's uplinks with the first node of the rack."""
        if node in self._nodes:
            raise InvariantBroken(f"node {node} is in the network already")
        if rack not in self._racks:
            up = self._add_links(self._rack_uplink, self._rack_uplink)
            self._racks[rack] = (up, up + 1)
        if self._spare_nodes:
            spare = self._spare_nodes.pop()
            self._nodes[node] = _NodeLinks(rack, spare.disk, spare.up, spare.down)
            return
        disk = self._add_links(self._disk, self._node_link, self._node_link)
        self._nodes[node] = _NodeLinks(rack, disk, disk + 1, disk + 2)

    def remove_node(self, node: str, now: float) -> list[tuple[Transfer, int]]:
        """Remove a node; return the transfers that it interrupts, each with its bytes moved.

        They are in start order. A reader on another node may start again from another source.
        """
        touching = [
            transfer
            for transfer, _ in self._transfers.values()
            if node in (transfer.reader, transfer.source)
        ]
        cut = [(transfer, self.abort(transfer.id, now)) for transfer in touching]
        self._spare_nodes.append(self._nodes.pop(node))
        return cut

    def _add_links(self, *capacities: float) -> int:
        first = len(self._capacities)
        self._capacities += capacities
        return first

    # The transfers.

    def start(
        self, transfer_id: int, reader: str, source: str | None, size_bytes: int, now: float
    ) -> Transfer:
        """Start a transfer; one of no bytes ends now."""
        if transfer_id in self._transfers:
            raise InvariantBroken(f"transfer {transfer_id} is under way already")
        if size_bytes < 0:
            raise InvariantBroken(f"transfer {transfer_id} has {size_bytes} bytes")
        self._advance_to(now)
        locality, route = self._route_of(reader, source)
        transfer = Transfer(
            id=transfer_id, reader=reader, source=source, size_bytes=size_bytes, locality=locality
        )
        if not self._free:
            self._grow()
        row = self._free.pop()
        self._transfers[transfer_id] = (transfer, row)
        self._table["order"][row] = self._started
        self._table["id"][row] = transfer_id
        self._started += 1
        self._rate[row] = 0.0
        self._since[row] = now
        self._left[row] = size_bytes
        self._end[row] = np.inf if size_bytes else now
        if size_bytes:
            self._route[row, : len(route)] = route
            self._dirty.extend(route)
        return transfer

    def next_completion(self) -> tuple[float, int] | None:
        """Return when the next transfer ends, and its id; of equal times the first started."""
        if not self._transfers:
            return None
        self._update_rates()
        end = self._end.min()
        rows = np.flatnonzero(self._end == end)
        row = rows[self._table["order"][rows].argmin()]
        return float(end), int(self._table["id"][row])

    def finish(self, transfer_id: int, now: float) -> Transfer:
        """Remove a transfer that has reached its end, and count its size."""
        self._advance_to(now)
        transfer, row = self._transfers[transfer_id]
        if self._end[row] > now:
            raise InvariantBroken(f"transfer {transfer_id} ends at {self._end[row]}, not at {now}")
        self._drop(transfer, row, transfer.size_bytes)
        return transfer

    def abort(self, transfer_id: int, now: float) -> int:
        """Remove a transfer before its end; count and return the bytes moved so far."""
        self._advance_to(now)
        transfer, row = self._transfers[transfer_id]
        left = self._left[row] - self._rate[row] * (now - self._since[row])
        moved = transfer.size_bytes - max(0, round(float(left)))
        if self._end[row] <= now:
            moved = transfer.size_bytes
        self._drop(transfer, row, moved)
        return moved

    @property
    def moved_bytes(self) -> tuple[int, int, int]:
        """Bytes of ended transfers by locality: on the node, in the rack, across racks."""
        node, rack, cluster = self._moved
        return node, rack, cluster

    def rates(self) -> dict[int, float]:
        """Return the rate of every transfer in bytes per second, in start order; 0 at its end."""
        self._update_rates()
        return {
            transfer: float(self._rate[row]) if self._end[row] > self._now else 0.0
            for transfer, (_, row) in self._transfers.items()
        }

    def _drop(self, transfer: Transfer, row: int, moved_bytes: int) -> None:
        self._moved[transfer.locality] += moved_bytes
        del self._transfers[transfer.id]
        self._dirty.extend(self._route[row].tolist())
        self._route[row] = _NO_LINK
        self._end[row] = np.inf
        self._free.append(row)

    def _route_of(self, reader: str, source: str | None) -> tuple[Locality, tuple[int, ...]]:
        """Return the links from a source to a reader; those that never block are left out."""
        to = self._nodes[reader]
        if source == reader:
            return Locality.NODE, (to.disk,)
        rack_down = self._racks[to.rack][1]
        across = (self._aggregation,) if self._aggregation != _NO_LINK else ()
        if source is None:
            return Locality.CLUSTER, (*across, rack_down, to.down)
        of = self._nodes[source]
        if of.rack == to.rack:
            return Locality.RACK, (of.disk, of.up, to.down)
        rack_up = self._racks[of.rack][0]
        return Locality.CLUSTER, (of.disk, of.up, rack_up, *across, rack_down, to.down)

    # Rows: the numbers of every transfer; a free row crosses no link and never ends.

    def _grow(self) -> None:
        old = self._table
        self._table = table = np.zeros(max(16, 2 * len(old)), _ROW)
        table["end"] = np.inf
        table[: len(old)] = old
        self._route: NDArray[np.int64] = table["route"]
        self._rate: Floats = table["rate"]
        self._since: Floats = table["since"]
        self._left: Floats = table["left"]
        self._end: Floats = table["end"]
        self._free.extend(range(len(table) - 1, len(old) - 1, -1))

    # Time and rates.

    def _advance_to(self, now: float) -> None:
        """Advance the time, under the rates of the last instant."""
        if now == self._now:
            return
        if now < self._now:
            raise InvariantBroken(f"time goes back from {self._now} to {now}")
        if self._transfers:
            self._update_rates()
            if self._end.min() < now:
                raise InvariantBroken(f"{self.next_completion()} was skipped at {now}")
        self._now = now

    def _update_rates(self) -> None:
        """Recompute the rates of the transfers that the changes of this instant reach.

        A transfer whose rate is unchanged keeps the end computed first, so that no error
        accumulates. One at its end has rate 0, removed or not.
        """
        if not self._dirty:
            return
        if len(self._capacity) < len(self._capacities):
            self._capacity = np.array(self._capacities)
        reached = np.zeros(len(self._capacity), bool)
        reached[self._dirty] = True
        self._dirty.clear()
        rows = self._affected_rows(reached)
        if len(rows) == 0:
            return
        rates = _progressive_filling(self._route[rows], self._capacity)
        changed = np.abs(rates - self._rate[rows]) > _SAME * rates
        rows, rates = rows[changed], rates[changed]
        left = self._left[rows] - self._rate[rows] * (self._now - self._since[rows])
        self._left[rows] = np.maximum(left, 0.0)
        self._rate[rows] = rates
        self._since[rows] = self._now
        self._end[rows] = self._now + self._left[rows] / rates

    def _affected_rows(self, reached: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the rows that cross links reached, directly or through other rows' links."""
        live = np.flatnonzero((self._end > self._now) & (self._route[:, 0] != _NO_LINK))
        routes = self._route[live]
        count = -1
        while True:
            reached[_NO_LINK] = False
            touched = reached[routes].any(axis=1)
            if (touched_count := int(touched.sum())) == count:
                return live[touched]
            count = touched_count
            reached[routes[touched]] = True


def _progressive_filling(routes: NDArray[np.int64], capacity: Floats) -> Floats:
    """Return max-min fair rates by progressive filling; every route crosses a finite link.

    Each step saturates the links with the least equal share for the transfers not settled yet. The
    result depends on sums over links only, not on the order of transfers.
    """
    rates = np.zeros(len(routes))
    left = capacity.copy()
    open_rows = np.arange(len(routes))
    links = len(capacity)
    while len(open_rows):
        load = np.bincount(routes.ravel(), minlength=links)
        load[_NO_LINK] = 0
        share = np.divide(left, load, out=np.full(links, np.inf), where=load > 0)
        least = share.min()
        settled = (share <= least * (1 + _SAME))[routes].any(axis=1)
        rates[open_rows[settled]] = least
        left -= least * np.bincount(routes[settled].ravel(), minlength=links)
        open_rows, routes = open_rows[~settled], routes[~settled]
    return rates
