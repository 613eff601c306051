"""Ends what we run on a Ray cluster that stays."""

from __future__ import annotations

from contextlib import suppress

from headgate.live.master import end_job, jobs_with_actors
from headgate.live.ray_nodes import NAMESPACE, connect


def leave(address: str, *, token: str | None = None) -> None:
    """End all our job masters, executors and node agents there; WorldError when nobody answers."""
    connect(address, token=token)
    import ray
    from ray.util import list_named_actors

    try:
        for job in jobs_with_actors():
            end_job(job)
        for entry in list_named_actors(all_namespaces=True):
            if entry["namespace"] == NAMESPACE:
                with suppress(ValueError):  # gone meanwhile
                    actor = ray.get_actor(entry["name"], namespace=NAMESPACE)
                    ray.kill(actor, no_restart=True)
    finally:
        ray.shutdown()
