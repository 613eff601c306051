"""The data model: frozen values that all layers above share."""

from headgate.model.cluster import Bandwidth, Gpu, Locality, Node
from headgate.model.communication import Communication, Pattern
from headgate.model.data import FILE_PREFIX, SHARED, Dataset, LogPiece, Read, Shard
from headgate.model.job import (
    GRACE_S,
    Elastic,
    Items,
    Job,
    RunId,
    Task,
    part_sizes,
    result_id,
    result_ids,
    task_of_result,
)
from headgate.model.outcomes import NO_USAGE, FailureKind, KeptFiles, Usage
from headgate.model.program import (
    KEEP_ALL,
    NO_PROGRAM,
    SLOT,
    KeepFiles,
    Launch,
    Program,
    ProgramType,
    RayMode,
    RayProgram,
    RunEnvironment,
    Stage,
    TaskProgram,
    names_files,
)
from headgate.model.queue import Queue
from headgate.model.resources import BASE_KINDS, CPUS, MEMORY, UNLIMITED, WHOLE, Demand, amount_of
from headgate.model.speed import SpeedCurve
from headgate.model.training import Training

__all__ = [
    "BASE_KINDS",
    "CPUS",
    "FILE_PREFIX",
    "GRACE_S",
    "KEEP_ALL",
    "MEMORY",
    "NO_PROGRAM",
    "NO_USAGE",
    "SHARED",
    "SLOT",
    "UNLIMITED",
    "WHOLE",
    "Bandwidth",
    "Communication",
    "Dataset",
    "Demand",
    "Elastic",
    "FailureKind",
    "Gpu",
    "Items",
    "Job",
    "KeepFiles",
    "KeptFiles",
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
    "SpeedCurve",
    "Stage",
    "Task",
    "TaskProgram",
    "Training",
    "Usage",
    "amount_of",
    "names_files",
    "part_sizes",
    "result_id",
    "result_ids",
    "task_of_result",
]
