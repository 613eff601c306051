"""Recorded workloads: job histories in Parquet or as text, checked, and read in order of time."""

from headgate.traces.columns import TraceOptions
from headgate.traces.parquet import TraceFile, open_trace, read_trace
from headgate.traces.trace import JobHistory, Trace, TraceJob

__all__ = [
    "JobHistory",
    "Trace",
    "TraceFile",
    "TraceJob",
    "TraceOptions",
    "open_trace",
    "read_trace",
]
