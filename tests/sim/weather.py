"""The simulated world of a storm."""

from __future__ import annotations

from headgate.planning.network import FluidNetwork
from headgate.ports import Policy
from headgate.sim.world import SimulatedWorld
from headgate.testing.storms import Storm


def world_of(weather: Storm, policy: Policy) -> SimulatedWorld:
    """Return the world in which a storm happens under a policy."""
    return SimulatedWorld(
        weather.facts,
        network=FluidNetwork({}, **weather.links),  # type: ignore[arg-type]
        policy=policy,
        seed=weather.seed,
        decision_latency_s=weather.decision_latency_s,
        fails_after_s=weather.fails_after_s,
    )
