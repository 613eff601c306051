"""Functions that tasks run on the test cluster."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

from headgate.workloads.task import TaskContext


def describe(task: TaskContext) -> None:
    """Write the run's context as its result."""
    seen: dict[str, Any] = {
        "gpus": list(task.gpus),
        "visible": os.environ["CUDA_VISIBLE_DEVICES"],
        "index": task.index,
        "count": task.count,
        "params": dict(task.params),
        "pid": os.getpid(),
        "ray": sorted(key for key in os.environ if key.startswith("RAY_")),
    }
    task.output.write_text(json.dumps(seen))


def fail(task: TaskContext) -> None:
    """Write to both output streams, then raise."""
    sys.stdout.write("looking at the numbers\n")
    sys.stderr.write("they look odd\n")
    raise ValueError("no such number")


def crash(task: TaskContext) -> None:
    """Read from address 0, as broken native code does."""
    ctypes.string_at(0)
