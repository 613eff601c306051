"""The durable storage of a live world: its events, and the archive of ended jobs."""

from headgate.journal.archive import Archive, ArchivedJob, ArchivedTask, Part, Record
from headgate.journal.journal import Journal
from headgate.journal.snapshots import decode_snapshot, encode_snapshot

__all__ = [
    "Archive",
    "ArchivedJob",
    "ArchivedTask",
    "Journal",
    "Part",
    "Record",
    "decode_snapshot",
    "encode_snapshot",
]
