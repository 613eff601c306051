"""Fair, data-local sharing by min-cost flow."""

from headgate.policies.flow.fs import INFO, FlowSharing

__all__ = ["INFO", "FlowSharing"]
