"""The world protocol: executes commands and reports events; one loop drives all worlds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from headgate.base.rng import stream
from headgate.ports.policy import Policy
from headgate.protocol import Command, Decide, Event, Plan
from headgate.state import Snapshot


class World(Protocol):
    """Executes commands and produces events: simulated, live, or scripted by a test."""

    def now(self) -> float:
        """Return the time of this world's clock, in seconds."""
        ...

    def events(self) -> Iterator[tuple[Event, ...]]:
        """Yield the events of one instant after another, until there will be no more."""
        ...

    def submit(self, commands: Sequence[Command], snapshot: Callable[[], Snapshot]) -> None:
        """Execute commands; `snapshot()` is the snapshot for a `Decide` among them."""
        ...


class Scaler(Protocol):
    """Decides which nodes come and go, after each round of a policy; has no state."""

    def scale(self, snapshot: Snapshot, plan: Plan) -> Plan:
        """Return the plan of a round with the nodes to be ordered and drained."""
        ...


def decide(
    policy: Policy, seed: int, command: Decide, snapshot: Snapshot, scaler: Scaler | None = None
) -> Plan:
    """Run a policy for one `Decide`, with the random stream that belongs to it; then a scaler.

    A cluster that scales has rounds without a waiting task, in which no policy decides.
    """
    plan = _NO_PLAN
    if snapshot.waiting_tasks:
        plan = policy.decide(snapshot, stream(seed, "decide", command.seen))
    if scaler is None or snapshot.fleet.scaling is None:
        return plan
    return scaler.scale(snapshot, plan)


_NO_PLAN = Plan()
