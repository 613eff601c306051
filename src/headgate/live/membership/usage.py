"""Events of the use that nodes report: only figures that have moved, at a limited rate.

A report is compared with the actual book in the state, without memory here, so a restart of the
controller repeats no event.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from headgate.live.node.node_status import GpuReport, NodeReport
from headgate.model import CPUS, MEMORY, WHOLE
from headgate.protocol import GpuOutside, GpuUse, NodeReported, Outside, OverUse
from headgate.state import Snapshot
from headgate.state.actual_book import memory_held, runs_on

MOVED_SHARE = 0.05
"""A figure that moves by less than this share of the node's or GPU's total is noise: processes
change it by some percent between reports, and no placement depends on it."""

MOVED_MILLI = 100
"""Least move of a GPU's utilisation, in thousandths; larger, since its driver samples it."""

LEAST_SHARE = 0.05
"""What is used outside Headgate counts once it is more than this share of the node's or GPU's
total, and until it is less than half of that: the system itself uses some. What a run uses counts
once it is this share above what the run holds, and until it is less than half of that above."""

MOVED_LOAD = 0.1
"""Least move of the load by processes outside Headgate, as a share of the node's CPUs."""

_ROUNDING = 1.01  # of times: a load may seem to be that much more than there is

PERIOD_S = 10.0
"""Least seconds between two events of a node: at most 360 per hour (about 50 kB), fewer than the
events of a node that runs tasks of some seconds."""


def report_fault(machine: NodeReport) -> str:
    """Return what a report says that cannot be, "" if it can: it is not to be believed then."""
    outside, cpus = machine.outside, WHOLE * machine.cpus
    figures: list[tuple[str, float, float]] = [
        ("of its CPUs is used", machine.cpu_utilisation, 1),
        ("bytes of memory are free", machine.memory_free_bytes, machine.memory_bytes),
        ("thousandths of CPUs are used outside Headgate", outside.cpus_milli, cpus * _ROUNDING),
        (
            "bytes of memory are used outside Headgate",
            outside.memory_bytes,
            machine.memory_bytes - machine.memory_free_bytes,
        ),
    ]
    sizes = {gpu.index: gpu.memory_bytes for gpu in machine.gpus}
    figures += [
        (f"bytes of GPU {gpu.index} are used", gpu.memory_used_bytes, gpu.memory_bytes)
        for gpu in machine.gpus
    ]
    figures += [
        (f"of GPU {gpu.index} is in use", gpu.utilisation, 1)
        for gpu in machine.gpus
        if gpu.utilisation is not None
    ]
    figures += [
        (f"bytes of GPU {gpu} are used outside Headgate", used, sizes.get(gpu, 0))
        for gpu, used, _ in outside.gpus
    ]
    largest = max(sizes.values(), default=0)
    for run, memory_bytes, gpu_bytes in machine.over:
        used = f"bytes of memory are used by {run}"
        figures += [
            (used, memory_bytes, machine.memory_bytes),
            (f"bytes of a GPU are used by {run}", gpu_bytes, largest),
        ]
    wrong = next((each for each in figures if not 0 <= each[1] <= each[2]), None)  # nor NaN
    return "" if wrong is None else f"{wrong[1]} {wrong[0]}, of at most {wrong[2]:g}"


def node_reported(view: Snapshot, name: str, machine: NodeReport, at: float) -> NodeReported | None:
    """Return the event of a report, which has no fault; None if no figure has moved.

    And while the node is down.
    """
    row = view.names.node_rows.get(name)
    if row is None or row >= len(view.nodes.alive) or not view.nodes.alive[row]:
        return None
    event = NodeReported(
        at=at,
        node=name,
        cpus_milli=round(WHOLE * machine.cpu_utilisation * machine.cpus),
        memory_bytes=machine.memory_bytes - machine.memory_free_bytes,
        gpus=_gpus(machine.gpus, view.nodes.gpu_count[row]),
        outside=_outside(view, row, machine),
        over=tuple(_over(view, row, machine)),
    )
    reported_at = view.nodes.reported_at[row]
    if math.isnan(reported_at):
        return event
    early = at - reported_at < PERIOD_S
    return None if early or not any(_moved(view, row, machine, event)) else event


