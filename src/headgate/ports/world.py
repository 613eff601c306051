"""The world protocol: executes commands and reports events; one loop drives all worlds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headgate.protocol import Command, Event
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
