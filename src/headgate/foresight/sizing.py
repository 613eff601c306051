"""What tasks like one have used, where that is another amount than it requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headgate.model import WHOLE, Demand
from headgate.planning.place.first_fit import first_fit
from headgate.protocol.reasons import GPU_MEMORY
from headgate.state import Snapshot, TaskState, thaw
from headgate.state.usage import usage_class

RUNS_LEAST = 3
"""From fewer runs nothing is concluded about what is enough."""

_MARGIN = 1.2  # of what is enough over what was used at most
_NOISE = 1.05  # that much more than it requested is none


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedAmount:
    """What a task requests of a resource, what tasks like it used at most, what is `enough`.

    Bytes of `memory`, and of `gpu_memory`; thousandths of `cpus`, in the mean over a run.
    """

    resource: str
    asked: int
    used: int
    enough: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The amounts of which tasks used less, by far, or more than is requested; of so many runs.

    `fits_now`: a task that waits has room now if it asks only for what is enough, and else none.
    """

    runs: int
    amounts: tuple[UsedAmount, ...]
    fits_now: bool = False


def sizing_of(snapshot: Snapshot, job: int, task: int) -> Sizing | None:
    """Return what tasks like one (row) have used, None if it requests about that.

    O(1) where it does; else O(its job's tasks + nodes + rows).
    """
    classes, row = snapshot.runtime_classes, usage_class(snapshot, task)
    runs = classes.used_runs[row]
    amounts = tuple(_amounts(snapshot, row, snapshot.demand(task)))
    over = [each for each in amounts if each.used > each.asked]
    if runs < RUNS_LEAST:
        amounts = tuple(over)
    if not amounts:
        return None
    waits = snapshot.tasks.state[task] == TaskState.WAITING and len(over) < len(amounts)
    fits = waits and _fits_with(snapshot, job, task, amounts)
    return Sizing(runs=runs, amounts=amounts, fits_now=fits)


def _amounts(snapshot: Snapshot, row: int, demand: Demand) -> Iterator[UsedAmount]:
    classes = snapshot.runtime_classes
    kinds = [
        ("memory", demand.memory_bytes, classes.used_memory_bytes[row], True),
        (GPU_MEMORY, demand.gpu_memory_bytes, classes.used_gpu_bytes[row], demand.in_part),
        ("cpus", demand.cpus_milli, classes.used_cpus_milli[row], demand.cpus_milli > 0),
    ]
    for resource, asked, used, is_limit in kinds:
        enough = _whole_cpus(used) if resource == "cpus" else _round_size(used)
        is_over = is_limit and used > asked * _NOISE
        if used and (is_over or enough < asked):
            yield UsedAmount(resource=resource, asked=asked, used=used, enough=enough)


def _whole_cpus(used_milli: int) -> int:
    return max(1, -(-int(used_milli * _MARGIN) // WHOLE)) * WHOLE


def _round_size(used_bytes: int) -> int:
    """Return a size that is enough: a power of two bytes, or one and a half."""
    least, power = int(used_bytes * _MARGIN), 1
    while power < least:
        power *= 2
    return power * 3 // 4 if power * 3 // 4 >= least else power


def _fits_with(snapshot: Snapshot, job: int, task: int, amounts: tuple[UsedAmount, ...]) -> bool:
    """Return whether a task, or its gang, has room only if it requests no more than is enough."""
    spec = snapshot.job(job)
    tasks = snapshot.waiting_of(job).tolist() if snapshot.jobs.gang[job] else [task]
    apart = spec.gang and spec.distinct_nodes
    state = thaw(snapshot)
    as_is = [state.tasks.demand[each] for each in tasks]
    if first_fit(state.ledger, tasks, as_is, state.live_nodes(), apart=apart):
        return False
    state = thaw(snapshot)
    smaller = [state.names.demand(_smaller(snapshot.demand(each), amounts)) for each in tasks]
    return first_fit(state.ledger, tasks, smaller, state.live_nodes(), apart=apart)


def _smaller(demand: Demand, amounts: tuple[UsedAmount, ...]) -> Demand:
    """Return a demand that requests no more than is enough of the amounts."""
    fields = {"memory": "memory_bytes", GPU_MEMORY: "gpu_memory_bytes", "cpus": "cpus_milli"}
    least = {fields[e.resource]: e.enough for e in amounts if e.enough < e.asked}
    return replace(demand, **{f: min(n, getattr(demand, f)) for f, n in least.items()})
