"""What a simulation tells beside its figures: where tasks went, and one row per job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headgate.model import WHOLE
from headgate.sim.run import Outcome
from headgate.sim.world import Start
from headgate.traces import Trace


def placements(
    starts: Sequence[Start], task_names: Mapping[str, Sequence[str]]
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


def jobs_table(outcome: Outcome, *, pooled: bool, trace: Trace | None) -> pa.Table:
    """Return `job_id, submit_s, start_s, end_s, gpus, node`, one row per job, in order of arrival.

    Rejected jobs have no row. Times of what never came are null; `gpus` is the most held at one
    time; `node` names every node that ran a task, joined by commas, and is null on a pool of GPUs
    without nodes. Ids have the type that they have in the trace.
    """
    state = outcome.state
    nodes: dict[str, dict[str, None]] = {}
    if not pooled:
        for start in outcome.starts:
            nodes.setdefault(start.job, {})[start.node] = None
    ids: list[Any] = [job.id for job in state.names.jobs]
    if trace is not None and trace.job_id.dtype != object:
        ids = [int(i) for i in ids]
    columns = {
        "job_id": pa.array(ids),
        "submit_s": pa.array(state.jobs.submitted_at.array(), pa.float64()),
        "start_s": _times(state.jobs.started_at.array().tolist()),
        "end_s": _times(state.jobs.ended_at.array().tolist()),
        "gpus": pa.array(-(-state.jobs.peak_gpus_milli.array() // WHOLE), pa.int64()),
        "node": pa.array(
            [",".join(nodes[job.id]) if job.id in nodes else None for job in state.names.jobs],
            pa.string(),
        ),
    }
    return pa.table(columns)


def _times(values: list[float]) -> pa.Array:
    return pa.array([None if math.isnan(v) else v for v in values], pa.float64())
