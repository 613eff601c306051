"""Sequential and closed-minimum placement of communicating jobs, as in the published experiment."""

from headgate.experiments.frame.paper import LIVE, PAGE, Paper

LARGE, TRACES = "large.html", "traces.html"
PAPER = Paper(command="reproduce closed-partition", pages=(PAGE, LIVE, LARGE, TRACES))
