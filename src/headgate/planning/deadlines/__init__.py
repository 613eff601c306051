"""Elastic training with deadlines: how many GPUs each job gets, and which jobs are admitted."""

from headgate.planning.deadlines.jobs import Allocation, Allocator, TrainingJob
from headgate.planning.deadlines.table import ALLOCATORS

__all__ = ["ALLOCATORS", "Allocation", "Allocator", "TrainingJob"]
