"""Plain Ray programs in job files: the key `ray`, and the tasks that it stands for.

Without `num_nodes`, what the program holds counts in all, over any nodes: it is a gang with one
task per GPU. With `num_nodes` it counts per node, and there is one task on each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from headgate.model import WHOLE, Demand, RayMode, RayProgram, Task
from headgate.spec.document import Document, Place
from headgate.spec.needs import Needs
from headgate.spec.shape import Count, FileShape, shown

_MODES = tuple(mode.value for mode in RayMode)
_OTHERS = ("run", "tasks", "update", "reduce", "data", "gang", "launch")
_SET = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_TMPDIR")


def _mode(value: Any) -> Any:
    if value not in _MODES:
        problem = "must be 'private' or 'shared', not {value}"
        raise PydanticCustomError("ray_mode", problem, {"value": shown(value)})
    return value


class RayScript(FileShape):
    """A plain Ray program, unmodified, which runs on a Ray cluster inside its grant."""

    script: Annotated[
        str,
        Field(
            min_length=1, description="path of a Python script, which is sent with its directory"
        ),
    ]
    args: Annotated[list[str], Field(default_factory=list, description="arguments of the script")]
    resources: Annotated[
        Needs | None, Field(description="what it holds in all; with `num_nodes`, on each node")
    ] = None
    mode: Annotated[
        str,
        BeforeValidator(_mode),
        WithJsonSchema({"enum": list(_MODES)}),
        Field(
            description="`private`: a Ray cluster of its own inside its grant; `shared`: the Ray "
            "cluster that Headgate has joined"
        ),
    ] = "private"
    retries: Annotated[Count, Field(description="times the program is run again if it fails")] = 0


def check_ray(
    document: Document, *, ray: RayScript | None, resources: Needs | None, envs: Mapping[str, str]
) -> None:
    """Check the key `ray` and the keys beside it."""
    raw = document.data
    if "ray" not in raw:
        return
    for key in (other for other in _OTHERS if other in raw):
        document.add((key,), "does not go with 'ray', which is what the job runs", "remove one")
    for name in (name for name in _SET if name in envs):
        document.add(("envs", name), "is set for every Ray program, to its own Ray cluster")
    if ray is None:
        return
    for place, text in _texts(ray):
        if "\0" in text:
            document.add(place, "must not hold a zero character")
    if not ray.script.startswith("/") and raw.get("working_dir") in ("none", False):
        problem = f"{shown(ray.script)} is not an absolute path"
        document.add(("ray", "script"), problem, "no files are sent: 'working_dir' is none")
    if ray.resources is not None and resources is not None:
        hint = "keep one of them"
        document.add(("resources",), "is given twice, here and in 'ray'", hint)
    _check_needs(document, ray, resources)


def _texts(ray: RayScript) -> Iterator[tuple[Place, str]]:
    yield ("ray", "script"), ray.script
    for number, argument in enumerate(ray.args):
        yield ("ray", "args", number), argument


def _check_needs(document: Document, ray: RayScript, resources: Needs | None) -> None:
    """Check the amounts that a Ray cluster can have: whole GPUs, whole CPUs, one per GPU."""
    place: Place = ("resources",) if ray.resources is None else ("ray", "resources")
    needs = ray.resources or resources
    if needs is None:
        return
    if ray.resources is not None:
        needs.check(document, place)
    if isinstance(needs.gpus, str) or 0 < needs.gpus < 1:
        document.add((*place, "gpus"), "a Ray program holds whole GPUs, or none")
        return
    if needs.cpus is None:
        return
    if needs.cpus != int(needs.cpus):
        document.add((*place, "cpus"), "a Ray program holds whole CPUs")
    elif needs.cpus < needs.gpus:
        hint = "leave it out to get the GPUs' part of each node's CPUs"
        document.add((*place, "cpus"), "must be at least one for each GPU", hint)


def ray_program(ray: RayScript, needs: Needs) -> RayProgram:
    """Return what a Ray program is besides its script and its tasks."""
    follows = needs.cpus is None and bool(needs.gpus)
    return RayProgram(args=tuple(ray.args), mode=RayMode(ray.mode), cpus_by_gpus=follows)


def ray_tasks(whole: Demand, num_nodes: int | None) -> tuple[Task, ...]:
    """Return the members of a Ray program's gang: each holds it whole, or all together do."""
    if num_nodes is not None:
        return (Task(demand=whole),) * num_nodes
    count = max(1, whole.gpus)
    cpus = _divided(whole.cpus_milli // WHOLE, count)
    memory = _divided(whole.memory_bytes, count)
    custom = {name: _divided(amount, count) for name, amount in whole.custom}
    demands = (
        replace(
            whole,
            gpus=min(1, whole.gpus),
            cpus_milli=WHOLE * cpus[i],
            memory_bytes=memory[i],
            custom=tuple((name, amounts[i]) for name, amounts in custom.items() if amounts[i]),
        )
        for i in range(count)
    )
    return tuple(Task(demand=demand) for demand in demands)


def _divided(amount: int, count: int) -> list[int]:
    """Return an amount in `count` parts that differ by 1 at most."""
    each, rest = divmod(amount, count)
    return [each + (i < rest) for i in range(count)]
