"""Packing of recorded pods on recorded nodes, in random order, under several policies."""

COMMAND = "reproduce packing"
"""The command that writes their page."""
