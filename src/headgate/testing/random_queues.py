"""Random queues: their weights, limits and guarantees."""

from __future__ import annotations

from dataclasses import replace

from headgate.base.rng import Random, stream
from headgate.model import Queue
from headgate.model.queue import QueueAmounts, limits_of

GIB = 1 << 30
QUEUES = ("default", "night", "batch")


def random_queues(rng: Random) -> tuple[Queue, ...]:
    """Return the queues of `QUEUES`; the first has no ceilings."""
    first, *others = QUEUES
    return (
        Queue(name=first),
        *(
            Queue(
                name=name,
                weight=rng.choice((0.5, 1.0, 3.0)),
                max_gpus=rng.choice((None, 4, 5)),
                max_jobs_in_flight=rng.choice((None, 1, 2)),
            )
            for name in others
        ),
    )


def divided(seed: int, queues: tuple[Queue, ...]) -> tuple[Queue, ...]:
    """Return the queues, in a third of the cases all but the first below one with limits.

    In a third of the cases they are guaranteed some GPUs and CPUs, which they lend or do not; in
    another third some of them limit what each user holds.
    """
    rng = stream(seed, "guarantees")
    if rng.random() < 0.33:
        queues = tuple(
            replace(
                queue,
                guaranteed=(
                    ("cpus", 1000 * rng.choice((0, 2))),
                    ("gpus", 1000 * rng.choice((1, 2))),
                ),
                lend=rng.random() < 0.8,
                min_run_s=rng.choice((0.0, 0.0, 20.0)),
            )
            for queue in queues
        )
    users = stream(seed, "limits of users")
    some = users.random() < 0.33
    queues = tuple(replace(q, per_user=_of_each_user(users, q)) if some else q for q in queues)
    rng = stream(seed, "tree of queues")
    if rng.random() < 0.67:
        return queues
    limit = rng.choice(((), (("cpus", 6000),), (("license", 2000), ("memory", 8 * GIB))))
    top = Queue(name="top", max_gpus=rng.choice((None, 6, 8)), limit=limit)
    first, *others = queues
    top = replace(top, per_user=_of_each_user(users, top)) if some else top
    return first, top, *(replace(queue, parent=top.name) for queue in others)


def _of_each_user(rng: Random, queue: Queue) -> QueueAmounts:
    """Return what a queue allows each user; in half of the cases nothing is limited."""
    chosen = rng.choice(
        ((), (), (), (("gpus", 1000),), (("gpus", 3000),), (("cpus", 4000), ("gpus", 2000)),
         (("memory", 6 * GIB),), (("license", 1000), ("gpus", 4000)))
    )  # fmt: skip
    most = limits_of(queue)
    return tuple(sorted((kind, min(each, most.get(kind, each))) for kind, each in chosen))
