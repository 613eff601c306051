"""Data: shards, and where a task reads them from."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.model.cluster import Locality

FILE_PREFIX = "file:"
"""Begins the id of a shard that is a whole file on a shared path; the path follows."""

SHARED = ""
"""In place of a node's name: the directory on a shared path where a job's results are kept too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A part of a dataset, or a task's result; the smallest thing that is placed and read."""

    id: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Files that a user has put on the nodes: an ordered sequence of shards under a name.

    All users' jobs may read a `public` one, others only those of its user.
    """

    name: str
    user: str
    shards: tuple[Shard, ...]
    public: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One shard that a run reads, and the nodes to read it from, best first.

    All `sources` lie at the same `locality`. A shard without a replica (a plain file on a shared
    path, a result that only its job's shared path has) has no sources and counts as `CLUSTER`.
    """

    shard: Shard
    locality: Locality
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """Part of a run's log: read on at `next_offset`; `ended` when the run will write no more."""

    text: str
    next_offset: int
    ended: bool
