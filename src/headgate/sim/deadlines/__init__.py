"""Elastic training with deadlines in virtual time: recorded jobs, rules, figures."""

from headgate.sim.deadlines.report import figures
from headgate.sim.deadlines.rules import RULES
from headgate.sim.deadlines.run import DeadlineOutcome, simulate

__all__ = ["RULES", "DeadlineOutcome", "figures", "simulate"]
