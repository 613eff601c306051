"""Policies that serve jobs in an order, with or without backfill and preemption."""
