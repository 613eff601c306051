"""How often to measure, and the median of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

_ENOUGH_MS, _LONG_MS, _MOST_RUNS = 500, 2_000, 51


def now_ms() -> float:
    """Return a time to subtract from a later one."""
    return 1e3 * time.perf_counter()


def more_runs(first_ms: float) -> int:
    """Return how often to run again what took so long, an even number of times: 2 to 50, or 0."""
    if first_ms > _LONG_MS:
        return 0
    wanted = int(_ENOUGH_MS / max(first_ms, 1e-3)) // 2 * 2
    return min(max(wanted, 2), _MOST_RUNS - 1)


def medians(run: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """Return the medians of the two times that a run returns: the whole, and a part of it."""
    runs = [run()]
    runs += [run() for _ in range(more_runs(runs[0][0]))]
    whole, part = zip(*runs, strict=True)
    return statistics.median(whole), statistics.median(part)
