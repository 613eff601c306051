"""Ends Headgate's actors on a Ray cluster that continues to run."""

from __future__ import annotations

from headgate.live.agent import end_agents
from headgate.live.holders import end_holders
from headgate.live.masters import accounts_with_actors, end_account, end_earlier_actors
from headgate.live.ray_nodes import connect
from headgate.live.spares import end_spares


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
