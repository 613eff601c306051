"""Supervision: long-lived coroutines are restarted when they fail, and no failure is silent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0


class Backoff:
    """Pauses between attempts: each twice the one before, the first again after a steady time."""

    def __init__(
        self,
        *,
        first_s: float = FIRST_PAUSE_S,
        longest_s: float = LONGEST_PAUSE_S,
        steady_s: float = STEADY_S,
    ) -> None:
        self.failures = 0  # consecutive
        self._first_s, self._longest_s, self._steady_s = first_s, longest_s, steady_s

    def failed(self, after_s: float) -> float:
        """Count an attempt that failed after `after_s`; return the pause in s before the next."""
        self.failures = 1 if after_s >= self._steady_s else self.failures + 1
        # the exponent is bounded so that a long series of failures does not overflow
        pause_s: float = self._first_s * 2.0 ** min(self.failures - 1, 32)
        return min(self._longest_s, pause_s)


async def supervise(
    name: str, work: Callable[[], Coroutine[Any, Any, None]], backoff: Backoff | None = None
) -> None:
    """Run `work` until it returns or this is cancelled; log a failure and run it again.

    `work` must be able to run again after a failure at any point.
    """
    backoff = backoff or Backoff()
    clock = asyncio.get_running_loop().time
    while True:
        started_s = clock()
        try:
            await work()
        except Exception:  # `work` must continue after any failure
            pause_s = backoff.failed(clock() - started_s)
            log.exception("%s failed; it is restarted in %.1f s", name, pause_s)
            await asyncio.sleep(pause_s)
        else:
            return
