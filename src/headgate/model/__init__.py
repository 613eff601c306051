"""The data model: frozen values that all layers above share."""

from headgate.model.cluster import Bandwidth, Gpu, Locality, Node
from headgate.model.data import SHARED, Dataset, LogPiece, Read, Shard
from headgate.model.job import (
    Job,
    Queue,
    RunId,
    Task,
    part_sizes,
    result_id,
    result_ids,
    task_of_result,
)
from headgate.model.resources import BASE_KINDS, CPUS, MEMORY, UNLIMITED, WHOLE, Demand, amount_of

__all__ = [
    "BASE_KINDS",
    "CPUS",
    "MEMORY",
    "SHARED",
    "UNLIMITED",
    "WHOLE",
    "Bandwidth",
    "Dataset",
    "Demand",
    "Gpu",
    "Job",
    "Locality",
    "LogPiece",
    "Node",
    "Queue",
    "Read",
    "RunId",
    "Shard",
    "Task",
    "amount_of",
    "part_sizes",
    "result_id",
    "result_ids",
    "task_of_result",
]
