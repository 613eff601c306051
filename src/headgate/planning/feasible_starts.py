"""Starts on GPUs, checked for the rest of their demands: CPUs, memory, custom kinds.

Policies that allocate single GPUs consider GPUs alone when they choose. A chosen start is kept if
the rest of the task's demand also fits its node; otherwise the task waits, with the reason.
"""

from __future__ import annotations

import numpy as np

from headgate.planning.fit import no_room
from headgate.protocol import NO_STEPS, Refusal, Steps
from headgate.state import Scratch


def feasible_starts(
    scratch: Scratch, steps: Steps, *, place: bool = False
) -> tuple[Steps, list[Refusal]]:
    """Return the starts whose demands fit their nodes, and the refusals of the others.

    Each start is a group of its own. The feasible ones are taken from the scratch's ledger, but not
    added to its starts; with `place`, they are, and none is returned. O(starts); O(demands) if no
    task on GPUs demands anything else.
    """
    if place:
        return NO_STEPS, _placed(scratch, steps)
    names, demands = scratch.snapshot.names, scratch.snapshot.tasks.demand
    if not any(d.gpus and needs for d, needs in zip(names.demands, names.needs, strict=False)):
        return steps, []
    feasible, refusals, jobs = np.ones(steps.groups, bool), [], scratch.snapshot.tasks.job
    for number, (task, node, gpus) in enumerate(steps.starts):
        demand = demands[task]
        if names.needs[demand]:
            if scratch.ledger.lacks(demand, node):
                refusals.append(Refusal(reason=no_room(scratch, task), jobs=(jobs[task],)))
                feasible[number] = False
                continue
            scratch.ledger.take(task, demand, node, gpus)
    return steps.only(feasible), refusals


def _placed(scratch: Scratch, steps: Steps) -> list[Refusal]:
    """Place the starts whose demands fit their nodes; return the refusals of the others."""
    jobs = scratch.snapshot.tasks.job
    return [
        Refusal(reason=no_room(scratch, task), jobs=(jobs[task],))
        for task, node, gpus in steps.starts
        if not scratch.place(task, node, gpus)
    ]
