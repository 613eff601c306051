"""The state that a flow policy keeps from round to round, and the rule that invalidates it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headgate.planning.shares.standing import Standing, standing_after, standing_of
from headgate.policies.flow.in_flight import Work
from headgate.policies.flow.problem import OfferedTasks
from headgate.policies.flow.solve import Flow
from headgate.state import Changes, Snapshot


@dataclass(slots=True, eq=False)
class WarmRound:
    """The last round of a history of states, for the next one; cold while `now` is None.

    A `copied` one is for hypothetical rounds.
    """

    standing: Standing | None = None  # contains the last snapshot
    work: Work | None = None
    offered: OfferedTasks = field(default_factory=OfferedTasks)
    flow: Flow | None = None
    copied: bool = False

    def copy(self) -> WarmRound:
        """Return a copy, whose next rounds are those of the original; O(memory of the flow)."""
        work, offered, flow = copy.deepcopy((self.work, self.offered, self.flow))
        return WarmRound(standing=self.standing, work=work, offered=offered, flow=flow, copied=True)

    def changes(self, snapshot: Snapshot) -> Changes | None:
        """Return the changes since the last round, or None if the next one starts cold.

        It starts cold if the snapshot belongs to another history of states (after a restart, or a
        compaction of tables), if a node joined or was lost or has other labels, if tasks need other
        labels, and if the bandwidth changed, since all places or all prices follow from these.
        """
        if self.standing is None:
            return None
        last = self.standing.snapshot
        changes = snapshot.changes(last)
        if changes is None or last.bandwidth != snapshot.bandwidth:
            return None
        return None if len(changes.nodes) or len(changes.demands) else changes

    def advance(self, snapshot: Snapshot, *, ahead: bool) -> tuple[Standing, Changes | None]:
        """Update to a snapshot; return its standing, and the changes, None after a cold start.

        The work in flight is kept if the policy plans `ahead`. The flow is not if the tasks that
        are counted now divide GPUs into other classes: its places are by class; nor if jobs are in
        other queues, or other queues limit their users: its pools may be of these.
        """
        changes = self.changes(snapshot)
        if changes is None or self.standing is None:
            self.standing, self.flow = standing_of(snapshot), None
            self.work = Work(snapshot) if ahead else None
            return self.standing, None
        before, self.standing = self.standing, standing_after(self.standing, snapshot, changes)
        same_groups = self.standing.rows.divides_as(before.rows) and not len(changes.assigned)
        if not (self.standing.hardware.divides_as(before.hardware) and same_groups):
            self.flow = None
        if self.work is not None:
            self.work.update(snapshot, changes)
        return self.standing, changes

    @property
    def is_real(self) -> bool:
        """Whether real rounds follow: hypothetical ones would end their history."""
        hypothetical = self.copied or self.standing is None or self.standing.snapshot.hypothetical
        return not hypothetical

    def is_past(self, snapshot: Snapshot) -> bool:
        """Return whether a snapshot of the same history is not newer than the last round."""
        return self.standing is not None and self.standing.snapshot.changes(snapshot) is not None


class WarmCache:
    """The warm round of a policy, lent to one decision at a time."""

    def __init__(self, warm: list[WarmRound] | None = None) -> None:
        """Start with one warm round at most, or cold."""
        self._warm = warm or []  # none while it is lent; a list's `pop` is atomic

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Pickle without the warm round."""
        return type(self), ()

    def __deepcopy__(self, memo: object) -> WarmCache:
        """Copy with a copy of the warm round, without while it is lent."""
        del memo
        return WarmCache([warm.copy() for warm in self._warm])

    @contextmanager
    def lend(self, snapshot: Snapshot) -> Iterator[WarmRound]:
        """Lend the warm round for the round of a snapshot; if that raises, the next starts cold.

        Older snapshots get a cold one of their own, and hypothetical ones after real ones, unless
        that is a copy.
        """
        warm = self._take()
        if warm.is_past(snapshot) or (snapshot.hypothetical and warm.is_real):
            self._warm[:] = [warm]
            yield WarmRound()
            return
        yield warm
        self._warm[:] = [warm]

    def _take(self) -> WarmRound:
        try:
            return self._warm.pop()
        except IndexError:
            return WarmRound()
