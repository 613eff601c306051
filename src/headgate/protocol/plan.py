"""A plan: what a policy decided in one round.

Tasks, nodes and jobs are named by their rows in the snapshot; rows never change their meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.protocol.reasons import Reason


class Placement(NamedTuple):  # a plan may have as many as there are GPUs: made in bulk
    """Run this task on these GPUs of this node; without GPUs, on its CPU slots."""

    task: int
    node: int
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why these jobs wait; with no jobs named, all waiting jobs that no other refusal names."""

    reason: Reason
    jobs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Placements, runs to be cut short, and refusals per group that waits for one cause.

    `preemptions` are tasks whose runs are to be stopped; they wait again, and their work is lost.
    Placements are on what is free now: what preemptions free is dealt out in the next round.
    `skips` are how often in a row jobs were passed over while they waited for data, for policies
    that count so: a job's row and its count, where it has changed. `missed` are for policies that
    keep shares over time: a job's row, the GPU seconds that it has had less than its share, and how
    many GPUs it goes on having less, where that has changed. At `again_at`, in seconds of the
    world's clock, the policy wants to be asked again even if nothing happens until then.
    Refusals explain, they change no state; so they are not part of equality, nor journaled.
    """

    placements: tuple[Placement, ...] = ()
    preemptions: tuple[int, ...] = ()
    skips: tuple[tuple[int, int], ...] = ()
    missed: tuple[tuple[int, float, int], ...] = ()
    again_at: float | None = None
    refusals: tuple[Refusal, ...] = field(default=(), compare=False)
