"""What nodes report of their use, as events: only what has moved, and not too often.

It is compared with the book that the state keeps, so nothing is remembered here, and a restart of
the controller repeats nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from headgate.live.probe import GpuReport, NodeReport
from headgate.model import CPUS, MEMORY, WHOLE
from headgate.protocol import GpuUse, NodeReported
from headgate.state import Snapshot

MOVED_SHARE = 0.05
"""A figure that moves by less, of all that the node or GPU has, is noise: what its processes do in
one period of reports and not in the next moves it by some percent, and no placement turns on it."""

MOVED_MILLI = 100
"""The same of a GPU's utilisation, in thousandths: its driver samples it, and it jumps."""

PERIOD_S = 10.0
"""Seconds between two events of a node at least: it makes 360 an hour at most (some 50 kB), fewer
than one that runs tasks of some seconds makes by them."""


def node_reported(view: Snapshot, name: str, machine: NodeReport, at: float) -> NodeReported | None:
    """Return the event that a report makes; None while the node is down, or nothing has moved."""
    row = view.names.node_rows.get(name)
    if row is None or row >= len(view.nodes.alive) or not view.nodes.alive[row]:
        return None
    event = NodeReported(
        at=at,
        node=name,
        cpus_milli=round(WHOLE * machine.cpu_utilisation * machine.cpus),
        memory_bytes=machine.memory_bytes - machine.memory_free_bytes,
        gpus=_gpus(machine.gpus, view.nodes.gpu_count[row]),
    )
    reported_at = view.nodes.reported_at[row]
    if math.isnan(reported_at):
        return event
    early = at - reported_at < PERIOD_S
    return None if early or not any(_moved(view, row, machine, event)) else event


def _gpus(reports: tuple[GpuReport, ...], count: int) -> tuple[GpuUse, ...]:
    """Return the use of a node's GPUs by index; nothing where its driver shows none of them."""
    seen = {gpu.index: gpu for gpu in reports if gpu.index < count}
    return tuple(_use(seen.get(index)) for index in range(count)) if seen else ()


def _use(gpu: GpuReport | None) -> GpuUse:
    if gpu is None:
        return GpuUse(None, None)
    milli = None if gpu.utilisation is None else round(WHOLE * gpu.utilisation)
    return GpuUse(gpu.memory_used_bytes, milli)


def _moved(view: Snapshot, row: int, machine: NodeReport, event: NodeReported) -> Iterator[bool]:
    """Yield of each figure whether it has moved from what the state's book says."""
    actual, first, gpus = view.nodes.actual, view.nodes.first_gpu[row], view.gpus
    used_of = event.gpus or (_use(None),) * view.nodes.gpu_count[row]
    yield abs(event.cpus_milli - actual.at(row, CPUS)) > MOVED_SHARE * WHOLE * machine.cpus
    moved_bytes = abs(event.memory_bytes - actual.at(row, MEMORY))
    yield moved_bytes > MOVED_SHARE * machine.memory_bytes
    sizes = {gpu.index: gpu.memory_bytes for gpu in machine.gpus}
    for index, used in enumerate(used_of):
        gpu, least = first + index, MOVED_SHARE * sizes.get(index, 0)
        yield _differs(used.memory_bytes, gpus.actual_bytes[gpu], least)
        yield _differs(used.utilisation_milli, gpus.utilisation_milli[gpu], MOVED_MILLI)


def _differs(now: int | None, before: int, least: float) -> bool:
    """Return whether a figure of a GPU has moved, or become known or unknown (-1)."""
    if now is None or before < 0:
        return (now is None) != (before < 0)
    return abs(now - before) > least
