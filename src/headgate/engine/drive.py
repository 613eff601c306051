"""The loop that connects an engine to a world: record events, apply them, submit commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.engine.engine import Batch, Engine
from headgate.ports import World
from headgate.protocol import Command, Event


def drive(
    engine: Engine,
    world: World,
    *,
    record: Callable[[Batch], Batch] = lambda batch: batch,
    observe: Sequence[Callable[[Batch, Sequence[Command]], None]] = (),
) -> None:
    """Run until the world has no more events.

    `record` makes events durable before they are applied and returns those that are valid; see
    `Engine.handle`. Observers see the applied events of every instant, with their commands.
    """
    applied: list[Event] = []

    def recorded(batch: Batch) -> Batch:
        kept = record(batch)
        applied.extend(kept)
        return kept

    for facts in world.events():
        applied.clear()
        commands = engine.handle(*facts, record=recorded)
        if applied:
            for see in observe:
                see(tuple(applied), commands)
        world.submit(commands, engine.decision_snapshot)
