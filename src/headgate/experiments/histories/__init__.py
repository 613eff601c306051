"""Recorded job histories under several policies, on clusters of several sizes."""

from headgate.experiments.frame.paper import Paper

PAPER = Paper(command="reproduce histories")
