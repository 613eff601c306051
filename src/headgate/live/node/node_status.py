"""The current state of a node: processors, memory, disk and GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import psutil
import pynvml

from headgate.model.topology.closeness import Closeness
from headgate.protocol import NO_OUTSIDE, Outside, OverUse

_ANCESTORS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: Closeness.SWITCH,
    pynvml.NVML_TOPOLOGY_SINGLE: Closeness.SWITCH,
    pynvml.NVML_TOPOLOGY_MULTIPLE: Closeness.SWITCH,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: Closeness.BRIDGE,
    pynvml.NVML_TOPOLOGY_NODE: Closeness.SOCKET,
    pynvml.NVML_TOPOLOGY_SYSTEM: Closeness.SYSTEM,
}
"""How near two GPUs are, by the nearest common ancestor of theirs that NVML reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReport:
    """One GPU as its driver reports it; `utilisation` is in [0, 1], None if it is unknown."""

    index: int
    name: str
    memory_bytes: int
    memory_used_bytes: int
    utilisation: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """One node at one moment; `dataclasses.asdict` gives its JSON form.

    `cpu_utilisation` is in [0, 1], the mean since the process' last report (0 in the first).
    `outside` is what processes use of it that belong to no run, if that is measured; `over` are
    the runs that use more than they hold.
    """

    cpus: int
    cpu_utilisation: float
    memory_bytes: int
    memory_free_bytes: int
    disk_bytes: int
    disk_free_bytes: int
    gpus: tuple[GpuReport, ...]
    outside: Outside = NO_OUTSIDE
    over: tuple[OverUse, ...] = ()


def gpu_closeness() -> tuple[tuple[tuple[int, ...], ...], int]:
    """Return how near the GPUs of this machine are to each other, as `Closeness`, by index.

    And the least number of NVLinks between two GPUs that have any, directly or through switches, 0
    without. Nothing where the driver does not report all, and for fewer than two GPUs.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return (), 0
    try:
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        rows = [[_closeness(a, b) for b in handles] for a in handles]
        joined = _nvlinks(handles)
    except (KeyError, pynvml.NVMLError):
        return (), 0
    finally:
        pynvml.nvmlShutdown()
    for a, b in joined:
        rows[a][b] = rows[b][a] = Closeness.NVLINK
    near = tuple(tuple(row) for row in rows)
    return (near, min(joined.values(), default=0)) if count > 1 else ((), 0)


def _closeness(a: Any, b: Any) -> int:
    if a is b:
        return 0
    return _ANCESTORS[pynvml.nvmlDeviceGetTopologyCommonAncestor(a, b)]


def _nvlinks(handles: Sequence[Any]) -> dict[tuple[int, int], int]:
    """Return how many NVLinks join two GPUs, by their indices, for those that have any."""
    direct: Counter[tuple[int, int]] = Counter()
    switched: Counter[int] = Counter()
    index = {_address(pynvml.nvmlDeviceGetPciInfo(gpu)): n for n, gpu in enumerate(handles)}
    for a, gpu in enumerate(handles):
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            try:
                if not pynvml.nvmlDeviceGetNvLinkState(gpu, link):
                    continue
                kind = pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu, link)
                b = index.get(_address(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu, link)))
            except pynvml.NVMLError:  # the GPU has no such link
                break
            if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                switched[a] += 1
            elif b is not None and a < b:
                direct[a, b] += 1
    for a, b in combinations(sorted(switched), 2):
        direct[a, b] += min(switched[a], switched[b])
    return direct


def _address(pci: Any) -> tuple[int, int, int]:
    return pci.domain, pci.bus, pci.device


def probe_node(disk: Path = Path("/")) -> NodeReport:
    """Return the state of this machine and of a path's disk; unreadable values are 0 or absent."""
    memory = psutil.virtual_memory()
    try:
        usage = psutil.disk_usage(str(disk))
        disk_bytes, disk_free_bytes = usage.total, usage.free
    except OSError:
        disk_bytes = disk_free_bytes = 0
    return NodeReport(
        cpus=psutil.cpu_count() or 1,
        cpu_utilisation=psutil.cpu_percent() / 100,
        memory_bytes=memory.total,
        memory_free_bytes=memory.available,
        disk_bytes=disk_bytes,
        disk_free_bytes=disk_free_bytes,
        gpus=_probe_gpus(),
    )


def _probe_gpus() -> tuple[GpuReport, ...]:
    """Return the GPUs that NVML reports: none without its library, and none that it has lost."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        found = (_probe_gpu(index) for index in range(pynvml.nvmlDeviceGetCount()))
        return tuple(gpu for gpu in found if gpu is not None)
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def _probe_gpu(index: int) -> GpuReport | None:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        name = pynvml.nvmlDeviceGetName(handle)
    except pynvml.NVMLError:  # fallen off the bus
        return None
    try:
        utilisation = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    except pynvml.NVMLError:  # not available for a GPU with MIG
        utilisation = None
    return GpuReport(
        index=index,
        name=str(name),
        memory_bytes=int(memory.total),
        memory_used_bytes=int(memory.used),
        utilisation=utilisation,
    )


def gpu_processes() -> dict[int, dict[int, int]]:
    """Return the bytes that processes use of GPUs, by index and process id; as far as is known."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        count = pynvml.nvmlDeviceGetCount()
        return {index: used for index in range(count) if (used := _used_by_process(index))}
    except pynvml.NVMLError:
        return {}
    finally:
        pynvml.nvmlShutdown()


def _used_by_process(index: int) -> dict[int, int]:
    """Return the bytes of one GPU by process, whether it computes or draws."""
    used: dict[int, int] = {}
    for ask in (
        pynvml.nvmlDeviceGetComputeRunningProcesses,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses,
    ):
        with suppress(pynvml.NVMLError):  # it is lost, or divided, or its driver is too old
            for process in ask(pynvml.nvmlDeviceGetHandleByIndex(index)):
                used_bytes = int(process.usedGpuMemory or 0)
                used[process.pid] = max(used_bytes, used.get(process.pid, 0))
    return used
