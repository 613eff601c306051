"""Data: shards, datasets, and the sources from which a task reads."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.model.cluster import Locality

FILE_PREFIX = "file:"
"""Begins the id of a shard that is a whole file on a shared path; the path follows."""

SHARED = ""
"""In place of a node's name: the directory on a shared path that also stores a job's results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A part of a dataset, or a task's result: the unit of placement and reading."""

    id: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Files that a user has stored on the nodes: an ordered sequence of shards under a name.

    The jobs of all users may read a `public` dataset, any other only those of its owner.
    """

    name: str
    user: str
    shards: tuple[Shard, ...]
    public: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One shard that a run reads, and the nodes to read it from, best first.

    All `sources` have the same `locality`. A shard without a replica (a plain file on a shared
    path, a result stored only on its job's shared path) has no sources and counts as `CLUSTER`.
    """

    shard: Shard
    locality: Locality
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """Part of a run's log; the next is at `next_offset`; `ended` when the run writes no more."""

    text: str
    next_offset: int
    ended: bool
