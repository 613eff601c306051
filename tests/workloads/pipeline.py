"""Runs a workload's stages in this process, as a job runs them on nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headgate.workloads.task import TaskContext, TaskFunction


def run_stage(
    function: TaskFunction,
    reads: Sequence[Sequence[Path]],
    folder: Path,
    params: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Run one task per tuple of input files; return their results."""
    return [parts[0] for parts in _run(function, reads, folder, params, parts=0)]


def run_in_parts(
    function: TaskFunction,
    reads: Sequence[Sequence[Path]],
    folder: Path,
    parts: int,
    params: Mapping[str, Any] | None = None,
) -> list[tuple[Path, ...]]:
    """Run a stage with results in parts; return, for each part, that part of every result."""
    return list(zip(*_run(function, reads, folder, params, parts=parts), strict=True))


def _run(
    function: TaskFunction,
    reads: Sequence[Sequence[Path]],
    folder: Path,
    params: Mapping[str, Any] | None,
    *,
    parts: int,
) -> list[tuple[Path, ...]]:
    results = []
    for index, shards in enumerate(reads):
        output = folder / f"{function.__module__}.{function.__name__}.{index}"
        outputs = tuple(output.with_name(f"{output.name}.{part}") for part in range(parts))
        function(
            TaskContext(
                index=index,
                count=len(reads),
                shards=tuple(shards),
                output=output,
                outputs=outputs,
                params=params or {},
            )
        )
        results.append(outputs or (output,))
    return results


def cut(path: Path, shard_bytes: int) -> list[Path]:
    """Cut a file into shards beside it."""
    data = path.read_bytes()
    shards = []
    for start in range(0, len(data), shard_bytes):
        shard = path.with_name(f"{path.name}.{start}")
        shard.write_bytes(data[start : start + shard_bytes])
        shards.append(shard)
    return shards
