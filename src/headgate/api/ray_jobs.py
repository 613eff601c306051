"""Job files of plain Ray programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headgate.base.errors import Problem, SpecError

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 40


def job_of_ray_script(
    script: Path,
    args: Sequence[str] = (),
    *,
    gpus: int | None = None,
    cpus: int | None = None,
    memory: str | int | None = None,
    num_nodes: int | None = None,
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
    given = {"gpus": gpus, "cpus": cpus, "memory": memory}
    if resources := {key: value for key, value in given.items() if value is not None}:
        ray["resources"] = resources
    name = _NOT_IN_NAMES.sub("-", path.stem)[:_LONGEST_NAME].lstrip("-._") or "ray"
    job: dict[str, Any] = {"name": name, "ray": ray}
    return job if num_nodes is None else {**job, "num_nodes": num_nodes}
