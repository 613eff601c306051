"""Ends Headgate's actors on a Ray cluster that continues to run."""

from __future__ import annotations

from headgate.live.actors.agent import end_agents
from headgate.live.actors.masters import accounts_with_actors, end_account, end_earlier_actors
from headgate.live.actors.spares import end_spares
from headgate.live.cluster.holders import end_holders
from headgate.live.cluster.ray_nodes import connect


def leave(address: str, *, token: str | None = None) -> None:
    """End all actors of Headgate; WorldError if no cluster responds."""
    connect(address, token=token)
    import ray

    try:
        for account in accounts_with_actors():
            end_account(account)
        end_earlier_actors()
        end_spares()
        end_agents()
        end_holders()
    finally:
        ray.shutdown()
