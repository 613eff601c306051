"""The one mutator: facts in, wishes out."""

from headgate.engine.engine import Engine

__all__ = ["Engine"]
