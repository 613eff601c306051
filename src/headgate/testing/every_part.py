"""Storms in which all parts of the scheduler meet: leases, moves, scaling, links, limits ..."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headgate.base.rng import Random, stream
from headgate.model import Demand, Elastic, Gpu, Items, Job, Node, RunId, SpeedCurve, Task, Training
from headgate.model.scaling import Scaling, Shape
from headgate.protocol import (
    Admitted,
    Event,
    JobSubmitted,
    Moved,
    MoveRequested,
    NodeDraining,
    NodeJoined,
    NodeResumed,
    ScalingChanged,
    SlotsWithdrawn,
    TopologyChanged,
)
from headgate.testing.random_queues import GIB
from headgate.testing.random_worlds import LICENSES, linked, random_topology
from headgate.testing.storms import Storm

_LASTS_S = 60.0
_LARGE = Shape(
    name="large",
    gpus=(Gpu(memory_bytes=4 * GIB),) * 4,
    cpus=8,
    custom=(("license", 2000),),
    cost_per_h=9.0,
    ready_after_s=4.0,
    most=2,
)
"""A shape that none of the nodes of a storm has."""


def every_part(storm: Storm) -> Storm:
    """Return a storm with further parts, all drawn from streams of their own.

    There are twice as many jobs, which may have time limits, checkpoints, communication or items;
    nodes have speeds; the topology and the catalogue of shapes change; users request moves, many of
    which are infeasible.
    """
    facts = [_changed(storm.seed, each) for fact in storm.facts for each in _twice(fact)]
    submitted = [fact for fact in facts if isinstance(fact, JobSubmitted)]
    joined = [fact.node for fact in facts if isinstance(fact, NodeJoined) and not fact.at]
    late = [
        *_scaling(stream(storm.seed, "scaling"), joined),
        *_moves(stream(storm.seed, "moves requested"), submitted, joined),
        *_withdrawn(stream(storm.seed, "withdrawn"), submitted),
        *_drained(stream(storm.seed, "drains of all"), joined),
    ]
    return replace(storm, facts=(*_topologies(storm.seed, len(joined)), *facts, *late))


def _twice(fact: Event) -> Iterator[Event]:
    """Yield an event, and of a submission one more, of a job like it of another user."""
    yield fact
    if not isinstance(fact, JobSubmitted):
        return
    job, name = fact.job, f"{fact.job.id}b"
    tasks = tuple(
        replace(t, reads=tuple(_renamed(shard, job.id, name) for shard in t.reads))
        for t in job.tasks
    )
    other = replace(job, id=name, name=name, user="barbara", tasks=tasks)
    yield replace(fact, at=fact.at + 2.0, job=other)


def _renamed(shard: str, job: str, name: str) -> str:
    """Return the id of a shard; of a job's result, that of the same result of another job."""
    return name + shard.removeprefix(job) if shard.startswith(f"{job}/") else shard


def _changed(seed: int, fact: Event) -> Event:
    if isinstance(fact, JobSubmitted):
        return replace(fact, job=_job(seed, fact.job))
    if isinstance(fact, NodeJoined):
        speed = stream(seed, "speed", fact.node.id).choice((0.5, 1.0, 1.0, 2.0))
        return replace(fact, node=replace(fact.node, speed=speed))
    return fact


def _job(seed: int, job: Job) -> Job:
    """Return a job with a time limit, checkpoints, communication or items, or without any."""
    rng = stream(seed, "parts of a job", job.id)
    limit_s = rng.choice((None, None, None, 2.0, 8.0))
    tasks = tuple(replace(t, checkpoint_s=rng.choice((0.0, 0.0, 0.5, 2.0))) for t in job.tasks)
    job = linked(replace(job, tasks=tasks, time_limit_s=limit_s))
    if job.gang or rng.random() >= 0.5:
        return job
    if rng.random() < 0.6:
        return _lease(rng, job)
    return _elastic(rng, job) if rng.random() < 0.6 else _training(rng, job)


def _training(rng: Random, job: Job) -> Job:
    """Return a job that trains with one of two to four widths."""
    first = replace(job.tasks[0], reads=(), after=(), output_bytes=0, parts=1)
    widths = sorted(rng.sample((1, 2, 3, 4, 8), rng.randint(2, 4)))
    rates = (rng.uniform(0.5, 1.0) * width for width in widths)
    training = Training(
        work=rng.uniform(5.0, 60.0),
        speeds=SpeedCurve((*widths,), (*rates,)),
        restart_s=rng.choice((0.0, 1.0)),
    )
    first = replace(first, compute_s=training.narrowest_s)
    return replace(
        job,
        tasks=(first,) * widths[-1],
        gang=True,
        training=training,
        time_limit_s=None,
        max_running=None,
        limited_tasks=None,
        communication=None,
    )


def _elastic(rng: Random, job: Job) -> Job:
    """Return an elastic job of at most eight units."""
    first = replace(job.tasks[0], reads=(), after=(), output_bytes=0, parts=1, checkpoint_s=0.0)
    most, work_s = rng.randint(2, 8), rng.uniform(5.0, 60.0)
    elastic = Elastic(minimum=rng.randint(1, min(most, 3)), work_s=work_s)
    first = replace(first, compute_s=work_s / elastic.minimum)
    return replace(
        job,
        tasks=(first,) * most,
        elastic=elastic,
        time_limit_s=None,
        max_running=None,
        limited_tasks=None,
        communication=None,
    )


