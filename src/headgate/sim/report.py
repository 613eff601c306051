"""Reports of a simulation beside its figures: the placement of tasks, and a row per job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.metrics.busy import launches_in
from headgate.model import WHOLE, Locality
from headgate.protocol import Command, Event
from headgate.sim.run import Outcome, Simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLaunch:
    """One launch of a simulation; locality is that of its worst shard."""

    job: str
    ordinal: int
    node: str
    locality: Locality
    at: float


class Launches:
    """An observer that records every launch, in order."""

    def __init__(self) -> None:
        self.seen: list[SimulatedLaunch] = []

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        """Record the launches among the commands of a batch."""
        for launch in launches_in(commands):
            worst = max((read.locality for read in launch.reads), default=Locality.NODE)
            job, ordinal, _ = launch.run
            self.seen.append(
                SimulatedLaunch(
                    job=job, ordinal=ordinal, node=launch.node, locality=worst, at=batch[-1].at
                )
            )


def placements(
    starts: Sequence[SimulatedLaunch], task_names: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """Return every launch in order; a task without a name is called `job/ordinal`."""
    return [
        {
            "task": task_names[s.job][s.ordinal] if s.job in task_names else f"{s.job}/{s.ordinal}",
            "node": s.node,
            "locality": s.locality.label,
            "at_s": s.at,
        }
        for s in starts
    ]


def jobs_table(
    simulation: Simulation,
    outcome: Outcome,
    *,
    starts: Sequence[SimulatedLaunch],
    integer_ids: bool,
) -> pa.Table:
    """Return `job_id, submit_s, start_s, end_s, gpus, node`, one row per job, in order of arrival.

    Rejected jobs have no row. Missing times are null; `gpus` is the most held at one
    time; `node` names every node that ran a task, joined by commas, and is null for jobs without
    `starts`, as on a pool of GPUs without nodes.
    """
    nodes: dict[str, dict[str, None]] = {}
    for start in starts:
        nodes.setdefault(start.job, {})[start.node] = None
    jobs, ids = outcome.jobs, [job.id for _, job in simulation.arrivals()]
    columns = {
        "job_id": pa.array([int(job) for job in ids] if integer_ids else ids),
        "submit_s": pa.array(jobs.submitted_at, pa.float64()),
        "start_s": _times(jobs.started_at),
        "end_s": _times(jobs.ended_at),
        "gpus": pa.array(-(-jobs.peak_gpus_milli // WHOLE), pa.int64()),
        "node": pa.array(
            [",".join(nodes[job]) if job in nodes else None for job in ids], pa.string()
        ),
    }
    return pa.table(columns)


def _times(values: NDArray[np.float64]) -> pa.Array:
    return pa.array(values, pa.float64(), from_pandas=True)  # NaN is null
