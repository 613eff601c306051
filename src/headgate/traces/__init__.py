"""Recorded workloads: job histories in Parquet, checked and read into columns."""

from headgate.traces.parquet import Trace, read_trace

__all__ = ["Trace", "read_trace"]
