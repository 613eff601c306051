"""Control groups: they limit processes and what these start, count their use, and end them.

Both versions, as root. In version 1, groups are made below that of this process, so that its own
limits hold for them, too. In version 2 only groups without processes can have groups with limits
below them: groups are made beside that of this process, and each has its processes in a group of
its own (`processes`), beside which they can make further ones.

Groups are named after the process that makes them, their owner: `sweep` ends those of dead owners.
Only the standard library is used, as guards import this module.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

ROOT = "/sys/fs/cgroup"
RUN_KINDS = ("pids", "memory", "cpu")
NODE_KINDS = ("cpu", "cpuacct")  # in version 2, `cpu` also counts
_UNIFIED = ""  # the kind of version 2, as in /proc/self/cgroup
_LEAF = "processes"
_OWN = "/proc/self/cgroup"
_TRIES = 100
_PERIOD_US = 100_000
_SHARES, _MOST_SHARES = 1024, 262_144  # of a CPU, in version 1
_WEIGHT, _MOST_WEIGHT = 100, 10_000  # the same in version 2
_PATIENCE_S = 5.0
_PAUSE_S = 0.02
_numbers = itertools.count()


class ControlGroup:
    """A group of processes; what they start belongs to it, too."""

    def __init__(self, places: Mapping[str, str]) -> None:
        """Take the group with these `places`: its directory by kind of controller."""
        self.places = dict(places)

    @classmethod
    def make(
        cls, family: str, name: str, *, kinds: tuple[str, ...] = RUN_KINDS, root: str = ROOT
    ) -> ControlGroup:
        """Make a group in a family, which may get a limit itself, with these kinds of limits.

        OSError if this system does not allow it, or does not have the first kind.
        """
        bases = _bases(kinds, root)
        if kinds[0] not in bases:
            raise FileNotFoundError(f"there are no control groups for {kinds[0]} in {root}")
        unique = f"{name.replace('/', '%2F')[:120]}-{identity(os.getpid())}.{next(_numbers)}"
        group = cls({kind: f"{base}/{family}/{unique}" for kind, base in bases.items()})
        for attempt in range(1, _TRIES + 1):
            try:
                group._make(root)
            except FileNotFoundError:  # the last group of the family has just been removed
                if attempt == _TRIES:
                    raise
            except BaseException:
                group.remove()
                raise
            else:
                break
        return group

    def _make(self, root: str) -> None:
        for place in dict.fromkeys(self.places.values()):
            family = os.path.dirname(place)
            _make(family)
            if _UNIFIED in self.places:
                for level in _levels(root, family):
                    for kind in filter(None, self.places):
                        _write(f"{level}/cgroup.subtree_control", f"+{kind}")
            _make(place)
            if _UNIFIED in self.places:
                _make(f"{place}/{_LEAF}")

    def limit(self, *, processes: int = 0, memory_bytes: int = 0, cpus_milli: int = 0) -> None:
        """Set the most processes and threads, the most memory, and the weight in use of the CPUs.

        0 leaves what it has. Memory is limited where this system can.
        """
        if processes:
            self._set("pids", "pids.max", processes)
        if memory_bytes and "memory" in self.places:
            if _UNIFIED in self.places:
                self._set("memory", "memory.max", memory_bytes)
                self._set_if_there("memory", "memory.swap.max", 0)
            else:
                self._set("memory", "memory.limit_in_bytes", memory_bytes)
                self._set_if_there("memory", "memory.memsw.limit_in_bytes", memory_bytes)
        if cpus_milli and "cpu" in self.places:
            if _UNIFIED in self.places:
                weight = min(_MOST_WEIGHT, max(1, _WEIGHT * cpus_milli // 1000))
                self._set("cpu", "cpu.weight", weight)
            else:
                shares = min(_MOST_SHARES, max(2, _SHARES * cpus_milli // 1000))
                self._set("cpu", "cpu.shares", shares)

    def limit_cores(self, cores: float | None) -> None:
        """Give the group so many cores at most; None: as many as there are."""
        quota_us = None if cores is None else round(cores * _PERIOD_US)
        if _UNIFIED in self.places:
            quota = "max" if quota_us is None else quota_us
            self._set("cpu", "cpu.max", f"{quota} {_PERIOD_US}")
        else:
            self._set("cpu", "cpu.cfs_period_us", _PERIOD_US)
            self._set("cpu", "cpu.cfs_quota_us", -1 if quota_us is None else quota_us)

    def family(self) -> ControlGroup:
        """Return the family of the group, to limit it."""
        return ControlGroup({k: os.path.dirname(place) for k, place in self.places.items()})

    def entries(self) -> list[str]:
        """Return the files to which a process of one thread writes 0 in order to enter the group.

        Version 1 moves the thread alone, which does not wait for all processors.
        """
        if _UNIFIED in self.places:
            return self._members()
        return [f"{place}/tasks" for place in dict.fromkeys(self.places.values())]

    def add(self, processes: Iterable[int]) -> None:
        """Move processes into the group, by their ids; those that have ended are ignored."""
        members = self._members()
        for process in processes:
            for file in members:
                with suppress(ProcessLookupError):
                    _write(file, process)

    def _members(self) -> list[str]:
        leaf = f"/{_LEAF}" if _UNIFIED in self.places else ""
        return [f"{place}{leaf}/cgroup.procs" for place in dict.fromkeys(self.places.values())]

    def used_s(self) -> float:
        """Return the CPU seconds of all its processes so far."""
        if _UNIFIED not in self.places:
            return int(_read(f"{self.places['cpuacct']}/cpuacct.usage")) / 1e9
        return _numbers_in(f"{self.places['cpu']}/cpu.stat")["usage_usec"] / 1e6

    def memory(self) -> tuple[int, int]:
        """Return how many processes were killed as memory was short, and the most bytes it used.

        The bytes are 0 where they are not known. In version 1 they never exceed the limit.
        """
        if "memory" not in self.places:
            return 0, 0
        place, unified = self.places["memory"], _UNIFIED in self.places
        events, peak = (
            ("memory.events", "memory.peak")
            if unified
            else ("memory.oom_control", "memory.max_usage_in_bytes")
        )
        try:
            killed = _numbers_in(f"{place}/{events}").get("oom_kill", 0)
            return killed, int(_read(f"{place}/{peak}"))
        except OSError:  # it was removed; or a kernel before 5.19 has no peak
            return 0, 0

    def kill(self) -> None:
        """Kill all its processes; they start no further ones meanwhile."""
        if not any(self._processes()):
            return
        atomic = f"{self.places.get(_UNIFIED, '')}/cgroup.kill"
        with suppress(OSError):  # it is being removed
            if os.path.exists(atomic):
                _write(atomic, 1)
                return
            if "pids" in self.places:  # a group that cannot fork only shrinks
                self._set("pids", "pids.max", 0)
        for process in self._processes():
            self._kill(process)

    def _processes(self) -> Iterator[int]:
        place = self.places.get("pids") or next(iter(self.places.values()))
        for directory, _, _ in os.walk(place):
            with suppress(OSError):
                yield from map(int, _read(f"{directory}/cgroup.procs").split())

    def _kill(self, process: int) -> None:
        """Kill a process if it still is in the group: its id may have been reused."""
        with suppress(OSError):
            handle = os.pidfd_open(process)
            try:
                unique = os.path.basename(next(iter(self.places.values())))
                if f"/{unique}" in _read(f"/proc/{process}/cgroup"):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)

    def end(self) -> None:
        """Kill all its processes and remove it; idempotent."""
        self.remove(kill=True)

    def remove(self, *, kill: bool = False) -> None:
        """Remove the group once its processes have ended; it is left when they do not soon."""
        until = time.monotonic() + _PATIENCE_S
        places = list(dict.fromkeys(self.places.values()))
        while True:
            if kill:
                self.kill()
            for place in places:
                _remove(place)
            places = [place for place in places if os.path.exists(place)]
            if not places:
                break
            if time.monotonic() > until:
                return
            time.sleep(_PAUSE_S)
        for place in dict.fromkeys(map(os.path.dirname, self.places.values())):
            with suppress(OSError):  # others of its family remain
                os.rmdir(place)

    def _set(self, kind: str, name: str, value: object) -> None:
        _write(f"{self.places[kind]}/{name}", value)

    def _set_if_there(self, kind: str, name: str, value: object) -> None:
        if os.path.exists(f"{self.places[kind]}/{name}"):
            self._set(kind, name, value)


def sweep(family: str, *, root: str = ROOT) -> None:
    """End all groups of a family whose owners have died; O(control groups of this system)."""
    found: dict[str, dict[str, str]] = {}
    for kind, top in _tops(root):
        for directory, below, _ in os.walk(top):
            if os.path.basename(directory) != family:
                continue
            for name in below:
                found.setdefault(name, {})[kind] = f"{directory}/{name}"
            below.clear()
    for name, places in found.items():
        pid, _, start = name.rpartition("-")[2].rpartition(".")[0].partition(".")
        if not pid.isdigit() or identity(int(pid)) != f"{pid}.{start}":
            ControlGroup(places).end()


def _tops(root: str) -> list[tuple[str, str]]:
    """Return the kinds of controllers, and where their groups are."""
    if os.path.exists(f"{root}/cgroup.controllers"):
        return [(_UNIFIED, root)]
    kinds = dict.fromkeys((*RUN_KINDS, *NODE_KINDS))
    return [(kind, f"{root}/{kind}") for kind in kinds if os.path.isdir(f"{root}/{kind}")]


def _bases(kinds: Iterable[str], root: str) -> dict[str, str]:
    """Return the directories, by kind, below which this process makes groups."""
    own = dict[str, str]()
    for line in _read(_OWN).splitlines():
        _, mounted, path = line.split(":", 2)
        own |= dict.fromkeys(mounted.split(","), path.rstrip("/"))
    (kind, top), *others = _tops(root) or [("none", root)]
    if kind == _UNIFIED:
        known = _read(f"{root}/cgroup.controllers").split()
        wanted = (_UNIFIED, *(kind for kind in kinds if kind in known))
        return dict.fromkeys(wanted, _below(top, os.path.dirname(own.get(_UNIFIED, ""))))
    tops = [(kind, top), *others]
    return {k: os.path.realpath(_below(t, own.get(k, ""))) for k, t in tops if k in kinds}


def _below(top: str, path: str) -> str:
    """Return a group's directory, or the top one where a container sees no other."""
    return f"{top}{path}".rstrip("/") if os.path.isdir(f"{top}{path}") else top


def _levels(root: str, directory: str) -> Iterator[str]:
    """Yield the directories from the root to this one."""
    yield root
    found = root
    for name in directory.removeprefix(root).split("/")[1:]:
        found = f"{found}/{name}"
        yield found


def identity(process: int) -> str:
    """Return the id of a process with the time of its start, as ids are reused; '' if it ended."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:  # its name may be any bytes
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else f"{process}.{fields[19].decode()}"


def _make(directory: str) -> None:
    with suppress(FileExistsError):
        os.mkdir(directory)


def _remove(directory: str) -> None:
    """Remove a group without processes, and all below it."""
    with suppress(OSError):
        for entry in os.scandir(directory):
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
        os.rmdir(directory)


def _numbers_in(path: str) -> dict[str, int]:
    return {key: int(number) for key, number in map(str.split, _read(path).splitlines())}


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _write(path: str, value: object) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(str(value))
