"""Packing of recorded pods on recorded nodes, in random order, under several policies."""

from headgate.experiments.frame.paper import Paper

PAPER = Paper(command="reproduce packing")
