"""The simplest baseline: strict order of arrival."""

from headgate.policies.fifo.fifo import INFO, FirstInFirstOut

__all__ = ["INFO", "FirstInFirstOut"]
