"""The one mutator: facts in, wishes out; and the loop that joins it to a world."""

from headgate.engine.drive import drive
from headgate.engine.engine import Engine

__all__ = ["Engine", "drive"]