def _lease(rng: Random, job: Job) -> Job:
    """Return a job of slots, which have work for a long time."""
    first = replace(
        job.tasks[0], reads=(), after=(), output_bytes=0, parts=1, compute_s=rng.uniform(30.0, 90.0)
    )
    return replace(
        job,
        tasks=(first,) * rng.randint(4, 12),
        items=Items(),
        after=(),
        time_limit_s=None,
        max_running=None,
        limited_tasks=None,
        communication=None,
    )


def _topologies(seed: int, nodes: int) -> Iterator[Event]:
    """Yield the topology at first, and changes of it."""
    rng = stream(seed, "topologies")
    yield TopologyChanged(at=0.0, topology=random_topology(seed, nodes))
    for change in range(rng.randint(0, 2)):
        topology = random_topology(seed + 1 + change, nodes)
        yield TopologyChanged(at=_when(rng), topology=topology)


def _scaling(rng: Random, nodes: list[Node]) -> Iterator[Event]:
    """Yield, in half of the storms, catalogues with the shapes of nodes; and jobs that need more.

    The last catalogue has all shapes, so that these jobs end.
    """
    if rng.random() < 0.5:
        return
    shapes = tuple(
        Shape(
            name=f"as-{node.id}",
            gpus=node.gpus,
            cpus=node.cpus,
            memory_bytes=node.memory_bytes,
            custom=node.custom,
            labels=node.labels,
            speed=node.speed,
            cost_per_h=rng.choice((1.0, 2.0)),
            ready_after_s=rng.choice((0.0, 1.0, 5.0)),
            most=rng.choice((None, 1, 2)),
        )
        for node in nodes
    )
    scaling = Scaling(
        shapes=(*shapes, _LARGE),
        floor=rng.choice((0, 1, 2)),
        max_nodes=len(nodes) + rng.choice((3, 6)),
        idle_after_s=rng.choice((2.0, 10.0)),
        utilisation=rng.choice((0.5, 0.8, 1.0)),
    )
    yield ScalingChanged(at=rng.choice((0.0, 10.0)), scaling=scaling)
    if rng.random() < 0.5:
        fewer = replace(scaling, shapes=shapes[:1]) if rng.random() < 0.7 else None
        yield ScalingChanged(at=_when(rng), scaling=fewer)
    yield ScalingChanged(at=_LASTS_S, scaling=scaling)
    for number in range(rng.choice((0, 1, 2))):
        yield JobSubmitted(at=_when(rng), job=_needs_large(rng, f"large{number}"))


def _needs_large(rng: Random, name: str) -> Job:
    """Return a job that fits none of the first nodes: it waits until one is ordered."""
    task = Task(
        demand=Demand(
            gpus=rng.choice((1, 2, 4)), gpu_memory_bytes=4 * GIB, custom=rng.choice(LICENSES)
        ),
        compute_s=rng.choice((1.0, 5.0)),
    )
    tasks = (task,) * rng.choice((1, 1, 2))
    gang = len(tasks) > 1 and rng.random() < 0.5
    user = rng.choice(("ada", "grace"))
    return Job(
        id=name, name=name, user=user, queue="default", tasks=tasks, gang=gang, wait_for_node=True
    )


def _moves(rng: Random, submitted: list[JobSubmitted], nodes: list[Node]) -> Iterator[Event]:
    """Yield requests to move units of jobs: guesses, since what will run where is unknown."""
    for fact in submitted:
        for _ in range(rng.choice((1, 3, 6))):
            job, attempt = fact.job, rng.choice((1, 1, 1, 2))
            unit = range(len(job.tasks)) if job.gang else (rng.randrange(len(job.tasks)),)
            runs = []
            for ordinal in unit:
                node = rng.choice(nodes)
                count = min(job.tasks[ordinal].demand.gpus, len(node.gpus))
                gpus = tuple(sorted(rng.sample(range(len(node.gpus)), count)))
                runs.append(Admitted(RunId(job.id, ordinal, attempt), node.id, gpus))
            at = fact.at + rng.choice((0.5, 1.0, 2.0, 5.0, 10.0))
            yield MoveRequested(at=at, move=Moved(tuple(runs), "requested by grace"))


def _withdrawn(rng: Random, submitted: list[JobSubmitted]) -> Iterator[Event]:
    """Yield of some leases that their owner needs no more slots."""
    for fact in submitted:
        if fact.job.items is not None and rng.random() < 0.3:
            yield SlotsWithdrawn(at=fact.at + rng.uniform(1.0, 40.0), job=fact.job.id)


def _drained(rng: Random, nodes: list[Node]) -> Iterator[Event]:
    """Yield of some nodes, also in calm storms, that they are drained for a while."""
    for node in nodes:
        if rng.random() < 0.2:
            at = _when(rng)
            yield NodeDraining(at=at, node=node.id, by="root", reason="a new disk")
            yield NodeResumed(at=at + rng.choice((1.0, 10.0)), node=node.id, by="root")


def _when(rng: Random) -> float:
    return float(round(rng.uniform(0.0, _LASTS_S)))
