"""Resources of nodes as one number each, by which balancers compare nodes.

A node's score is 0.9 (alpha CPU + beta GPU) + 0.1 MEM, each kind divided by the largest amount of
it that any node has: a node with the most of all kinds has a score of 1, whatever the units. A kind
that no node has counts 0. The formula is from Liu, Li, Gao et al., Heterogeneous task scheduling
framework in emerging distributed computing systems, Journal of Software 33(3), 2022; the units are
not from there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from headgate.base.arrays import Floats
from headgate.base.errors import Problem, SpecError

_MEMORY = 0.1
_EXACT = 1e-9


@dataclass(frozen=True, slots=True)
class Weighting:
    """How much CPUs (`alpha`) and GPUs (`beta`) count, together 1.

    SpecError if they are negative, or their sum is not 1.
    """

    alpha: float = 0.5
    beta: float = 0.5

    def __post_init__(self) -> None:
        """Check the values."""
        problems = [
            Problem(path=name, problem=f"is {value}", hint="a number from 0 to 1 is needed")
            for name, value in (("alpha", self.alpha), ("beta", self.beta))
            if not 0 <= value <= 1
        ]
        if not problems and not math.isclose(self.alpha + self.beta, 1, abs_tol=_EXACT):
            what = f"{self.alpha} + {self.beta} = {self.alpha + self.beta:g}"
            hint = f"alpha + beta is 1: with this alpha, beta is {1 - self.alpha:g}"
            problems.append(Problem(path="alpha, beta", problem=what, hint=hint))
        if problems:
            raise SpecError(problems)


WITHOUT_GPUS = Weighting(1.0, 0.0)
"""For tasks without GPUs: a node's GPUs make it no better for them."""

WITH_GPUS = Weighting(0.5, 0.5)
"""For tasks on GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scores:
    """What balancers know of nodes; arrays by node.

    `load` counts queued tasks, so it may exceed `total`. `finish_s` is when a task would finish on
    each node, in seconds from now, and `step_s` how much later each further task does there:
    `least-cost` needs both.
    """

    total: Floats
    available: Floats
    load: Floats
    finish_s: Floats | None = None
    step_s: Floats | None = None

    @classmethod
    def of(
        cls,
        total: NDArray[np.generic],
        load: NDArray[np.generic],
        weighting: Weighting = WITH_GPUS,
        *,
        available: NDArray[np.generic] | None = None,
        finish_s: Floats | None = None,
        step_s: Floats | None = None,
    ) -> Self:
        """Return the scores of vectors `[nodes, 3]`: CPUs, GPUs and memory, each in any unit.

        `available` is what the load leaves, and not less than 0, where it is not given.
        """
        amounts = np.asarray(total, np.float64)
        held = np.asarray(load, np.float64)
        if available is None:
            left = np.maximum(amounts - held, 0.0)
        else:
            left = np.asarray(available, np.float64)
        largest = amounts.max(axis=0, initial=0.0)
        kinds = np.array([weighting.alpha, weighting.beta, 0.0]) * (1 - _MEMORY)
        kinds[2] = _MEMORY
        by_unit = np.divide(kinds, largest, out=np.zeros(3), where=largest > 0)
        return cls(
            total=amounts @ by_unit,
            available=left @ by_unit,
            load=held @ by_unit,
            finish_s=finish_s,
            step_s=step_s,
        )
