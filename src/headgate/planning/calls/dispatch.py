"""Which slot of a lease gets which items next.

An *item* is one small task, known by its number; a *slot* executes one item at a time, and belongs
to a lease, which is on one node. Slots are sent items in batches ahead of time, so that none waits
for a message: enough for about `AHEAD_S` seconds, by the mean time of items on its lease. When few
items are left, batches become small, so that all slots end at about the same time.

Without a clock and without sockets: the process that owns the items and the simulator both use it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

AHEAD_S = 0.05
"""Seconds of computing for which a slot has items beside the one that it executes."""

MOST_AHEAD = 2000
"""Most items that a slot has at a time."""

_FIRST_AHEAD = 2  # items that a slot has while no time is known
_NEW = 0.3  # weight of a batch in the mean time of its lease


class ItemBatch(NamedTuple):
    """Items that a slot executes next, in this order."""

    slot: int
    items: tuple[int, ...]


class Lost(NamedTuple):
    """What became of the items of a lost slot: run again, or `failed` (None: none did)."""

    again: tuple[int, ...]
    failed: int | None


@dataclass(slots=True)
class Lease:
    """The slots of a job on one node, and what they have been sent."""

    number: int = 0
    slots: dict[int, None] = field(default_factory=dict)  # in order of arrival
    sent: int = 0
    """Items that have not ended."""
    item_s: float = math.nan
    """Mean seconds that an item takes, later ones weighing more; NaN before the first."""


@dataclass(slots=True)
class _Slot:
    lease: int
    items: deque[int] = field(default_factory=deque)  # not ended, in the order of execution


Pick = Callable[[Sequence[Lease]], int]
"""A balancer: returns which of these leases, all with a slot that needs items, gets the next."""


class Dispatcher:
    """Assigns pending items to slots.

    The items that a lost slot had not ended run again. As one of them may have ended the slot, each
    of these *suspects* runs on a slot that has no other item; one that has ended more than
    `retries` slots so fails. A balancer (`pick`) chooses between leases, by default that on which
    an item is expected to end soonest.
    """

    def __init__(
        self,
        *,
        retries: int = 2,
        pick: Pick | None = None,
        wanted: Callable[[int], bool] | None = None,
    ) -> None:
        """`wanted` returns whether an item is still to be executed, each time before it is sent."""
        self._retries = retries
        self._pick = pick or soonest
        self._wanted = wanted
        self._pending: deque[tuple[int, int]] = deque()  # ranges of items: first, end
        self._unsent = 0  # items in them
        self._suspects: deque[int] = deque()
        self._crashes: dict[int, int] = {}  # by suspect
        self._slots: dict[int, _Slot] = {}
        self._leases: dict[int, Lease] = {}

    @property
    def pending(self) -> int:
        """The number of items that no slot has."""
        return self._unsent + len(self._suspects)

    @property
    def sent(self) -> int:
        """The number of items that slots have."""
        return sum(lease.sent for lease in self._leases.values())

    @property
    def slots(self) -> int:
        """The number of slots."""
        return len(self._slots)

    def add(self, first: int, end: int) -> None:
        """Add the items from `first` to before `end`, after all that are pending."""
        if first >= end:
            return
        self._unsent += end - first
        if self._pending and self._pending[-1][1] == first:
            first = self._pending.pop()[0]
        self._pending.append((first, end))

    def clear(self) -> tuple[int, ...]:
        """Remove all items, and return them; what slots have been sent may still end."""
        items = [item for first, end in self._pending for item in range(first, end)]
        items += self._suspects
        for slot in self._slots.values():
            items += slot.items
            slot.items.clear()
        for lease in self._leases.values():
            lease.sent = 0
        self._pending.clear()
        self._suspects.clear()
        self._crashes.clear()
        self._unsent = 0
        return tuple(items)

    def join(self, slot: int, lease: int) -> None:
        """Add a slot of a lease; its number has never been used."""
        self._slots[slot] = _Slot(lease)
        self._leases.setdefault(lease, Lease(lease)).slots[slot] = None

    def leave(self, slot: int, *, crashed: bool = True) -> Lost:
        """Remove a slot; unless it `crashed`, none of its items is suspected to have ended it."""
        items = self._slots[slot].items
        lease = self._leases[self._slots.pop(slot).lease]
        del lease.slots[slot]
        lease.sent -= len(items)
        if not crashed:
            for item in reversed(items):
                self._again(item)
            return Lost(tuple(items), None)
        failed = None
        for item in items:
            self._crashes.setdefault(item, 0)
        if len(items) == 1:
            self._crashes[items[0]] += 1
            if self._crashes[items[0]] > self._retries:
                failed = items.popleft()
                del self._crashes[failed]
        self._suspects.extend(items)
        return Lost(tuple(items), failed)

    def _again(self, item: int) -> None:
        """Make an item the next of those pending."""
        self._unsent += 1
        if self._pending and self._pending[0][0] == item + 1:
            self._pending[0] = (item, self._pending[0][1])
        else:
            self._pending.appendleft((item, item + 1))

    def ended(self, slot: int, count: int, seconds: float) -> tuple[int, ...]:
        """Record that the first `count` items of a slot have ended, after so long; return them."""
        entry = self._slots[slot]
        items = tuple(islice(entry.items, count))
        for item in items:
            entry.items.popleft()
            self._crashes.pop(item, None)
        lease = self._leases[entry.lease]
        lease.sent -= len(items)
        item_s = seconds / count
        lease.item_s = (
            item_s if math.isnan(lease.item_s) else lease.item_s + _NEW * (item_s - lease.item_s)
        )
        return items

    def batches(self) -> Iterator[ItemBatch]:
        """Assign pending items to slots that need some, and yield what each is sent.

        O(leases + slots of one lease) for a batch.
        """
        while self._suspects and (slot := self._idle()) is not None:
            yield self._send(slot, [self._suspects.popleft()])
        while self._unsent and self._slots:
            ahead = {n: self._ahead(lease) for n, lease in self._leases.items()}
            needy = {
                number: slot
                for number, lease in self._leases.items()
                if (slot := self._emptiest(lease, ahead[number])) is not None
            }
            if not needy:
                return
            numbers = list(needy)
            number = numbers[self._pick([self._leases[n] for n in numbers])]
            slot = needy[number]
            items = self._take(ahead[number] - len(self._slots[slot].items))
            if items:
                yield self._send(slot, items)

    def _idle(self) -> int | None:
        return next((n for n, slot in self._slots.items() if not slot.items), None)

    def _ahead(self, lease: Lease) -> int:
        """Return how many items a slot of a lease has at most."""
        if math.isnan(lease.item_s):
            enough = _FIRST_AHEAD
        elif lease.item_s * MOST_AHEAD <= AHEAD_S:
            enough = MOST_AHEAD
        else:
            enough = 1 + int(AHEAD_S / lease.item_s)
        return min(enough, -(-self._unsent // (2 * len(self._slots))))

    def _emptiest(self, lease: Lease, ahead: int) -> int | None:
        """Return the slot of a lease that has fewest items, if that is at most half of `ahead`."""
        fewest, best = ahead // 2 + 1, None
        for slot in lease.slots:
            items = self._slots[slot].items
            if len(items) < fewest and not (items and items[0] in self._crashes):
                fewest, best = len(items), slot
                if not items:
                    break
        return best

    def _take(self, count: int) -> list[int]:
        """Return the next items, up to `count`, that are still wanted."""
        items: list[int] = []
        while self._pending and len(items) < count:
            first, end = self._pending.popleft()
            stop = min(end, first + count - len(items))
            if stop < end:
                self._pending.appendleft((stop, end))
            self._unsent -= stop - first
            taken = range(first, stop)
            items.extend(taken if self._wanted is None else filter(self._wanted, taken))
        return items

    def _send(self, slot: int, items: list[int]) -> ItemBatch:
        entry = self._slots[slot]
        entry.items.extend(items)
        self._leases[entry.lease].sent += len(items)
        return ItemBatch(slot, tuple(items))


def soonest(leases: Sequence[Lease]) -> int:
    """Return the lease on which one more item is expected to end soonest.

    A lease without a known time is expected to take as long as the mean of the others.
    """
    known = [lease.item_s for lease in leases if not math.isnan(lease.item_s)]
    usual = sum(known) / len(known) if known else 1.0
    ends = [
        (lease.sent + 1) * (usual if math.isnan(lease.item_s) else lease.item_s) / len(lease.slots)
        for lease in leases
    ]
    return ends.index(min(ends))
