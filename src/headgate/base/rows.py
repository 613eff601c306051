"""A number per row, where rows are few of many: dense, from the first one that has a number on."""

from headgate.base._native import RowMap

__all__ = ["RowMap"]
