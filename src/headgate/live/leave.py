"""Ends Headgate's actors on a Ray cluster that continues to run."""

from __future__ import annotations

from headgate.live.agent import end_agents
from headgate.live.holders import end_holders
from headgate.live.master import end_job, jobs_with_actors
from headgate.live.ray_nodes import connect
from headgate.live.spares import end_spares


def leave(address: str, *, token: str | None = None) -> None:
    """End all actors of Headgate; WorldError if no cluster responds."""
    connect(address, token=token)
    import ray

    try:
        for job in jobs_with_actors():
            end_job(job)
        end_spares()
        end_agents()
        end_holders()
    finally:
        ray.shutdown()
