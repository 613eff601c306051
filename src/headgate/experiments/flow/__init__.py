"""The flow paper's experiments, simulated and live."""

COMMAND = "reproduce flow"
"""What writes their pages."""
