"""The durable record of a live world: events in SQLite, durable before anyone acts on them."""

from headgate.journal.journal import Journal
from headgate.journal.snapshots import decode_snapshot, encode_snapshot

__all__ = ["Journal", "decode_snapshot", "encode_snapshot"]
