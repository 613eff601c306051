"""Job files of single commands, and of plain Ray programs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

from headgate.base.errors import Problem, SpecError

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 40


def job_of_command(
    command: str | Sequence[str],
    *,
    name: str | None = None,
    queue: str | None = None,
    gpus: float | str | None = None,
    gpu_model: str | Sequence[str] | None = None,
    gpu_memory: str | int | None = None,
    cpus: float | None = None,
    memory: str | int | None = None,
    num_nodes: int | None = None,
    count: int | None = None,
    first_index: int | None = None,
    max_running: int | None = None,
    retries: int | None = None,
    **keys: Any,
) -> dict[str, Any]:
    """Return the job file, as plain data, of a command, which is run `count` times, by default 1.

    A command in one piece is for the shell, a sequence is a program with its arguments. The others
    are keys of job files, with the same defaults; resources are per node. So are all further
    `keys`: `priority`, `time_limit`, `envs`, ... The program names the job if nothing else does.
    """
    words = shlex.split(command, comments=True) if isinstance(command, str) else list(command)
    run = command if isinstance(command, str) else f"exec {shlex.join(words)}"
    resources = _given(
        gpus=gpus, gpu_model=gpu_model, gpu_memory=gpu_memory, cpus=cpus, memory=memory
    )
    if num_nodes is None and count is None:
        count = 1
    return {
        "name": name or _name(words),
        **_given(queue=queue, num_nodes=num_nodes, **keys),
        "tasks": {
            "run": run,
            **_given(
                count=count,
                first_index=first_index,
                max_running=max_running,
                retries=retries,
                resources=resources or None,
            ),
        },
    }


def job_of_ray_script(
    script: Path,
    args: Sequence[str] = (),
    *,
    gpus: int | None = None,
    gpu_model: str | Sequence[str] | None = None,
    cpus: int | None = None,
    memory: str | int | None = None,
    num_nodes: int | None = None,
    retries: int | None = None,
    name: str | None = None,
    **keys: Any,
) -> dict[str, Any]:
    """Return the job file, as plain data, of a plain Ray program, whose script names it.

    The others are keys of job files, with the same defaults: amounts in all, with `num_nodes` per
    node. SpecError `usage` for a script that is not there.
    """
    path = script.expanduser().absolute()
    if not path.is_file():
        what = "is not a file" if path.exists() else "there is no such file"
        raise SpecError([Problem(path=str(script), problem=what)], code="usage")
    ray: dict[str, Any] = {"script": str(path), "args": list(args)}
    if resources := _given(gpus=gpus, gpu_model=gpu_model, cpus=cpus, memory=memory):
        ray["resources"] = resources
    if retries is not None:
        ray["retries"] = retries
    name = name or _valid_name(path.stem) or "ray"
    return {"name": name, "ray": ray, **_given(num_nodes=num_nodes, **keys)}


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _name(words: Sequence[str]) -> str:
    """Return a job's name for a command: that of its program, or of the script it is given."""
    paths = [PurePath(word) for word in words if not word.startswith("-")]
    scripts = [path.stem for path in paths[:2] if path.suffix in (".py", ".sh")]
    return _valid_name((scripts or [path.name for path in paths] or [""])[0]) or "run"


def _valid_name(text: str) -> str:
    """Return what of a text can name a job, or ''."""
    return _NOT_IN_NAMES.sub("-", text)[:_LONGEST_NAME].lstrip("-._")
