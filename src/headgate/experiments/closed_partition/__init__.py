"""Sequential and closed-minimum placement of communicating jobs, as in the published experiment."""

COMMAND = "reproduce closed-partition"
"""The command that writes its pages."""
