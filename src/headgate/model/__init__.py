"""The data model: frozen values that all layers above share."""

from headgate.model.cluster import Bandwidth, Gpu, Locality, Node
from headgate.model.communication import Communication, Pattern
from headgate.model.data import FILE_PREFIX, SHARED, Dataset, LogPiece, Read, Shard
from headgate.model.job import (
    GRACE_S,
    Job,
    Queue,
    RunId,
    Task,
    part_sizes,
    result_id,
    result_ids,
    task_of_result,
)
from headgate.model.program import (
    NO_PROGRAM,
    Launch,
    Program,
    ProgramType,
    RayMode,
    RayProgram,
    RunEnvironment,
    Stage,
    TaskProgram,
)
from headgate.model.resources import BASE_KINDS, CPUS, MEMORY, UNLIMITED, WHOLE, Demand, amount_of

__all__ = [
    "BASE_KINDS",
    "CPUS",
    "FILE_PREFIX",
    "GRACE_S",
    "MEMORY",
    "NO_PROGRAM",
    "SHARED",
    "UNLIMITED",
    "WHOLE",
    "Bandwidth",
    "Communication",
    "Dataset",
    "Demand",
    "Gpu",
    "Job",
    "Launch",
    "Locality",
    "LogPiece",
    "Node",
    "Pattern",
    "Program",
    "ProgramType",
    "Queue",
    "RayMode",
    "RayProgram",
    "Read",
    "RunEnvironment",
    "RunId",
    "Shard",
    "Stage",
    "Task",
    "TaskProgram",
    "amount_of",
    "part_sizes",
    "result_id",
    "result_ids",
    "task_of_result",
]
