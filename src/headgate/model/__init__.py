"""The nouns: frozen values that every floor above speaks of."""

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

__all__ = [
    "SHARED",
    "Bandwidth",
    "Dataset",
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
    "part_sizes",
    "result_id",
    "result_ids",
    "task_of_result",
]
