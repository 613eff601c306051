"""What tasks like one have used, where that is another amount than it requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from headgate.model import WHOLE, Demand
from headgate.protocol.reasons import GPU_MEMORY
from headgate.state import Snapshot, thaw
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

    `starts_at`: when a task that waits is expected to start if it asks only for what is enough.
    """

    runs: int
    amounts: tuple[UsedAmount, ...]
    starts_at: float | None = None

    @property
    def less(self) -> tuple[UsedAmount, ...]:
        """The amounts of which less than is requested is enough."""
        return tuple(each for each in self.amounts if each.enough < each.asked)


def sizing_of(snapshot: Snapshot, task: int) -> Sizing | None:
    """Return what tasks like one (row) have used, None if it requests about that.

    O(1), but for finding its kind. `starts_at` is left open.
    """
    classes, row = snapshot.runtime_classes, usage_class(snapshot, task)
    runs = classes.used_runs[row]
    amounts = tuple(_amounts(snapshot, row, snapshot.demand(task)))
    if runs < RUNS_LEAST:
        amounts = tuple(each for each in amounts if each.used > each.asked)
    return Sizing(runs=runs, amounts=amounts) if amounts else None


def with_less(snapshot: Snapshot, tasks: Iterable[int], sizing: Sizing) -> Snapshot:
    """Return a snapshot in which some tasks (rows) ask for no more than is enough.

    O(rows), as any hypothetical state.
    """
    fields = {"memory": "memory_bytes", GPU_MEMORY: "gpu_memory_bytes", "cpus": "cpus_milli"}
    least = {fields[each.resource]: each.enough for each in sizing.less}
    state = thaw(snapshot)
    for task in tasks:
        asked = state.demand(task)
        less = replace(asked, **{f: min(n, getattr(asked, f)) for f, n in least.items()})
        state.tasks.demand[task] = state.names.demand(less)
        state.tasks.memory_bytes[task] = less.gpu_memory_bytes
    return state.freeze()


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
