"""Balancing of small tasks over alike and unlike nodes, in the simulator."""

COMMAND = "reproduce spillover"
"""The command that writes their page."""
