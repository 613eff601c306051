"""Storms: random clusters, jobs and faults from a seed, as events for a simulated world."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from headgate.base.rng import Random, stream
from headgate.model import Bandwidth, Job, Node, Queue
from headgate.model.queue import above
from headgate.planning.place.submission_check import exceeds_queues, fits_no_node
from headgate.protocol import (
    NO_OUTSIDE,
    BandwidthMeasured,
    Event,
    GpusWithheld,
    JobCancelled,
    JobSubmitted,
    LabelsChanged,
    LaunchTask,
    NodeDraining,
    NodeJoined,
    NodeLost,
    NodeReported,
    NodeResumed,
    QueueChanged,
    ReplicaAdded,
    ReplicaLost,
    TaskCancelled,
)
from headgate.testing.others import random_outside
from headgate.testing.random_queues import divided, random_queues
from headgate.testing.random_worlds import (
    kind_labels,
    random_job,
    random_node,
    random_shards,
)

_LASTS_S = 60.0
_FAILING = 0.12  # of the runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """Random events of a cluster. In a calm storm nothing fails and every job can run.

    Half of the storms are crowded: jobs arrive in a short time, compute for long, and have many
    tasks.
    """

    seed: int
    calm: bool
    facts: tuple[Event, ...]
    decision_latency_s: float
    links: dict[str, float | None] = field(
        default_factory=lambda: {
            "disk_bytes_per_s": 100.0,
            "node_link_bytes_per_s": 80.0,
            "rack_uplink_bytes_per_s": 90.0,
            "aggregation_bytes_per_s": None,
        }
    )

    def fails_after_s(self, launch: LaunchTask) -> float | None:
        """Return after how many seconds the program of a launch fails, None if it does not."""
        rng = stream(self.seed, "failure", *launch.run)
        if self.calm or rng.random() >= _FAILING:
            return None
        return rng.choice((0.0, 0.5, 2.0))


def storm(
    seed: int, *, calm: bool = False, accepts: Callable[[Job], bool] = lambda job: True
) -> Storm:
    """Return the storm of a seed, with the jobs that `accepts` admits."""
    rng = stream(seed, "storm", str(calm))
    queues = divided(seed, random_queues(rng))
    nodes = [random_node(rng, n, every_kind=True) for n in range(rng.randint(2, 6))]
    shards = random_shards(rng)
    facts: list[Event] = [QueueChanged(at=0.0, queue=q) for q in queues]
    facts.append(BandwidthMeasured(at=0.0, bandwidth=_estimates()))
    facts += [NodeJoined(at=0.0, node=n) for n in nodes]
    for shard in shards:
        holders = rng.sample(nodes, min(len(nodes), rng.randint(1, 3)))
        facts += [ReplicaAdded(at=0.0, shard=shard, node=n.id) for n in holders]
    count = rng.randint(1, 12)
    jobs = [random_job(rng, f"j{n}", shards, every_kind=True) for n in range(count)]
    jobs = [j for j in jobs if accepts(j) and fits(j, nodes, queues)]
    crowded = stream(seed, "crowded").random() < 0.5
    jobs = [_larger(job) for job in jobs] if crowded else jobs
    facts += _in_order(seed, [(_when(rng) / (1 + 4 * crowded), job) for job in jobs])
    if not calm:
        facts += _faults(rng, nodes, jobs)
        facts += _other_programs(stream(seed, "other programs"), nodes)
        facts += _outside(stream(seed, "outside"), nodes)
        facts += _drains(stream(seed, "drains"), nodes)
        facts += _labelled(stream(seed, "labels"), nodes)
        facts += _task_cancellations(stream(seed, "task cancellations"), jobs)
    latency_s = rng.choice((0.0, 0.0, 0.5, 3.0))
    return Storm(seed=seed, calm=calm, facts=tuple(facts), decision_latency_s=latency_s)


def fits(job: Job, nodes: list[Node], queues: tuple[Queue, ...]) -> bool:
    """Return whether a job fits idle nodes and the ceilings of its queue and those above it."""
    known = {queue.name: queue for queue in queues}
    too_small = exceeds_queues(job, [*above(known, job.queue)])
    return too_small is None and fits_no_node(job, nodes) is None


def _larger(job: Job) -> Job:
    """Return a job that computes longer, with more tasks, if none depends on another one."""
    tasks = tuple(replace(task, compute_s=5 * task.compute_s) for task in job.tasks)
    times = 1 if job.gang or any(task.after for task in tasks) else 4
    return replace(job, tasks=times * tasks)


def _in_order(seed: int, submissions: list[tuple[float, Job]]) -> Iterator[JobSubmitted]:
    """Yield the submissions; a third of the jobs come after one or two of those before them."""
    rng = stream(seed, "in order")
    earlier: list[str] = []
    for at, job in sorted(submissions, key=lambda submission: submission[0]):
        count = min(len(earlier), rng.choice((0, 0, 0, 0, 1, 2)))
        yield JobSubmitted(at=at, job=replace(job, after=tuple(rng.sample(earlier, count))))
        earlier.append(job.id)


def _estimates() -> Bandwidth:
    return Bandwidth(disk_bytes_per_s=100.0, rack_bytes_per_s=80.0, cluster_bytes_per_s=60.0)


def _when(rng: Random) -> float:
    """Return a time, mostly in whole seconds, so that many events share an instant."""
    at = rng.uniform(0.0, _LASTS_S)
    return float(round(at)) if rng.random() < 0.8 else at


def _other_programs(rng: Random, nodes: list[Node]) -> Iterator[Event]:
    """Yield of some nodes that GPUs of them are used by other programs, and when that has ended."""
    for node in nodes:
        if rng.random() < 0.7:
            continue
        for _ in range(rng.randint(1, 3)):
            gpus = tuple(n for n in range(4) if rng.random() < 0.4)  # not all of them exist
            yield GpusWithheld(at=_when(rng), node=node.id, incarnation="", gpus=gpus)
        yield GpusWithheld(at=_LASTS_S, node=node.id, incarnation="")


def _outside(rng: Random, nodes: list[Node]) -> Iterator[Event]:
    """Yield of some nodes that processes outside Headgate use some of them; not to the end."""
    for node in nodes:
        if rng.random() < 0.6:
            continue
        for last in (False, False, True):
            outside = NO_OUTSIDE if last else random_outside(rng, node)
            yield NodeReported(
                at=_LASTS_S if last else _when(rng),
                node=node.id,
                cpus_milli=0,
                memory_bytes=0,
                outside=outside,
            )


def _drains(rng: Random, nodes: list[Node]) -> Iterator[Event]:
    """Yield of some nodes that they are drained, even while down, and resumed by the end."""
    for node in nodes:
        if rng.random() < 0.3:
            yield NodeDraining(at=_when(rng), node=node.id, by="root", reason="a new disk")
            yield NodeResumed(at=_when(rng), node=node.id, by="root")
            yield NodeResumed(at=_LASTS_S, node=node.id, by="root")


def _labelled(rng: Random, nodes: list[Node]) -> Iterator[Event]:
    """Yield of some nodes that they get other labels, and their own ones by the end."""
    for node in nodes:
        if rng.random() < 0.3:
            yield LabelsChanged(at=_when(rng), node=node.id, labels=kind_labels(rng), by="root")
            yield LabelsChanged(at=_LASTS_S, node=node.id, labels=node.labels, by="root")


def _task_cancellations(rng: Random, jobs: list[Job]) -> Iterator[Event]:
    """Yield cancellations of single tasks, some of which cannot be cancelled alone."""
    for job in jobs:
        if rng.random() < 0.3:
            for _ in range(rng.randint(1, 3)):
                ordinal, now = rng.randrange(len(job.tasks)), rng.random() < 0.3
                at = _when(rng)
                yield TaskCancelled(at=at, job=job.id, ordinal=ordinal, by="ada", now=now)


def _faults(rng: Random, nodes: list[Node], jobs: list[Job]) -> Iterator[Event]:
    for number, node in enumerate(nodes):
        for _ in range(rng.choice((0, 0, 1, 2))):
            lost_at = _when(rng)
            yield NodeLost(at=lost_at, node=node.id)
            back = rng.choice((node, node, node, random_node(rng, number, every_kind=True), None))
            if back is not None:
                yield NodeJoined(at=lost_at + rng.choice((0.0, 1.0, 15.0)), node=back)
        if rng.random() < 0.1:
            yield NodeJoined(at=_when(rng), node=node)  # returned before its loss was observed
        for shard in jobs[0].shards[:1] if jobs else ():
            if rng.random() < 0.1:
                yield ReplicaLost(at=_when(rng), shard=shard.id, node=node.id)
    for job in jobs:
        if rng.random() < 0.15:
            yield JobCancelled(at=_when(rng), job=job.id, by="ada")
