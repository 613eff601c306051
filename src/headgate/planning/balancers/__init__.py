"""Balancing of small tasks over unlike nodes: which node gets the next one."""

from headgate.planning.balancers.cost import predicted_finish_s, wait_work_s
from headgate.planning.balancers.rules import (
    BALANCERS,
    Balancer,
    LeastCost,
    Memo,
    PickKx,
    RandomPick,
    ResourcePickKx,
    RoundRobin,
    SmoothWeighted,
)
from headgate.planning.balancers.scores import WITH_GPUS, WITHOUT_GPUS, Scores, Weighting
from headgate.planning.balancers.speeds import Speeds
from headgate.planning.balancers.spilling import spill

__all__ = [
    "BALANCERS",
    "WITHOUT_GPUS",
    "WITH_GPUS",
    "Balancer",
    "LeastCost",
    "Memo",
    "PickKx",
    "RandomPick",
    "ResourcePickKx",
    "RoundRobin",
    "Scores",
    "SmoothWeighted",
    "Speeds",
    "Weighting",
    "predicted_finish_s",
    "spill",
    "wait_work_s",
]
