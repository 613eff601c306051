"""What a run leaves: how it failed, what it used, the files that it has kept."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """Why a run ended without a result."""

    ERROR = "error"  # caused by the program: counts against the task's retries
    LOST = "lost"  # its node or its input was lost: does not count
    CRASHED = "crashed"  # its executor died, or its node lacks its working directory, on a node
    # that stayed up: counted apart from errors
    TIMED_OUT = "timed_out"  # it ran over its time limit: its job fails, without a retry


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFiles:
    """Files that a run has written into its working directory, on its node.

    `files` can be fetched. `left` are more, such as those over the limit of the job, which only lie
    in `directory` on the node; `skipped` are links, devices and the like.
    """

    files: int = 0
    size_bytes: int = 0
    left: int = 0
    left_bytes: int = 0
    skipped: int = 0
    directory: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Usage of a run: bytes read by locality (node, rack, cluster), seconds spent reading.

    `exit_status` is that of its program, negative for a signal; None if none is known.
    `kept` are the files that it leaves on its node, None without any. `peak_memory_bytes`, and
    `peak_gpu_bytes` of one GPU, are the most that it was seen to use, `cpus_milli` its mean load in
    thousandths of CPUs; 0 where that is not known.
    """

    read_bytes: tuple[int, int, int] = (0, 0, 0)
    read_s: float = 0.0
    exit_status: int | None = None
    kept: KeptFiles | None = None
    peak_memory_bytes: int = 0
    peak_gpu_bytes: int = 0
    cpus_milli: int = 0


NO_USAGE = Usage()
