"""Histories of jobs whose run times have a heavy tail: most are short, and a few last for days."""

from __future__ import annotations

import math

from headgate.base.rng import stream
from headgate.model import Demand, Job, Task

SIZES = (1,) * 60 + (2,) * 12 + (4,) * 10 + (8,) * 10 + (16,) * 4 + (32,) * 2 + (64,) * 2
"""GPUs of jobs, equally likely."""

MEDIAN_S, SIGMA, LONGEST_S = 93.0, 2.57, 6.5 * 86400
"""Run times are log-normal up to the longest: nine in ten end within 42 min."""

_USERS = "abcdefgh"


def heavy_tailed(
    seed: int, jobs: int, load: float, *, nodes: int, node_gpus: int
) -> list[tuple[float, Job]]:
    """Return jobs with the times at which they arrive, ascending.

    Together they need `load` of the GPUs of so many nodes while they arrive. A job of more GPUs
    than a node has is a gang; none declares a time or has a limit, and jobs of one user with
    equally many GPUs have one name. They are in the queue `q`.
    """
    rng = stream(seed, "heavy tails")
    drawn = [
        (rng.choice(SIZES), min(LONGEST_S, rng.lognormvariate(math.log(MEDIAN_S), SIGMA)))
        for _ in range(jobs)
    ]
    lasts_s = sum(gpus * run_s for gpus, run_s in drawn) / (nodes * node_gpus) / load
    arrivals = sorted(rng.uniform(0.0, lasts_s) for _ in drawn)
    return [
        (at, _job(f"j{number}", rng.choice(_USERS), gpus, run_s, node_gpus))
        for number, (at, (gpus, run_s)) in enumerate(zip(arrivals, drawn, strict=True))
    ]


def _job(name: str, user: str, gpus: int, run_s: float, node_gpus: int) -> Job:
    count = -(-gpus // node_gpus)
    task = Task(demand=Demand(gpus=gpus // count), compute_s=run_s)
    return Job(
        id=name, name=f"{user}-{gpus}", user=user, queue="q", tasks=(task,) * count, gang=count > 1
    )
