"""The nouns: frozen values that every floor above speaks of."""

from headgate.model.cluster import Bandwidth, Gpu, Locality, Node
from headgate.model.data import Dataset, LogPiece, Read, Shard
from headgate.model.job import Job, Queue, RunId, Task, part_sizes, result_id, result_ids

__all__ = [
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
]
