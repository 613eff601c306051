"""The durable record of a live world: events in SQLite, durable before anyone acts on them."""

from headgate.journal.journal import Journal

__all__ = ["Journal"]
