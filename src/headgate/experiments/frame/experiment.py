"""An experiment: the runs to make, how they are measured, and what is reported of their figures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headgate.base.errors import Problem, SpecError, nearest
from headgate.experiments.frame import pool
from headgate.experiments.frame.report import Report

F = TypeVar("F")
"""The figures of an experiment."""

T = TypeVar("T", bound=Hashable)
S = TypeVar("S")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Makes the runs of an experiment in so many processes.

    `advance` is called after each with words about it; a live experiment calls `note` with what it
    does.
    """

    workers: int
    advance: Callable[[str], None]
    note: Callable[[str], None]

    def all(
        self, runs: Sequence[T], work: Callable[[T, S], R], shared: S, words: Callable[[T], str]
    ) -> dict[T, R]:
        """Return `work(run, shared)` by run, in order; see `pool.run_all`."""
        return pool.run_all(
            runs, work, shared, workers=self.workers, step=lambda run: self.advance(words(run))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment(Generic[F]):
    """One experiment, ready to be made; `doing` says what happens until the first run has ended.

    A live experiment has no plan: it measures on real nodes, one thing after the other.
    """

    plan: Sequence[Any] = ()
    measure: Callable[[Runner], F]
    report: Callable[[F], Report]
    doing: str = "Simulating"


def need_policies(
    names: Sequence[str], known: Collection[str], option: str = "--policies", what: str = ""
) -> None:
    """Raise SpecError `unknown_policy` for names that are not known."""
    problems = [
        Problem(path=option, problem=f"there is no policy '{n}'{what}", hint=nearest(n, known))
        for n in names
        if n not in known
    ]
    if problems:
        raise SpecError(problems, code="unknown_policy")
