"""The engine: the machine, admission of plans, and the outstanding decision.

`handle(*facts) -> list[Command]` is the only code that changes scheduler state. It has no clock, no
I/O, no thread and no randomness of its own. All facts of one call belong to one instant: they are
applied in order, then at most one `Decide` is issued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from headgate.machine import admit, apply, outstanding
from headgate.model import RunId
from headgate.protocol import (
    Command,
    Decide,
    Event,
    LaunchGang,
    LaunchTask,
    PlanAdmitted,
    PlanFailed,
    PlanReady,
    PlanRejected,
    Timer,
)
from headgate.state import Snapshot, State
from headgate.state.elastic import needs_rounds
from headgate.state.life import HOLDING

Batch = tuple[Event, ...]

_OF_DECISIONS = (PlanReady, PlanFailed)
_OUTCOMES = (PlanAdmitted, PlanFailed, PlanRejected)


def _unrecorded(batch: Batch) -> Batch:
    return batch


class Engine:
    """One state and its transitions by events; `stale` counts events about ended runs."""

    __slots__ = ("_decision_snapshot", "_frozen", "_needs_decision", "stale", "state")

    def __init__(self, state: State | None = None) -> None:
        """Start with an empty state, or from a restored one."""
        self.state = State() if state is None else state
        self.stale = 0
        self._decision_snapshot: Snapshot | None = None  # of the outstanding decision
        self._frozen: Snapshot | None = None  # the last snapshot taken
        # a policy might decide differently than in its last round
        self._needs_decision = state is not None

    def handle(
        self, *facts: Event, record: Callable[[Batch], Batch] = _unrecorded
    ) -> list[Command]:
        """Apply the facts of one instant, in order, and return the commands that follow.

        `record` makes events durable before they are applied and returns those that are valid. A
        plan splits the batch: earlier events are recorded and applied, then the plan is checked,
        and the outcome of admission is recorded, never the plan itself.
        """
        commands: list[Command] = []
        batch: list[Event] = []
        for fact in facts:
            if not isinstance(fact, _OF_DECISIONS):
                batch.append(fact)
                continue
            if self._decision_snapshot is None or fact.seen != self._decision_snapshot.version:
                self.stale += 1
                continue
            if isinstance(fact, PlanReady):
                self._apply(record(tuple(batch)), commands)
                batch = [self._admit(fact, self._decision_snapshot)]
            else:
                batch.append(fact)
            self._decision_snapshot = None
        self._apply(record(tuple(batch)), commands)
        self._decide(commands)
        return commands

    def _admit(self, ready: PlanReady, seen: Snapshot) -> PlanAdmitted | PlanRejected:
        verdict = admit(self.state, seen, ready)
        if isinstance(verdict, PlanAdmitted):
            self.state.refusals = ready.plan.refusals
        return verdict

    def _apply(self, batch: Batch, commands: list[Command]) -> None:
        if batch:
            self._frozen = None  # its refusals may keep objects of earlier rounds alive
        issued: list[Command] = []
        for event in batch:
            effects = apply(self.state, event)
            issued += effects.commands
            self.stale += effects.stale
            self._needs_decision |= effects.decide
            if isinstance(event, _OUTCOMES):  # also of a recorded batch, which has no plan
                self._decision_snapshot = None
        commands += issued if len(batch) < 2 else _still_valid(self.state, issued)

    def _decide(self, commands: list[Command]) -> None:
        """Issue `Decide` if a policy may decide differently and none is outstanding or paused."""
        state = self.state
        paused = Timer.RETRY in state.timers
        if (
            self._needs_decision
            and self._decision_snapshot is None
            and (state.waiting_tasks or needs_rounds(state))
            and not paused
        ):
            self._needs_decision = False
            self._decision_snapshot = self.snapshot()
            commands.append(Decide(seen=state.version))

    def replay(self, batch: Sequence[Event]) -> None:
        """Apply recorded events; their commands have been issued already."""
        self._apply(tuple(batch), [])

    def snapshot(self) -> Snapshot:
        """Return the state as of now, frozen; O(1) when nothing has happened since the last one."""
        if self._frozen is None or self._frozen.version != self.state.version:
            self._frozen = self.state.freeze()
        return self._frozen

    def outstanding(self) -> list[Command]:
        """Return every outstanding command, for a world that lost them.

        Launches name current sources. A world that gets a command twice executes it once.
        """
        commands = [*outstanding(self.state)]
        if self._decision_snapshot is None:
            self._decide(commands)
        else:
            commands.append(Decide(seen=self._decision_snapshot.version))
        return commands

    def decision_snapshot(self) -> Snapshot:
        """Return the snapshot of the outstanding `Decide`."""
        assert self._decision_snapshot is not None, "no decision is outstanding"
        return self._decision_snapshot


def _still_valid(state: State, commands: Iterable[Command]) -> Iterator[Command]:
    """Yield the commands of a batch without launches of runs that a later event of it has ended.

    Such as that of a run that moves, whose target is lost in the instant in which it has ended.
    """
    for command in commands:
        if isinstance(command, LaunchTask):
            if _holds(state, command.run):
                yield command
        elif isinstance(command, LaunchGang):
            members = tuple(each for each in command.members if _holds(state, each.run))
            if members:
                yield replace(command, members=members)
        else:
            yield command


def _holds(state: State, run: RunId) -> bool:
    row = state.run_row(run)
    return row is not None and state.tasks.state[row] in HOLDING
