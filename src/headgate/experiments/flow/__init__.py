"""The flow paper's experiments, simulated and live."""

from headgate.experiments.frame.paper import LIVE, PAGE, Paper

PAPER = Paper(command="reproduce flow", pages=(PAGE, LIVE))
