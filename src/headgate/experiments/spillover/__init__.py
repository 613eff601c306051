"""Balancing of small tasks over alike and unlike nodes, in the simulator."""

from headgate.experiments.frame.paper import LIVE, PAGE, Paper

PAPER = Paper(command="reproduce spillover", pages=(PAGE, LIVE))
