"""What a run uses while it runs: memory, memory of GPUs, CPUs; by looks at its processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import NamedTuple

import psutil

from headgate.live.node.node_status import gpu_processes
from headgate.model import WHOLE, Usage

_FIRST_S, _PERIOD_S = 1.0, 5.0  # from look to look, twice as long each time


class Peaks(NamedTuple):
    """The most bytes of memory, and of a GPU, that a run was seen to use, and its mean CPUs.

    0 where that is not known, as of a run that ends within a second.
    """

    memory_bytes: int = 0
    gpu_bytes: int = 0
    cpus_milli: int = 0

    def added_to(self, usage: Usage) -> Usage:
        """Return the usage of a run that was seen to use so much."""
        memory, gpu, cpus = self
        return replace(usage, peak_memory_bytes=memory, peak_gpu_bytes=gpu, cpus_milli=cpus)


class RunMeter:
    """Looks at the processes of a run: its guard's descendants."""

    def __init__(self, guard: int, *, on_gpus: bool) -> None:
        """Take the process id of the guard, and whether the run has GPUs."""
        self._guard, self._on_gpus = guard, on_gpus
        self._first: tuple[float, float] | None = None  # time, and CPU seconds by then
        self._seen = self._now = Peaks()

    @property
    def now(self) -> Peaks:
        """What the last look saw, with the mean CPUs since the first."""
        return self._now

    @property
    def peaks(self) -> Peaks:
        """What was seen so far."""
        return self._seen

    def look(self) -> None:
        """Look once; O(processes of the machine). The first look says what was used before."""
        now, cpu_s, memory_bytes, pids = time.monotonic(), 0.0, 0, set[int]()
        with suppress(psutil.Error):
            guard = psutil.Process(self._guard)
            for process in (guard, *guard.children(recursive=True)):
                with suppress(psutil.Error), process.oneshot():
                    memory, times = process.memory_info(), process.cpu_times()
                    memory_bytes += max(memory.rss - memory.shared, 0)
                    # of those that have ended, their parents have the times
                    cpu_s += sum((times.user, times.system))
                    cpu_s += sum((times.children_user, times.children_system))
                    pids.add(process.pid)
        if self._first is None:
            self._first = now, cpu_s
            return
        since, before_s = self._first
        on_gpus = gpu_processes().values() if self._on_gpus else ()
        used = [sum(some for pid, some in gpu.items() if pid in pids) for gpu in on_gpus]
        mean = round(WHOLE * max(cpu_s - before_s, 0.0) / max(now - since, _FIRST_S))
        self._now = Peaks(
            memory_bytes=memory_bytes,
            gpu_bytes=max([*used, 0]),
            cpus_milli=mean if pids else self._seen.cpus_milli,
        )
        self._seen = Peaks(
            memory_bytes=max(memory_bytes, self._seen.memory_bytes),
            gpu_bytes=max(self._now.gpu_bytes, self._seen.gpu_bytes),
            cpus_milli=self._now.cpus_milli,
        )


@asynccontextmanager
async def measured(
    guard: int,
    *,
    on_gpus: bool,
    report: Callable[[Peaks], None],
    note: Callable[[Peaks], None],
) -> AsyncIterator[None]:
    """Measure a run in a block, with a look every few seconds, and report what it has used.

    `note` is called, in a thread, with what it uses at each look, and with nothing at the end.
    """
    meter = RunMeter(guard, on_gpus=on_gpus)

    def seen() -> None:
        meter.look()
        note(meter.now)

    async def look() -> None:
        pause_s = _FIRST_S
        while True:
            await asyncio.to_thread(seen)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PERIOD_S)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
        report(meter.peaks)
        note(Peaks())
