"""Recorded job histories under several policies, on clusters of several sizes."""

COMMAND = "reproduce histories"
"""The command that writes their page."""
