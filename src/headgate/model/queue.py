"""Queues: what jobs wait in, a tree of shares and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

QueueAmounts = tuple[tuple[str, int], ...]
"""Amounts by name of the kind, sorted: CPUs and custom kinds in thousandths, memory in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A share of the cluster, for jobs or for the queues below it.

    `parent` is the queue that it is part of, "" for one at the top; only queues without others
    below have jobs. `weight` is that against its siblings. All jobs below it hold at most
    `max_gpus` GPUs, and the `limit` of other kinds, together. They run on nodes with the `labels`
    of the queue and of those above it, as of a `Demand.selector`. A job that names one of its
    `types` in place of a queue is in this one.

    `open`: it takes jobs and starts them; `closed`: it takes no new ones; `stopped`: it starts
    none; `removed`: there is none any more. `estimate` says what the run times that its jobs
    declare stand for: `corrected` by how long earlier jobs took relative to theirs, or exactly as
    `declared`.
    """

    name: str
    weight: float = 1.0
    max_gpus: int | None = None
    max_jobs_in_flight: int | None = None
    estimate: Literal["corrected", "declared"] = "corrected"
    parent: str = ""
    limit: QueueAmounts = ()
    labels: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    state: Literal["open", "closed", "stopped", "removed"] = "open"
