"""The flow paper's experiments, simulated and live."""

COMMAND = "reproduce flow"
"""The command that writes their pages."""
