"""Reasons of an earlier round as they hold now: no time in them has passed.

Between two rounds time passes. A run that takes longer than expected ends no round, so a reason of
the last one may name a start that has passed, or a bound that no longer holds.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from headgate.base.arrays import Ints
from headgate.planning.place.limits import places_kept
from headgate.planning.times.estimates import Estimates
from headgate.protocol import PlacesKept, Reason
from headgate.protocol.reasons import Short
from headgate.protocol.reserved_at import ReservedAt
from headgate.state import Snapshot, State
from headgate.state.life import HOLDING

_FROM, _TO = 0.1, 0.9  # quantiles of the ends of runs: 80 % are in between


def renewed(snapshot: Snapshot, reason: Reason) -> Reason:
    """Return a reason that names a time which has passed, as it holds now; O(tasks of jobs named).

    `snapshot` is the state now, `reason` one of the last round.
    """
    if isinstance(reason, PlacesKept) and snapshot.hardened is not None:
        return places_kept(snapshot, snapshot.hardened)
    if isinstance(reason, Short) and reason.reserved is not None:
        return replace(reason, reserved=_late(snapshot, reason.reserved))
    return reason


def at_time(view: State | Snapshot, now: float) -> Snapshot:
    """Return a snapshot of a state at a later time, at which nothing else has happened."""
    snapshot = view if isinstance(view, Snapshot) else view.freeze()
    return replace(snapshot, now=max(snapshot.now, now))


def _late(snapshot: Snapshot, reserved: ReservedAt) -> ReservedAt:
    """Return a reservation whose time has passed, with when its runs end by now."""
    late = replace(reserved, at=None, ahead_s=None, late=True)
    runs = _runs(snapshot, reserved.after)
    if not len(runs):
        return late
    estimates = Estimates(snapshot)
    soonest_s, latest_s = (
        float(estimates.end_at(runs, p).max()) - snapshot.now for p in (_FROM, _TO)
    )
    return late if math.isinf(latest_s) else replace(late, late_s=(soonest_s, latest_s))


def _runs(snapshot: Snapshot, jobs: tuple[str, ...]) -> Ints:
    """Return the tasks (rows) of jobs that hold something."""
    rows = [snapshot.tasks_of(snapshot.names.job_rows[job]) for job in jobs]
    tasks = np.array([task for each in rows for task in each], np.int64)
    holding: Ints = tasks[np.isin(snapshot.tasks.state.take(tasks), HOLDING)]
    return holding
