"""Queues: what jobs wait in, a tree of shares and limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from headgate.base.units import format_size
from headgate.model.resources import WHOLE, Demand, amount_of

QueueAmounts = tuple[tuple[str, int], ...]
"""Amounts by name of the kind, sorted: CPUs and custom kinds in thousandths, memory in bytes."""

DEFAULT = "default"
"""The queue of jobs that name none; it always exists."""

GPUS_KIND = "gpus"
"""The name of GPUs among amounts, in thousandths as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A share of the cluster, for jobs or for the queues below it.

    `parent` is the queue that it is part of, "" for one at the top; only queues without others
    below have jobs. `weight` is that against its siblings. All jobs below it hold at most
    `max_gpus` GPUs, and the `limit` of other kinds, together.

    The jobs of one user below it hold at most the `per_user` amounts together.

    Surplus of its elastic jobs runs while they all hold at most the part `elastic_limit` of what it
    is guaranteed, or else may hold. Of all surplus that its jobs may have, the part `yield_ratio`
    gives way to whatever needs the room; the rest, once it runs, only to queues that take back what
    they have lent.

    Before siblings share the rest by weight, it gets its `guaranteed` amounts, as far as its jobs
    need them. What they do not need others borrow, if it does `lend`. It holds at most its
    `borrow_limit` beyond its guarantee, of the kinds that this names.

    Its jobs run on nodes with the `labels`
    of the queue and of those above it, as of a `Demand.selector`. A job that names one of its
    `types` in place of a queue is in this one.

    When it takes back what it lent, the runs that are stopped get notice `grace_s` seconds before
    they are killed, unless their own job gives them less; None: what that gives them. Runs of its
    own jobs are not stopped for others before they have lasted for `min_run_s`.

    Only `users` may have jobs in it, without any all; its `admins` may cancel and move these. No
    run takes longer than `max_time_s`. All of this also holds for the queues below it.

    `open`: it takes jobs and starts them; `closed`: it takes no new ones; `stopped`: it starts
    none; `removed`: there is none any more. `estimate` says what the run times that its jobs
    declare stand for: `corrected` by how long earlier jobs took relative to theirs, or exactly as
    `declared`.
    """

    name: str
    weight: float = 1.0
    max_gpus: int | None = None
    max_jobs_in_flight: int | None = None
    estimate: Literal["corrected", "declared"] = "corrected"
    parent: str = ""
    limit: QueueAmounts = ()
    labels: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    state: Literal["open", "closed", "stopped", "removed"] = "open"
    guaranteed: QueueAmounts = ()
    borrow_limit: QueueAmounts = ()
    lend: bool = True
    users: tuple[str, ...] = ()
    admins: tuple[str, ...] = ()
    max_time_s: float | None = None
    grace_s: float | None = None
    min_run_s: float = 0.0
    per_user: QueueAmounts = ()
    elastic_limit: float = 1.0
    yield_ratio: float = 1.0

    def most_gpus(self) -> int | None:
        """Return how many GPUs it may hold, borrowed ones included; None without a limit."""
        most = [] if self.max_gpus is None else [self.max_gpus]
        if GPUS_KIND in dict(self.borrow_limit):
            milli = dict(self.guaranteed).get(GPUS_KIND, 0) + dict(self.borrow_limit)[GPUS_KIND]
            most.append(milli // WHOLE)
        return min(most, default=None)

    def most_of_others(self) -> QueueAmounts:
        """Return how much of other kinds it may hold, what it borrows included."""
        most, guaranteed = dict(self.limit), dict(self.guaranteed)
        for kind, borrowed in self.borrow_limit:
            if kind != GPUS_KIND:
                own = guaranteed.get(kind, 0) + borrowed
                most[kind] = min(own, most.get(kind, own))
        return tuple(sorted(most.items()))


def limits_of(queue: Queue) -> dict[str, int]:
    """Return what all jobs below a queue may hold together, by kind, what it borrows aside."""
    gpus = {} if queue.max_gpus is None else {GPUS_KIND: WHOLE * queue.max_gpus}
    return {**dict(queue.limit), **gpus}


def takes_of(demand: Demand) -> QueueAmounts:
    """Return what a run of a demand takes of limits of queues, by name of the kind."""
    takes = {GPUS_KIND: demand.gpus_milli, "cpus": demand.cpus_milli, "memory": demand.memory_bytes}
    return tuple((kind, amount) for kind, amount in (*takes.items(), *demand.custom) if amount)


def guaranteed_of(queues: Sequence[Queue], row: int, kind: str) -> int:
    """Return what a queue is guaranteed of a kind, at least what those below it are together."""
    queue = queues[row]
    below = sum(
        guaranteed_of(queues, n, kind) for n, each in enumerate(queues) if each.parent == queue.name
    )
    return max(dict(queue.guaranteed).get(kind, 0), below)


def amount_text(kind: str, amount: int) -> str:
    """Return the text of an amount with its kind."""
    if kind == "memory":
        return f"{format_size(amount)} of memory"
    return f"{amount_of(amount)} {kind}"


def as_numbers(amounts: QueueAmounts) -> dict[str, int | float]:
    """Return amounts as people write them, by kind: `gpus`, `cpus`, `memory_bytes` ..."""
    return {
        "memory_bytes" if kind == "memory" else kind: amount
        if kind == "memory"
        else amount_of(amount)
        for kind, amount in amounts
    }


def queue_fields(queue: Queue) -> dict[str, Any]:
    """Return the fields of a queue as JSON values."""
    amounts = ("limit", "per_user", "guaranteed", "borrow_limit")
    return {**asdict(queue), **{name: as_numbers(getattr(queue, name)) for name in amounts}}


def above(queues: Mapping[str, Queue], name: str) -> Iterator[Queue]:
    """Yield a queue and those above it."""
    while name:
        yield queues[name]
        name = queues[name].parent
