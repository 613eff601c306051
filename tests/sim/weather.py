"""The simulated world of a storm, and what never ends in it."""

from __future__ import annotations

from dataclasses import replace

from headgate.engine import Engine
from headgate.model import Job
from headgate.planning.network import FluidNetwork
from headgate.planning.submission_check import fits_no_node
from headgate.ports import Policy
from headgate.sim.world import SimulatedWorld
from headgate.state import TaskState
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


def can_never_end(engine: Engine, row: int) -> bool:
    """Return whether what is left of a job fits no node that is up."""
    state = engine.state
    job: Job = state.job(row)
    left = [t for t in state.tasks_of(row) if state.tasks.state[t] != TaskState.FINISHED]
    job = replace(job, tasks=tuple(state.task(t) for t in left))
    return fits_no_node(job, [state.node(n) for n in state.live_nodes()]) is not None
