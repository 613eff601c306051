"""Spillover load balancing over unlike nodes, as in the published experiments."""

COMMAND = "reproduce spillover"
"""The command that writes its pages."""
