"""Elastic jobs in queues found by their type, against queues with hard parts, in the simulator."""

from headgate.experiments.frame.paper import Paper

PAPER = Paper(command="reproduce label-queues")
