"""The cluster, its queues, and the groups of jobs that are submitted.

The published tables of nodes and queues are lost. The only sizes that are left are those of the
example of elastic shares: a queue of 50 GB, jobs that need 20 GB at least, executors of 1 GB. All
amounts below follow from these; docs/reproduce-label-queues.md says how.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.base.rng import stream
from headgate.model import WHOLE, Demand, Elastic, Gpu, Job, Node, Queue, Task
from headgate.model.queue import QueueAmounts
from headgate.spec.queues import queue_of_type

_GIB: Final = 1 << 30

NODES: Final = 4
NODE_CPUS: Final = 18
CPUS: Final = NODES * NODE_CPUS

EXECUTOR: Final = Demand(cpus_milli=WHOLE, memory_bytes=_GIB)
SPLITS: Final = 64
SPLIT_S: Final = 8.0
WORDCOUNT_S: Final = SPLITS * SPLIT_S
"""Seconds of one executor."""

MNIST_DEMAND: Final = Demand(gpus=1, cpus_milli=2 * WHOLE, memory_bytes=2 * _GIB)
MNIST_S: Final = WORDCOUNT_S / 20
"""As long as a WordCount takes on the 20 executors of the example."""

VARIATION: Final = 0.2
"""By which part the work of a job is less or more than the mean, at most."""

WORDCOUNT, MNIST = "wordcount", "mnist"
_TYPES: Final = {WORDCOUNT: "batch", MNIST: "deep-learning"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What the published text leaves open, and is varied.

    The queue `deep-learning` has so many `twelfths` of all CPUs and memory. A WordCount declares
    `least` executors. Jobs are submitted `gap_s` after each other in the mean; even the whole
    cluster takes 7.1 s for a WordCount.
    """

    twelfths: int = 4
    least: int = 20
    gap_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGroup:
    """Jobs that are submitted one after the other; `seed` decides gaps, work and their order."""

    wordcounts: int
    mnists: int
    seed: int
    assumed: Assumed = Assumed()


Submissions = tuple[tuple[float, Job], ...]


def nodes() -> tuple[Node, ...]:
    """Return four equal nodes, each with a GPU and all labels."""
    return tuple(
        Node(
            id=f"node{number}",
            rack="rack",
            gpus=(Gpu(memory_bytes=16 * _GIB),),
            cpus=NODE_CPUS,
            memory_bytes=NODE_CPUS * _GIB,
            labels=("deep-learning", "machine-learning", "normal"),
        )
        for number in range(1, NODES + 1)
    )


def queues(twelfths: int, *, hard: bool) -> tuple[Queue, ...]:
    """Return the two queues; their parts are limits if they are `hard`, else guarantees."""
    cpus = CPUS * twelfths // 12
    shapes = (
        ("batch", "normal", ("batch", "real-time", "machine-learning"), CPUS - cpus, 0),
        ("deep-learning", "deep-learning", ("deep-learning",), cpus, NODES),
    )
    found = []
    for name, label, types, part, gpus in shapes:
        amounts: QueueAmounts = (("cpus", part * WHOLE), ("memory", part * _GIB))
        if gpus:
            amounts = (("cpus", part * WHOLE), ("gpus", gpus * WHOLE), ("memory", part * _GIB))
        queue = Queue(
            name=name,
            labels=(label,),
            types=types,
            limit=amounts if hard else (),
            guaranteed=() if hard else amounts,
        )
        found.append(queue)
    return tuple(found)


def submissions(group: JobGroup, among: tuple[Queue, ...], *, elastic: bool) -> Submissions:
    """Return the jobs of a group with their times; without `elastic` none has surplus."""
    by_name = {queue.name: queue for queue in among}
    purpose = (group.wordcounts, group.mnists)
    kinds = [WORDCOUNT] * group.wordcounts + [MNIST] * group.mnists
    stream(group.seed, *purpose, "order").shuffle(kinds)
    gaps, work = stream(group.seed, *purpose, "gaps"), stream(group.seed, *purpose, "work")
    at, found = 0.0, []
    for number, kind in enumerate(kinds):
        if number:
            at += gaps.uniform(0.0, 2 * group.assumed.gap_s)
        factor = work.uniform(1 - VARIATION, 1 + VARIATION)
        name, queue = f"{kind}-{number}", queue_of_type(by_name, _TYPES[kind])
        assert queue is not None, f"a queue takes {_TYPES[kind]}"
        if kind == MNIST:
            job = _mnist(name, queue, MNIST_S * factor)
        else:
            least = group.assumed.least
            most = SPLITS if elastic else least
            job = _wordcount(name, queue, WORDCOUNT_S * factor, least, most)
        found.append((at, job))
    return tuple(found)


def _mnist(name: str, queue: str, compute_s: float) -> Job:
    tasks = (Task(demand=MNIST_DEMAND, compute_s=compute_s),)
    return Job(id=name, name=MNIST, user="user", queue=queue, tasks=tasks)


def _wordcount(name: str, queue: str, work_s: float, least: int, most: int) -> Job:
    return Job(
        id=name,
        name=WORDCOUNT,
        user="user",
        queue=queue,
        tasks=(Task(demand=EXECUTOR, compute_s=work_s / least),) * most,
        elastic=Elastic(minimum=least, work_s=work_s),
    )
