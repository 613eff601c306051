"""What processes of a node use that belong to no run: CPUs, memory, and memory of GPUs.

Runs are the descendants of guards, which lose none of theirs. Ray's and Headgate's own processes do
not count either. The processes of other programs on a joined Ray cluster do.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

import psutil

from headgate.live.node.node_status import gpu_processes
from headgate.live.run import guard
from headgate.model import WHOLE
from headgate.protocol import GpuOutside, Outside

SMOOTHING_S = 60.0
"""Time constant of the mean load: a load that has begun counts by 63 % after so many seconds."""

_SERVICE = re.compile(
    r"(^|/)(raylet|gcs_server)( |$)|/ray/(_private|dashboard)/"
    r"|^ray::(IDLE|NodeAgent|Executor|Master|Holder)\b|(^|/)headgate( |$)|-m headgate\b"
)
"""The commands, or titles, of processes of Ray and Headgate themselves."""


class ProcessUse(NamedTuple):
    """A process, when it started, and what it has used: CPU seconds, and bytes now."""

    pid: int
    parent: int
    started: float
    command: str
    cpu_s: float
    memory_bytes: int


def running() -> Iterator[ProcessUse]:
    """Yield the processes of this machine; also those of other users that are seen."""
    for process in psutil.process_iter():
        with suppress(psutil.Error), process.oneshot():
            times, memory = process.cpu_times(), process.memory_info()
            yield ProcessUse(
                pid=process.pid,
                parent=process.ppid(),
                started=process.create_time(),
                command=" ".join(process.cmdline()) or process.name(),
                cpu_s=times.user + times.system,
                memory_bytes=max(memory.rss - memory.shared, 0),  # what it shares is mostly cache
            )


def of_no_run(processes: Iterable[ProcessUse]) -> dict[int, ProcessUse]:
    """Return the processes, by id, that belong to no run, nor to Ray or Headgate themselves."""
    every = {each.pid: each for each in processes}
    known = {pid: f" {guard.__file__}" in each.command for pid, each in every.items()}
    in_run = dict.fromkeys(every, False)
    for pid in every:
        line = [pid]
        while (at := every.get(line[-1])) is not None and not known[at.pid]:
            if at.parent in line:
                break
            line.append(at.parent)
        in_run[pid] = known.get(line[-1], False)
    return {
        pid: each
        for pid, each in every.items()
        if not in_run[pid] and _SERVICE.search(each.command) is None
    }


class OutsideMeter:
    """Measures what is used of this machine, from one report to the next."""

    def __init__(
        self,
        *,
        processes: Callable[[], Iterable[ProcessUse]] = running,
        on_gpus: Callable[[], Mapping[int, Mapping[int, int]]] = gpu_processes,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Processes, and the bytes that they use of GPUs, by index and id, are read with these."""
        self._processes, self._on_gpus, self._now = processes, on_gpus, now
        self._cpu_s: dict[tuple[int, float], float] = {}  # by process
        self._at: float | None = None
        self._load = 0.0

    def measure(self, used_bytes: int) -> Outside:
        """Return what is used; memory of which the machine uses so much in all.

        Of GPUs only what processes use that are seen here: in a container others are not.
        """
        outside = of_no_run(self._processes())
        memory_bytes = sum(each.memory_bytes for each in outside.values())
        gpus = [
            GpuOutside(index, sum(mine.values()), max(mine, key=mine.__getitem__))
            for index, by_process in sorted(self._on_gpus().items())
            if (mine := {pid: used for pid, used in by_process.items() if pid in outside})
        ]
        return Outside(
            cpus_milli=round(WHOLE * self._smoothed(outside.values())),
            memory_bytes=min(memory_bytes, used_bytes),
            gpus=tuple(gpus),
        )

    def _smoothed(self, outside: Iterable[ProcessUse]) -> float:
        """Return the mean number of CPUs that processes use, in which the latest counts most."""
        now, before = self._now(), self._cpu_s
        self._cpu_s = {(each.pid, each.started): each.cpu_s for each in outside}
        if self._at is not None and (passed_s := now - self._at) > 0:
            used_s = sum(s - before.get(key, s) for key, s in self._cpu_s.items())
            weight = 1 - math.exp(-passed_s / SMOOTHING_S)
            self._load += weight * (used_s / passed_s - self._load)
        self._at = now
        return self._load
