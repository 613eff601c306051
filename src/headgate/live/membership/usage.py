"""Events of the use that nodes report: only figures that have moved, at a limited rate.

A report is compared with the actual book in the state, without memory here, so a restart of the
controller repeats no event.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from headgate.live.node.node_status import GpuReport, NodeReport
from headgate.model import CPUS, MEMORY, WHOLE
from headgate.protocol import GpuUse, NodeReported
from headgate.state import Snapshot

MOVED_SHARE = 0.05
"""A figure that moves by less than this share of the node's or GPU's total is noise: processes
change it by some percent between reports, and no placement depends on it."""

MOVED_MILLI = 100
"""Least move of a GPU's utilisation, in thousandths; larger, since its driver samples it."""

PERIOD_S = 10.0
"""Least seconds between two events of a node: at most 360 per hour (about 50 kB), fewer than the
events of a node that runs tasks of some seconds."""


def node_reported(view: Snapshot, name: str, machine: NodeReport, at: float) -> NodeReported | None:
    """Return the event of a report; None while the node is down, or if no figure has moved."""
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
    """Return the use of a node's GPUs by index; empty if its driver reports none of them."""
    seen = {gpu.index: gpu for gpu in reports if gpu.index < count}
    return tuple(_use(seen.get(index)) for index in range(count)) if seen else ()


def _use(gpu: GpuReport | None) -> GpuUse:
    if gpu is None:
        return GpuUse(None, None)
    milli = None if gpu.utilisation is None else round(WHOLE * gpu.utilisation)
    return GpuUse(gpu.memory_used_bytes, milli)


def _moved(view: Snapshot, row: int, machine: NodeReport, event: NodeReported) -> Iterator[bool]:
    """Yield for each figure whether it has moved from its value in the state's actual book."""
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
    """Return whether a GPU's figure has moved by more than `least`, or become known or unknown."""
    if now is None or before < 0:
        return (now is None) != (before < 0)
    return abs(now - before) > least
