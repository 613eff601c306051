"""What lives from round to round: one object, and one rule that tells when it is of no use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headgate.planning.standing import Standing, standing, standing_after
from headgate.policies.flow.in_flight import Work
from headgate.policies.flow.problem import Offered
from headgate.policies.flow.solve import Flow
from headgate.state import Changes, Snapshot


@dataclass(slots=True, eq=False)
class Warm:
    """The last round of a line of states, as the next one needs it; cold while `now` is None."""

    now: Standing | None = None  # and in it, the last snapshot
    work: Work | None = None
    offered: Offered = field(default_factory=Offered)
    flow: Flow | None = None

    def changes(self, snapshot: Snapshot) -> Changes | None:
        """Return what has changed since the last round; None where the next one is to start cold.

        It is where the states are of another line (those of a controller that was started again, or
        whose tables were compacted), where a node came, went or came back, and where the bandwidth
        was measured, since all places or all prices follow from these.
        """
        if self.now is None:
            return None
        last = self.now.snapshot
        changes = snapshot.changes(last)
        if changes is None or len(changes.nodes) or last.bandwidth != snapshot.bandwidth:
            return None
        return changes

    def advance(self, snapshot: Snapshot, *, ahead: bool) -> tuple[Standing, Changes | None]:
        """Go on to a snapshot; return where it stands, and the changes, None after a cold start.

        The work in flight is followed where a policy plans `ahead`.
        """
        changes = self.changes(snapshot)
        if changes is None or self.now is None:
            self.now, self.flow = standing(snapshot), None
            self.work = Work(snapshot) if ahead else None
            return self.now, None
        self.now = standing_after(self.now, snapshot, changes)
        if self.work is not None:
            self.work.update(snapshot, changes)
        return self.now, changes

    def is_past(self, snapshot: Snapshot) -> bool:
        """Return whether a snapshot of the line is as old as the last round, or older."""
        return self.now is not None and self.now.snapshot.changes(snapshot) is not None


class Kept:
    """The warm object of a policy, lent to one round at a time."""

    def __init__(self) -> None:
        """Begin cold."""
        self._warm: list[Warm] = []  # none while it is lent; a list's `pop` is atomic

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Leave what is warm out of copies."""
        return type(self), ()

    @contextmanager
    def lend(self, snapshot: Snapshot) -> Iterator[Warm]:
        """Lend what is warm to the round of a snapshot; where that breaks, the next starts cold.

        States on paper, and those that were decided on before, get a cold one of their own.
        """
        if snapshot.on_paper:
            yield Warm()
            return
        warm = self._take()
        if warm.is_past(snapshot):
            self._warm[:] = [warm]
            yield Warm()
            return
        yield warm
        self._warm[:] = [warm]

    def _take(self) -> Warm:
        try:
            return self._warm.pop()
        except IndexError:
            return Warm()
