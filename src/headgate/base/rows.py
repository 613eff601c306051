"""A map from rows to integers for a narrow range of rows: dense from the first row set."""

from headgate.base._native import RowMap

__all__ = ["RowMap"]
