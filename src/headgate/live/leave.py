"""Ends what we run on a Ray cluster that stays."""

from __future__ import annotations

from headgate.live.agent import end_agents
from headgate.live.master import end_job, jobs_with_actors
from headgate.live.ray_nodes import connect


def leave(address: str, *, token: str | None = None) -> None:
    """End all our job masters, executors and node agents there; WorldError when nobody answers."""
    connect(address, token=token)
    import ray

    try:
        for job in jobs_with_actors():
            end_job(job)
        end_agents()
    finally:
        ray.shutdown()
