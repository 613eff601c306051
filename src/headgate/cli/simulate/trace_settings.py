"""Options of `headgate simulate` that say how the jobs of a trace are read and simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.base.errors import Problem
from headgate.sim.estimated import Estimated

if TYPE_CHECKING:
    from headgate.sim.trace_jobs import TraceModel
    from headgate.traces import TraceOptions

_NO_RESUME = "none"

QueueColumnOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="With a trace: the column with each job's queue.",
        show_default="queue",
    ),
]
VcOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="With a trace: only jobs with this value in column vc."),
]
EstimatesOption = Annotated[
    Estimated | None,
    typer.Option(help="With a trace: run times that the jobs declare.", show_default="learnt"),
]
ResumeOption = Annotated[
    str | None,
    typer.Option(
        metavar="none|SECONDS",
        help="With a trace: time that a preempted job takes to resume; none: its work is lost.",
        show_default="none",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """The options as given, None where they are not."""

    queue_column: str | None
    vc: str | None
    estimates: Estimated | None
    resume: str | None

    def problems(self, *, possible: bool) -> list[Problem]:
        """Return what is wrong; `possible` says whether there can be a trace."""
        found = []
        if not possible:
            found = [
                Problem(path=f"--{name}", problem="requires a trace", hint="--trace FILE --gpus N")
                for name, value in {
                    "queue-column": self.queue_column,
                    "vc": self.vc,
                    "estimates": self.estimates,
                    "resume": self.resume,
                }.items()
                if value is not None
            ]
        if self.resume not in (None, _NO_RESUME) and not 0 <= _seconds(self.resume) < math.inf:
            problem = f"must be {_NO_RESUME} or 0 s or more, not {self.resume}"
            hint = f"{_NO_RESUME}, or seconds"
            found.append(Problem(path="--resume", problem=problem, hint=hint))
        return found

    @property
    def options(self) -> TraceOptions:
        """How the trace is read."""
        from headgate.traces import TraceOptions

        declared = self.estimates is not None and self.estimates.reads
        return TraceOptions(queue_column=self.queue_column, vc=self.vc, declared=declared)

    def model(self, seed: int) -> TraceModel:
        """Return how its jobs are simulated."""
        from headgate.sim.trace_jobs import TraceModel

        resume_s = None if self.resume in (None, _NO_RESUME) else _seconds(self.resume)
        estimated = self.estimates or Estimated.LEARNT
        return TraceModel(estimated=estimated, resume_s=resume_s, seed=seed)


def _seconds(text: str | None) -> float:
    try:
        return float(text or "")
    except ValueError:
        return math.nan
