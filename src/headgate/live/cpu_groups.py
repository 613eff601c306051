"""Control groups that limit the CPU time of some processes, and count it.

As root, with the `cpu` controller of either version of control groups; in version 1, `cpuacct`
counts. Groups are named after the process that makes them: those of a process that has died are
removed by the next one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path("/sys/fs/cgroup")
_PREFIX = "hgcpu"
_PERIOD_US = 100_000
_REMOVE_S = 5.0


class CpuGroup:
    """A group of processes; what they start later belongs to it, too."""

    def __init__(self, name: str, *, root: Path = ROOT) -> None:
        """Make the group; OSError if this system does not allow it."""
        self._unified = (root / "cgroup.controllers").exists()
        parents = (root,) if self._unified else (root / "cpu", root / "cpuacct")
        self._directories = tuple(p / f"{_PREFIX}{os.getpid()}-{name}" for p in parents)
        try:
            for directory in self._directories:
                directory.mkdir()
        except OSError:
            self.remove()
            raise

    def add(self, processes: Iterable[int]) -> None:
        """Move processes into the group, by their ids; those that have ended are ignored."""
        for process in processes:
            for directory in self._directories:
                with suppress(ProcessLookupError):
                    (directory / "cgroup.procs").write_text(str(process))

    def limit(self, cores: float | None) -> None:
        """Give the group so many cores at most; None: as many as there are."""
        quota_us = None if cores is None else round(cores * _PERIOD_US)
        directory = self._directories[0]
        if self._unified:
            quota = "max" if quota_us is None else quota_us
            (directory / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
        else:
            (directory / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            quota = -1 if quota_us is None else quota_us
            (directory / "cpu.cfs_quota_us").write_text(str(quota))

    def used_s(self) -> float:
        """Return the CPU seconds of all its processes so far."""
        if not self._unified:
            return int((self._directories[1] / "cpuacct.usage").read_text()) / 1e9
        lines = (self._directories[0] / "cpu.stat").read_text().splitlines()
        return int(dict(line.split() for line in lines)["usage_usec"]) / 1e6

    def remove(self) -> None:
        """Remove the group, once its processes have ended; idempotent."""
        for directory in self._directories:
            _remove(directory)


def available(*, root: Path = ROOT) -> bool:
    """Return whether this process can make groups with a limit; removes those of dead processes."""
    for directory in (root, root / "cpu", root / "cpuacct"):
        for left in directory.glob(f"{_PREFIX}*-*"):
            owner = left.name.removeprefix(_PREFIX).partition("-")[0]
            if owner.isdigit() and not psutil.pid_exists(int(owner)):
                _remove(left)
    try:
        group = CpuGroup("try", root=root)
    except OSError:
        return False
    try:
        group.limit(0.5)
        group.used_s()
    except (OSError, KeyError):
        return False
    finally:
        group.remove()
    return True


def _remove(directory: Path) -> None:
    until = time.monotonic() + _REMOVE_S
    while directory.exists():
        try:
            directory.rmdir()
        except OSError:  # of a process that is still ending
            if time.monotonic() > until:
                return
            time.sleep(0.05)
