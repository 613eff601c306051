"""Orders of whole numbers."""

from headgate.base._native import in_order, nth_of_equals

__all__ = ["in_order", "nth_of_equals"]
