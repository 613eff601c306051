"""Data-local sharing by min-cost flow: fair, fair with preemption, and without fairness."""

from headgate.policies.flow.fs import INFO as FS
from headgate.policies.flow.fs import FlowSharing
from headgate.policies.flow.fsp import INFO as FSP
from headgate.policies.flow.fsp import PreemptiveFlowSharing
from headgate.policies.flow.fsu import INFO as FSU
from headgate.policies.flow.fsu import UnfairFlow
from headgate.policies.flow.headgate import INFO as HEADGATE
from headgate.policies.flow.headgate import TimelyFlow

__all__ = [
    "FS", "FSP", "FSU", "HEADGATE", "FlowSharing", "PreemptiveFlowSharing", "TimelyFlow",
    "UnfairFlow",
]  # fmt: skip