def _outside(view: Snapshot, row: int, machine: NodeReport) -> Outside:
    """Return what counts as used outside Headgate: what has moved, the rest as it was.

    Where the machine has more than the node, that is used first.
    """
    spec, said, nodes = view.node(row), machine.outside, view.nodes
    cpus, memory_bytes = WHOLE * machine.cpus, machine.memory_bytes
    found = Outside(
        cpus_milli=_counted(
            min(said.cpus_milli, cpus),
            nodes.outside.at(row, CPUS),
            total=cpus,
            beyond=cpus - WHOLE * spec.cpus,
            moved=MOVED_LOAD,
        ),
        memory_bytes=_counted(
            said.memory_bytes,
            nodes.outside.at(row, MEMORY),
            total=memory_bytes,
            beyond=memory_bytes - (spec.memory_bytes or 0),
        ),
    )
    sizes = {gpu.index: gpu.memory_bytes for gpu in machine.gpus}
    used = {gpu.gpu: gpu for gpu in said.gpus}
    gpus = []
    for index, gpu in enumerate(spec.gpus):
        each, size = used.get(index, GpuOutside(index, 0, 0)), sizes.get(index, 0)
        before = view.gpus.outside_bytes[nodes.first_gpu[row] + index]
        counted = _counted(each.memory_bytes, before, total=size, beyond=size - gpu.memory_bytes)
        if counted:
            pid = each.pid or view.gpus.outside_pid[nodes.first_gpu[row] + index]
            gpus.append(GpuOutside(index, counted, pid))
    return found._replace(gpus=tuple(gpus))


def _over(view: Snapshot, row: int, machine: NodeReport) -> Iterator[OverUse]:
    """Yield the runs that count as using more than they hold.

    Not those that a report names and that have ended meanwhile. A machine may have more than the
    node, and a run use that.
    """
    reported, spec, tasks = {each.run: each for each in machine.over}, view.node(row), view.tasks
    for task in runs_on(view, row):
        run, (most_bytes, most_gpu_bytes) = view.run_id(task), memory_held(view, task)
        each = reported.get(run)
        if each is None:
            continue
        sizes = [spec.gpus[index].memory_bytes for index in view.held_gpus(task)]
        memory_bytes = _counted_over(
            min(each.memory_bytes, spec.memory_bytes or 0),
            tasks.over_bytes[task],
            held=most_bytes,
        )
        gpu_bytes = _counted_over(
            min(each.gpu_bytes, max(sizes, default=0)),
            tasks.over_gpu_bytes[task],
            held=most_gpu_bytes,
        )
        if memory_bytes or gpu_bytes:
            yield OverUse(run, memory_bytes, gpu_bytes)


def _counted_over(used: int, before: int, *, held: int) -> int:
    """Return how much of what a run uses counts, as it holds less; which counted as `before`."""
    least = held * (1 + LEAST_SHARE / (2 if before else 1))
    now = used if held and used > least else 0
    stays = bool(now) == bool(before) and abs(now - before) <= MOVED_SHARE * held
    return before if stays else now


def _counted(used: int, before: int, *, total: int, beyond: int, moved: float = MOVED_SHARE) -> int:
    """Return how much of a figure counts, which counted as `before`; `beyond` is not the node's."""
    least = LEAST_SHARE * total / (2 if before else 1)
    now = max(used - max(beyond, 0), 0) if used > least else 0
    stays = bool(now) == bool(before) and abs(now - before) <= moved * total
    return before if stays else now


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
    yield event.outside != _outside_before(view, row)
    yield event.over != tuple(_over_before(view, row))
    sizes = {gpu.index: gpu.memory_bytes for gpu in machine.gpus}
    for index, used in enumerate(used_of):
        gpu, least = first + index, MOVED_SHARE * sizes.get(index, 0)
        yield _differs(used.memory_bytes, gpus.actual_bytes[gpu], least)
        yield _differs(used.utilisation_milli, gpus.utilisation_milli[gpu], MOVED_MILLI)


def _outside_before(view: Snapshot, row: int) -> Outside:
    """Return what counts as used outside Headgate in the state."""
    nodes, gpus, first = view.nodes, view.gpus, view.nodes.first_gpu[row]
    return Outside(
        cpus_milli=nodes.outside.at(row, CPUS),
        memory_bytes=nodes.outside.at(row, MEMORY),
        gpus=tuple(
            GpuOutside(index, gpus.outside_bytes[first + index], gpus.outside_pid[first + index])
            for index in range(nodes.gpu_count[row])
            if gpus.outside_bytes[first + index]
        ),
    )


def _over_before(view: Snapshot, row: int) -> Iterator[OverUse]:
    """Yield the runs that use more than they hold in the state."""
    for task in runs_on(view, row):
        used = view.tasks.over_bytes[task], view.tasks.over_gpu_bytes[task]
        if any(used):
            yield OverUse(view.run_id(task), *used)


def _differs(now: int | None, before: int, least: float) -> bool:
    """Return whether a GPU's figure has moved by more than `least`, or become known or unknown."""
    if now is None or before < 0:
        return (now is None) != (before < 0)
    return abs(now - before) > least
