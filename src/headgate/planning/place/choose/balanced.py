"""Balancers as placers: each task on the node that a balancer picks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from headgate.base.rng import stream
from headgate.planning.balancers import Balancer, Memo, Scores
from headgate.planning.place.choose.rules import Placer
from headgate.planning.topology.layout import Layout, Places, Request


@dataclass(frozen=True, slots=True)
class Balanced(Placer):
    """The node that a balancer picks, task by task, of those with room.

    On a cluster, `headgate.planning.place.choose.balancing` scores nodes by their
    resources. Sites alone are scored by the number of tasks that fit there.
    """

    places_parts = True

    balancer: Balancer = field()  # without a default, unlike that of other placers
    name: str

    def choose(self, layout: Layout, request: Request) -> Places | None:
        """Return a site for each task, as though none had been placed before."""
        del layout
        room, capacity = request.room.copy(), request.capacity.astype(np.float64)
        none, rng, memo = np.zeros(len(room)), stream(0, self.name), Memo()
        if room.sum() < request.count:
            return None
        sites = np.zeros(request.count, np.int64)
        for number in range(request.count):
            scores = Scores(
                total=capacity,
                available=room.astype(np.float64),
                load=capacity - room,
                finish_s=none,
                step_s=none,
            )
            sites[number] = self.balancer.pick(np.flatnonzero(room), scores, rng, memo)
            room[sites[number]] -= 1
        return Places(sites=sites, taken=np.unique(sites))
