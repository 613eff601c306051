"""Sorting of integers (radix sort), and the minimum of each group of them."""

from headgate.base._native import in_order, least_of_each, nth_of_equals

__all__ = ["in_order", "least_of_each", "nth_of_equals"]
