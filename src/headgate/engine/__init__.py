"""The only mutator of state: events in, commands out; and the loop that connects it to a world."""

from headgate.engine.drive import drive
from headgate.engine.engine import Engine

__all__ = ["Engine", "drive"]
