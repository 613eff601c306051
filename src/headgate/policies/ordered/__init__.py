"""Policies that serve jobs in an order, with or without backfill and preemption."""

from headgate.policies.ordered.policy import backfilling, preempting

__all__ = ["backfilling", "preempting"]
