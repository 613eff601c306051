"""Stage 1 of a round: which tasks are eligible, and how many GPUs each job is entitled to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.flow import Ints
from headgate.planning.census import Bools
from headgate.planning.standing import Standing
from headgate.policies.flow.in_flight import InFlight
from headgate.policies.flow.prices import Prices
from headgate.state import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entitled:
    """How many tasks may and must be placed in a round; int64 arrays.

    Jobs are limited in groups: each job alone, or several together. Of a group at most `most` tasks
    are placed, and at least `least` where GPUs allow. `target` are the jobs' fair shares.
    """

    target: Ints  # [jobs]
    group: Ints  # [jobs]
    row: Ints  # [groups] row of the job, or of the queue
    most: Ints  # [groups]
    least: Ints  # [groups]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tasks:
    """The waiting tasks of a `Standing`, one value each.

    Tasks that are alike have the same demand and inputs: to the flow, any of them is as good.
    """

    row: Ints
    job: Ints  # index into `Standing.jobs`
    alike: Ints  # row of the first task like it
    eligible: Bools  # some GPU of the round fits, and its group is entitled to one


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Round:
    """A snapshot, and all that the problem of its round is made of; nothing in it ever changes."""

    now: Standing
    in_flight: InFlight | None  # of policies that give out GPUs that are held now, too
    entitled: Entitled
    tasks: Tasks
    prices: Prices

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that is decided on."""
        return self.now.snapshot


def round_of(
    now: Standing, in_flight: InFlight | None, entitled: Entitled, prices: Prices
) -> Round:
    """Return a round; O(tasks that wait)."""
    most = entitled.most[entitled.group]
    eligible = (now.task_class < len(now.class_bytes)) & (most > 0)[now.task_job]
    if in_flight is None and not now.free.any():
        eligible[:] = False
    tasks = Tasks(
        row=now.task,
        job=now.task_job,
        alike=now.snapshot.tasks.task_group.take(now.task).astype(np.int64),
        eligible=eligible,
    )
    return Round(now=now, in_flight=in_flight, entitled=entitled, tasks=tasks, prices=prices)
