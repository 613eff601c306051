"""Policies that serve jobs in an order, with or without backfill and preemption."""

from headgate.policies.ordered.policy import INFOS

__all__ = ["INFOS"]
