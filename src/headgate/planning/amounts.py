"""Placements on GPUs, checked for what else their tasks hold: CPUs, memory, custom kinds.

The policies that deal single GPUs look at GPUs alone when they choose. What they choose stands
where the node has room for the rest, too; elsewhere the task goes on waiting, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.planning.fit import no_room
from headgate.protocol import Placement, Refusal
from headgate.state import Scratch


def with_room(
    scratch: Scratch, placements: Iterable[Placement]
) -> tuple[list[Placement], list[Refusal]]:
    """Return the placements whose nodes have room on paper, and why the others have none.

    Those that stand are taken from the scratch's ledger, not noted in its placements. Where no task
    on GPUs holds anything besides, that costs nothing.
    """
    placements = list(placements)
    names, demands = scratch.snapshot.names, scratch.snapshot.tasks.demand
    if not any(d.gpus and needs for d, needs in zip(names.demands, names.needs, strict=False)):
        return placements, []
    standing, refusals, jobs = [], [], scratch.snapshot.tasks.job
    for placement in placements:
        task, node, gpus = placement
        demand = demands[task]
        if names.needs[demand]:
            if scratch.ledger.lacks(demand, node):
                refusals.append(Refusal(reason=no_room(scratch, task), jobs=(jobs[task],)))
                continue
            scratch.ledger.take(task, demand, node, gpus)
        standing.append(placement)
    return standing, refusals
