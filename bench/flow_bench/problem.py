"""The input of all solvers of one measurement: a structure, its classes, and the shares."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flow_bench.classes import Classes, Wants, draw_classes, draw_wants
from flow_bench.laminar import Forest, Options, forest, options
from flow_bench.structure import Structure, load
from headgate.flow import AnyInts


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The source of a problem: a file, and the seed of its classes."""

    path: Path
    classes: int
    seed: int

    def as_arguments(self) -> list[str]:
        """Return the source as command-line arguments."""
        return [str(self.path), str(self.classes), str(self.seed)]

    @staticmethod
    def from_arguments(words: list[str]) -> Source:
        """Return the source of such arguments."""
        path, classes, seed = words
        return Source(path=Path(path), classes=int(classes), seed=int(seed))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """A structure, the classes that its tasks accept, and how many tasks per job may wait."""

    structure: Structure
    classes: Classes
    wants: Wants
    unscheduled_capacity: AnyInts

    def build(self) -> tuple[Forest, Options]:
        """Return the laminar form: the places, and the options of the waiting tasks."""
        places = forest(self.structure, self.classes, self.unscheduled_capacity)
        return places, options(places, self.classes, self.structure.tasks, self.wants)


def problem_of(structure: Structure, classes: int, seed: int) -> Problem:
    """Return the problem with `classes` classes.

    With one, shares are the structure's own; with more they are recomputed class by class,
    since a job cannot use a share of GPUs that its tasks do not accept.
    """
    rng = np.random.default_rng([seed, classes])
    drawn = draw_classes(rng, structure, classes)
    wants = draw_wants(rng, drawn, len(structure.tasks))
    capacity = structure.unscheduled_capacity
    if classes > 1:
        capacity = drawn.unscheduled_capacity(
            drawn.free(structure), structure.jobs, structure.tasks.job.astype(np.int64), wants.home
        )
    return Problem(structure=structure, classes=drawn, wants=wants, unscheduled_capacity=capacity)


def read_problem(source: Source) -> Problem:
    """Return the problem of a source; the same in any process."""
    return problem_of(load(source.path), source.classes, source.seed)
