"""Helpers of the programs: records of one size, required parameters, results in parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headgate.base.errors import Problem, SpecError
from headgate.workloads.task import TaskContext


def wrong(path: str, problem: str, hint: str = "") -> SpecError:
    """Return an error with one problem."""
    return SpecError([Problem(path=path, problem=problem, hint=hint)])


def whole_number(params: Mapping[str, Any], name: str, *, least: int = 1) -> int:
    """Return a parameter that is a whole number; SpecError when it is missing or below `least`."""
    value = params.get(name)
    if not isinstance(value, int) or value < least:
        raise wrong(f"params.{name}", "is missing or wrong", f"a whole number from {least} on")
    return value


def whole_records(path: Path, record_bytes: int, what: str) -> int:
    """Return the number of records of a shard; SpecError when it ends inside one."""
    records, rest = divmod(path.stat().st_size, record_bytes)
    if rest:
        raise wrong(
            str(path),
            f"{path.stat().st_size} bytes are no whole number of {what}",
            f"cut the data at a multiple of {record_bytes} bytes",
        )
    return records


def parts_of(task: TaskContext) -> tuple[Path, ...]:
    """Return the files of the task's result, in order: one, or one per part."""
    return task.outputs or (task.output,)
