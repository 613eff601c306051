"""The cluster sizes on which a history is compared: powers of two GPUs, by the waits under FIFO."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.experiments.histories.histories import History

GOAL_WAIT_S = 600.0
"""The goals hold on the largest size at which FIFO's mean wait is at least this."""

BUSY_WAIT_S = 300.0
"""The goal of mean completion times holds on all sizes with at least this mean wait under FIFO."""


def fifo_waits_s(history: History, gpus: int) -> NDArray[np.float64]:
    """Return the wait of each job on a pool of GPUs, first in, first out; NaN for a wider one.

    The head of the queue starts when its GPUs are free, nothing overtakes it. O(jobs log jobs).
    """
    waits_s = np.full(len(history), np.nan)
    ends: list[tuple[float, int]] = []  # of runs, with their GPUs
    now, free = 0.0, gpus
    jobs = zip(
        history.submitted_at.tolist(),
        history.compute_s.tolist(),
        history.gpus.tolist(),
        strict=True,
    )
    for number, (submitted_at, compute_s, width) in enumerate(jobs):
        if width > gpus:
            continue
        now = max(now, submitted_at)
        while ends and (free < width or ends[0][0] <= now):
            at, freed = heapq.heappop(ends)
            now, free = max(now, at), free + freed
        free -= width
        heapq.heappush(ends, (now + compute_s, width))
        waits_s[number] = now - submitted_at
    return waits_s


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySizes:
    """The powers of two on which goals hold, with FIFO's mean wait on each, in seconds.

    `goal` is the largest of them, at least the widest job, with a mean wait of GOAL_WAIT_S; None
    where there is none. `busy` are all with a mean wait of BUSY_WAIT_S, ascending.
    """

    goal: int | None
    busy: tuple[int, ...]
    fifo_wait_s: dict[int, float]

    @property
    def near(self) -> tuple[int, ...]:
        """The busy sizes from half the goal's up; without a goal, the largest busy one."""
        least = self.busy[-1:] if self.goal is None else (self.goal // 2,)
        return tuple(gpus for gpus in self.busy if gpus >= least[0]) if least else ()


def find_sizes(history: History) -> HistorySizes:
    """Return the sizes of a history; FIFO runs on every power of two up to one without waits."""
    widest = int(history.gpus.max())
    fifo_wait_s: dict[int, float] = {}
    gpus, wait_s = 1, np.inf
    while gpus < widest or wait_s > 0:
        waits_s = fifo_waits_s(history, gpus)
        fits = ~np.isnan(waits_s)
        wait_s = float(waits_s[fits].mean()) if fits.any() else 0.0
        fifo_wait_s[gpus] = wait_s
        gpus *= 2
    enough = [g for g, s in fifo_wait_s.items() if g >= widest and s >= GOAL_WAIT_S]
    return HistorySizes(
        goal=max(enough, default=None),
        busy=tuple(g for g, s in fifo_wait_s.items() if s >= BUSY_WAIT_S),
        fifo_wait_s=fifo_wait_s,
    )
