"""Rules of a simulation of elastic training: when it decides, and what a change costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from headgate.traces.training import RecordedJob

_LARGE_CLUSTER = 256  # GPUs, from which on messages of the coordinator take longer


class Overheads(Protocol):
    """Time that jobs lose at a decision."""

    def charge(self, before: Sequence[int], after: Sequence[int]) -> list[float]:
        """Return the seconds without progress of each job, whose width goes from `before`.

        Jobs are in the order in which they are placed.
        """
        ...


class NoOverheads:
    """Changes are free."""

    def charge(self, before: Sequence[int], after: Sequence[int]) -> list[float]:
        """Return 0 for all."""
        del before
        return [0.0] * len(after)


class WidthChanges:
    """A job stops for a checkpoint and a start when its width changes.

    It takes `2 + 2 (1 + log2 n)` s on n GPUs, 5 s more in a cluster of 256 GPUs or more: what
    ElasticFlow's simulator charges for a group of processes that it starts again.
    """

    def __init__(self, gpus: int) -> None:
        """Charge in a cluster of so many GPUs."""
        self._base_s = _base_s(gpus)

    def charge(self, before: Sequence[int], after: Sequence[int]) -> list[float]:
        """Return the time of each job that runs with another width than before."""
        return [
            self._base_s + _start_s(new) if new and new != old else 0.0
            for old, new in zip(before, after, strict=True)
        ]


@dataclass(slots=True)
class RememberedGroups:
    """What ElasticFlow's simulator charges: every job that holds GPUs pays at every decision.

    The base is 2 s, in a cluster of 256 GPUs or more 7 s. A group of processes on a set of GPUs
    that no job held since the sets were forgotten pays `2 (1 + log2 n)` s more, and at every 60th
    decision also 27 s, or 47 s; then all sets are forgotten. GPUs are numbered over all servers,
    and jobs placed by width, widest first: with powers of two, each gets a subtree of its own.
    """

    gpus: int
    _count: int = 0
    _sets: dict[tuple[int, int], None] = field(default_factory=dict)

    def charge(self, before: Sequence[int], after: Sequence[int]) -> list[float]:
        """Return the time of each job, whatever its width was before."""
        del before
        restarts = self._count > 0 and self._count % 60 == 0
        self._count += 1
        base_s, restart_s = _base_s(self.gpus), 47.0 if self.gpus >= _LARGE_CLUSTER else 27.0
        charged, first = [0.0] * len(after), 0
        for row in sorted(range(len(after)), key=lambda row: -after[row]):
            width = after[row]
            if width == 0:
                break
            charged[row] = base_s
            if (first, width) not in self._sets:
                charged[row] += _start_s(width) + restart_s * restarts
                self._sets[first, width] = None
            first += width
        if restarts:
            self._sets.clear()
        return charged


def _base_s(gpus: int) -> float:
    return 7.0 if gpus >= _LARGE_CLUSTER else 2.0


def _start_s(width: int) -> float:
    return 2 * (1 + math.log2(width))


@dataclass(frozen=True, slots=True)
class Rules:
    """When decisions are made, and what they cost.

    `slot_s` is the least time between two decisions, what happens between them waits; plans are in
    slots of this length, and whole seconds. Without slots every arrival, end and planned change is
    a decision.
    """

    name: str
    slot_s: float

    def overheads(self, gpus: int, policy: str) -> Overheads:
        """Return what a simulation of a policy charges, from its start on."""
        if self is not ELASTICFLOW or policy in _STARTED:
            return WidthChanges(gpus)
        return NoOverheads() if policy in _FREE else RememberedGroups(gpus)

    def jobs(self, recorded: Sequence[RecordedJob], gpu_type: str) -> list[RecordedJob]:
        """Return the jobs with the widths that these rules hold to be useful."""
        if self is not ELASTICFLOW:
            return [*recorded]
        return [
            replace(job, useful=_USEFUL.get((job.model, gpu_type), job.useful)) for job in recorded
        ]


ELASTICFLOW = Rules("elasticflow", 60.0)
"""Those of ElasticFlow's simulator (scheduler/scheduler.py of pkusys/ElasticFlow)."""
PLAIN = Rules("plain", 0.0)
"""Ours: a decision at every event, and a cost for each job whose width changes."""
RULES = {rules.name: rules for rules in (ELASTICFLOW, PLAIN)}

_FREE = ("edf",)  # of overhead in ElasticFlow's simulator

_STARTED = ("tiresias",)  # pay there only when they start or continue

# The widest useful widths that ElasticFlow's simulator gives and that are not those of the highest
# measured rate.
_USEFUL = {("bert", "T4"): 16, ("ncf", "T4"): 1}
