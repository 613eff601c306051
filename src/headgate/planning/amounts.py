"""Starts on GPUs, checked for what else their tasks hold: CPUs, memory, custom kinds.

The policies that deal single GPUs look at GPUs alone when they choose. What they choose stands
where the node has room for the rest, too; elsewhere the task goes on waiting, with the reason.
"""

from __future__ import annotations

import numpy as np

from headgate.planning.fit import no_room
from headgate.protocol import Refusal, Steps
from headgate.state import Scratch


def with_room(scratch: Scratch, steps: Steps) -> tuple[Steps, list[Refusal]]:
    """Return the starts whose nodes have room on paper, and why the others have none.

    Each start is a group of its own. Those that stand are taken from the scratch's ledger, not
    noted in its starts. Where no task on GPUs holds anything besides, that costs nothing.
    """
    names, demands = scratch.snapshot.names, scratch.snapshot.tasks.demand
    if not any(d.gpus and needs for d, needs in zip(names.demands, names.needs, strict=False)):
        return steps, []
    stands, refusals, jobs = np.ones(steps.groups, bool), [], scratch.snapshot.tasks.job
    for number, (task, node, gpus) in enumerate(steps.starts):
        demand = demands[task]
        if names.needs[demand]:
            if scratch.ledger.lacks(demand, node):
                refusals.append(Refusal(reason=no_room(scratch, task), jobs=(jobs[task],)))
                stands[number] = False
                continue
            scratch.ledger.take(task, demand, node, gpus)
    return steps.only(stands), refusals
