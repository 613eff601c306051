"""Greedy sharing: free GPUs are offered to one job at a time, with preemption or delay."""

from headgate.policies.greedy.policies import (
    GreedyDelay,
    GreedyPreemption,
    GreedySharing,
)

__all__ = ["GreedyDelay", "GreedyPreemption", "GreedySharing"]
