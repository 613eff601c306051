"""The loop that joins an engine and a world: facts are recorded, handled, and wishes passed on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.decision.world import World
from headgate.engine.engine import Engine
from headgate.protocol import Command, Event

Batch = tuple[Event, ...]


def drive(
    engine: Engine,
    world: World,
    *,
    record: Callable[[Batch], Batch] = lambda batch: batch,
    observe: Sequence[Callable[[Batch, Sequence[Command]], None]] = (),
) -> None:
    """Run until the world has no more events.

    `record` makes a batch durable before it is handled and returns what of it stands; observers see
    every batch with the commands that followed, after they were handled.
    """
    for facts in world.events():
        batch = record(facts)
        if not batch:
            continue
        commands = engine.handle(*batch)
        for see in observe:
            see(batch, commands)
        world.submit(commands, engine.snapshot)
