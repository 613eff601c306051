"""Data-local sharing by min-cost flow: fair, fair with preemption, and without fairness."""

from headgate.policies.flow.fs import FlowSharing
from headgate.policies.flow.fsp import PreemptiveFlowSharing
from headgate.policies.flow.fsu import UnfairFlow
from headgate.policies.flow.headgate import TimelyFlow

__all__ = ["FlowSharing", "PreemptiveFlowSharing", "TimelyFlow", "UnfairFlow"]
