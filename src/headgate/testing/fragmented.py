"""Storms in which free GPUs are scattered: policies that move runs have reasons to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headgate.base.rng import stream
from headgate.model import WHOLE, Gpu, Job, Node
from headgate.protocol import Event, JobSubmitted, NodeJoined, QueueChanged
from headgate.testing.random_queues import GIB
from headgate.testing.storms import Storm

_WIDEST = 8  # GPUs
_SLOWER = 20.0
"""By this all times are multiplied, as runs do not move for waits of seconds."""


def fragmented(storm: Storm) -> Storm:
    """Return a storm on nodes of four equal GPUs, with tasks of 1, 2 or 4 of them.

    They compute for minutes of known length, most save checkpoints, and half of the jobs are gangs.
    There are three times as many jobs, and each queue may use as many GPUs as a gang needs.
    """
    return replace(storm, facts=tuple(e for fact in storm.facts for e in _changed(storm, fact)))


def _changed(storm: Storm, fact: Event) -> Iterator[Event]:
    fact = replace(fact, at=fact.at * _SLOWER)
    match fact:
        case NodeJoined():
            yield replace(fact, node=_even(fact.node))
        case QueueChanged(queue=queue) if queue.max_gpus is not None:
            yield replace(fact, queue=replace(queue, max_gpus=max(queue.max_gpus, _WIDEST)))
        case JobSubmitted(job=job):
            for name in (job.id, f"{job.id}b", f"{job.id}c"):
                yield replace(fact, job=_wide(storm.seed, replace(job, id=name)))
        case _:
            yield fact


def _even(node: Node) -> Node:
    gpus = (Gpu(memory_bytes=GIB),) * 4
    return replace(node, gpus=gpus, cpus=64, memory_bytes=None, custom=())


def _wide(seed: int, job: Job) -> Job:
    """Return a job of tasks alike, of which none depends on another."""
    rng = stream(seed, "fragmented", job.id)
    run_s, gang = rng.uniform(60.0, 1800.0), rng.random() < 0.5
    task = replace(
        job.tasks[0],
        reads=(),
        after=(),
        demand=replace(
            job.tasks[0].demand,
            gpus=rng.choice((1, 1, 2, 4)),
            gpu_memory_bytes=0,
            gpu_milli=WHOLE,
            cpus_milli=WHOLE,
            memory_bytes=0,
            custom=(),
            selector=(),
        ),
        compute_s=run_s,
        checkpoint_s=rng.choice((0.0, 10.0, 60.0)),
    )
    count = 2 if gang else rng.randint(1, 3)
    return replace(
        job,
        tasks=(task,) * count,
        gang=gang,
        distinct_nodes=False,
        after=(),
        estimated_s=run_s,
        max_running=None,
        limited_tasks=None,
    )
