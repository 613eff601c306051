"""The simplest baseline: strict order of arrival."""

from headgate.policies.fifo.fifo import FirstInFirstOut

__all__ = ["FirstInFirstOut"]
