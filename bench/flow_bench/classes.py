"""GPU classes: which class each node is of, and which classes each task accepts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flow_bench.shares import max_min
from flow_bench.structure import Structure
from headgate.base.arrays import Ints

MOST_CLASSES = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wants:
    """What tasks accept, `[tasks]` each.

    `accepts` is a set of classes as bits; `home` is the one of them in whose fair share the task
    counts, so that the shares of all jobs never exceed the GPUs that they can use.
    """

    accepts: Ints
    home: Ints

    def take(self, rows: Ints) -> Wants:
        """Return what these tasks accept."""
        return Wants(accepts=self.accepts[rows], home=self.home[rows])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Classes:
    """The `count` classes of a cluster; `of_node` has shape `[nodes]`.

    With one class, every task accepts it and nothing is drawn.
    """

    count: int
    of_node: Ints

    def free(self, structure: Structure) -> Ints:
        """Return the free GPUs of each class."""
        free = np.zeros(self.count, np.int64)
        np.add.at(free, self.of_node, structure.free)
        return free

    def unscheduled_capacity(self, free: Ints, jobs: int, job: Ints, home: Ints) -> Ints:
        """Return how many tasks of each job may wait: all but its max-min share of each class."""
        demand = np.bincount(home * jobs + job, minlength=self.count * jobs)
        demand = demand.reshape(self.count, jobs)
        share = [max_min(row, int(gpus)) for row, gpus in zip(demand, free, strict=True)]
        capacity: Ints = demand.sum(axis=0) - np.sum(share, axis=0)
        return capacity


def draw_classes(rng: np.random.Generator, structure: Structure, count: int) -> Classes:
    """Return a class for each node, drawn evenly."""
    of_node = np.zeros(structure.nodes, np.int64)
    if count > 1:
        of_node = rng.integers(0, count, structure.nodes)
    return Classes(count=count, of_node=of_node)


def draw_wants(rng: np.random.Generator, classes: Classes, tasks: int) -> Wants:
    """Return what tasks accept: half need memory (a class and all above it), half any set.

    Every task accepts a class that some node is of.
    """
    if classes.count == 1:
        return Wants(accepts=np.ones(tasks, np.int64), home=np.zeros(tasks, np.int64))
    every = (1 << classes.count) - 1
    by_memory = every & ~((1 << rng.integers(0, classes.count, tasks)) - 1)
    any_set = rng.integers(1, every + 1, tasks)
    accepts = np.where(rng.random(tasks) < 0.5, by_memory, any_set)
    there = np.unique(classes.of_node)
    useful = (accepts[:, None] >> there & 1).astype(bool)
    lost = np.flatnonzero(~useful.any(axis=1))
    accepts[lost] |= 1 << there[-1]
    useful[lost, -1] = True
    # The home is the k-th accepted class that is there, k drawn.
    nth = rng.integers(0, useful.sum(axis=1))
    home = there[np.argmax(useful.cumsum(axis=1) > nth[:, None], axis=1)]
    return Wants(accepts=accepts, home=home)
