"""Seeded instances like those of a large shared cluster, for measuring.

Tasks read one to three blocks of 100 MB to 3 GB, each with three replicas: two in one rack, one in
another. What a node costs a task is the time to bring it all blocks: from its own disk, else from
its rack, else across racks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from flow_bench.shares import max_min
from flow_bench.structure import Structure, Tasks
from headgate.base.arrays import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a cluster, and the number of waiting tasks per job under the load `base`."""

    nodes: int
    gpus: int
    nodes_in_rack: int
    jobs: int
    tasks_of_job: int


SIZES: Mapping[str, Size] = MappingProxyType(
    {
        "S": Size(nodes=15, gpus=2, nodes_in_rack=5, jobs=6, tasks_of_job=20),
        "M": Size(nodes=250, gpus=8, nodes_in_rack=16, jobs=100, tasks_of_job=40),
        "L": Size(nodes=12_500, gpus=1, nodes_in_rack=16, jobs=500, tasks_of_job=40),
        "XL": Size(nodes=12_500, gpus=8, nodes_in_rack=16, jobs=1_000, tasks_of_job=150),
    }
)

LOADS: Mapping[str, float | None] = MappingProxyType(
    {"light": 0.5, "sat": 0.98, "base": None, "over5": 5.0}
)
"""Waiting tasks for each free GPU; with None, as many as the size says."""

_FREE = 0.8  # probability that a GPU is free
_DISK, _RACK, _CROSS = 2_000.0, 1_250.0, 250.0  # bytes per microsecond
_LEAST_BLOCK, _LARGEST_BLOCK = 1e8, 3e9  # bytes, log-uniform between them
_WAIT_US, _LONGEST_WAIT_US = (
    60_000_000,
    10_000_000,
)  # above any transfer; plus time waited
_SKEW = 0.6  # of the sizes of jobs, log-normal


def generate(size: str, load: str, seed: int) -> Structure:
    """Return the instance of a size (of `SIZES`), a load (of `LOADS`) and a seed."""
    shape = SIZES[size]
    rng = np.random.default_rng([seed, *size.encode(), *load.encode()])
    rack = np.arange(shape.nodes) // shape.nodes_in_rack
    free = rng.binomial(shape.gpus, _FREE, shape.nodes)
    gpus = int(free.sum())
    per_gpu = LOADS[load]
    count = shape.jobs * shape.tasks_of_job if per_gpu is None else int(per_gpu * gpus)
    waiting = _sizes_of_jobs(rng, shape.jobs, max(count, shape.jobs))
    tasks, arrivals = (_tasks(rng, rack, free, waiting) for _ in range(2))
    return Structure(
        rack=rack.astype(np.int32),
        free=free.astype(np.int32),
        unscheduled_capacity=waiting - max_min(waiting, gpus),
        tasks=tasks,
        arrivals=arrivals,
    )


def _sizes_of_jobs(rng: np.random.Generator, jobs: int, tasks: int) -> Ints:
    """Return how many tasks each job has: at least one, some many more than others."""
    weight = rng.lognormal(0.0, _SKEW, jobs)
    more = rng.multinomial(tasks - jobs, weight / weight.sum())
    return 1 + more.astype(np.int64)


def _tasks(rng: np.random.Generator, rack: Ints, free: Ints, waiting: Ints) -> Tasks:
    job = np.repeat(np.arange(len(waiting)), waiting)
    count = len(job)
    owner = np.repeat(np.arange(count), rng.integers(1, 4, count))
    logs = rng.uniform(np.log(_LEAST_BLOCK), np.log(_LARGEST_BLOCK), len(owner))
    size = np.exp(logs)
    disk, near, far = (np.rint(size / speed).astype(np.int64) for speed in (_DISK, _RACK, _CROSS))
    replica = _replicas(rng, rack, len(owner))
    cluster_cost = _sum(far, owner, count)

    # A block saves `far - near` in every rack that holds it, and `near - disk` more on every node
    # that does. (`replica` has the two of one rack first, and no node twice.)
    nodes, racks = len(rack), int(rack[-1]) + 1
    block = np.arange(len(owner))
    two = replica[:, 2] >= 0
    rack_block = np.concatenate([block, block[two]])
    rack_of = np.concatenate([rack[replica[:, 0]], rack[replica[two, 2]]])
    rack_key, saved = _grouped(owner[rack_block] * racks + rack_of, (far - near)[rack_block])
    rack_task, rack_at = np.divmod(rack_key, racks)
    rack_cost = cluster_cost[rack_task] - saved

    node_block, which = np.nonzero(replica >= 0)
    node_key, saved = _grouped(
        owner[node_block] * nodes + replica[node_block, which], (near - disk)[node_block]
    )
    node_task, node_at = np.divmod(node_key, nodes)
    in_rack = np.searchsorted(rack_key, node_task * racks + rack[node_at])
    node_cost = rack_cost[in_rack] - saved
    kept = free[node_at] > 0

    task = np.concatenate([rack_task, node_task[kept]])
    order = np.argsort(task, kind="stable")
    vertex = np.concatenate([nodes + rack_at, node_at[kept]])[order]
    return Tasks(
        job=job.astype(np.int32),
        unscheduled_cost=_WAIT_US + rng.integers(0, _LONGEST_WAIT_US, count),
        cluster_cost=cluster_cost,
        option_offsets=np.concatenate([[0], np.cumsum(np.bincount(task, minlength=count))]),
        option_vertex=vertex.astype(np.int32),
        option_cost=np.concatenate([rack_cost, node_cost[kept]])[order],
    )


def _replicas(rng: np.random.Generator, rack: Ints, blocks: int) -> NDArray[np.int64]:
    """Return three nodes per block: two neighbours in a rack, one in another; -1 where none is."""
    nodes, racks = len(rack), int(rack[-1]) + 1
    first = np.searchsorted(rack, np.arange(racks))
    width = np.diff(first, append=nodes)
    one = rng.integers(0, nodes, blocks)
    here = rack[one]
    step = rng.integers(1, np.maximum(width[here], 2))
    two = first[here] + (one - first[here] + step) % width[here]
    there = (here + rng.integers(1, max(racks, 2), blocks)) % racks
    three = first[there] + rng.integers(0, width[there])
    two[two == one] = -1  # a rack of one node
    three[there == here] = -1  # a cluster of one rack
    return np.stack([one, two, three], axis=1)


def _grouped(key: Ints, value: Ints) -> tuple[Ints, Ints]:
    """Return the distinct keys, ascending, and the sum of the values of each."""
    order = np.argsort(key, kind="stable")
    key, value = key[order], value[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    return key[starts], np.add.reduceat(value, starts)


def _sum(value: Ints, owner: Ints, owners: int) -> Ints:
    """Return the sum of the values of each owner; owners ascend, and each has a value."""
    assert len(owner) == 0 or owner[-1] == owners - 1
    return np.add.reduceat(value, np.flatnonzero(np.diff(owner, prepend=-1)))
