"""The input of one scheduling round as arrays: nodes, racks, waiting tasks, shares."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.base.arrays import Ints
from headgate.base.errors import Problem, SpecError
from headgate.flow import AnyInts, options_of

_CLUSTER = ("rack", "free", "unscheduled_capacity")
_TASKS = (
    "job", "unscheduled_cost", "cluster_cost", "option_offsets", "option_vertex", "option_cost",
)  # fmt: skip
_ARRIVAL = "arrival_"
_MOST_GPUS = 1 << 31
_NO_NPZ = (  # what NumPy and zipfile raise for files that are none, or damaged
    ValueError, EOFError, KeyError, MemoryError, NotImplementedError, RuntimeError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
_HINT = "the keys and shapes of such a file are listed in docs/flow-core.md"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tasks:
    """Tasks and their options; costs in microseconds.

    `job, unscheduled_cost, cluster_cost` have shape `[tasks]`: what waiting costs, and what a node
    without any of the task's data costs. Nodes (0 to nodes - 1) and racks (`nodes + rack`) with
    some of its data are listed in `option_vertex` at `option_cost`, from `option_offsets[t]` up to
    `option_offsets[t + 1]`.
    """

    job: AnyInts
    unscheduled_cost: AnyInts
    cluster_cost: AnyInts
    option_offsets: AnyInts
    option_vertex: AnyInts
    option_cost: AnyInts

    def __len__(self) -> int:
        return len(self.job)

    def take(self, rows: Ints) -> Tasks:
        """Return these tasks, in this order; rows may repeat."""
        offsets, options = options_of(self.option_offsets, rows)
        return Tasks(
            job=self.job[rows],
            unscheduled_cost=self.unscheduled_cost[rows],
            cluster_cost=self.cluster_cost[rows],
            option_offsets=offsets,
            option_vertex=self.option_vertex[options],
            option_cost=self.option_cost[options],
        )

    def followed_by(self, other: Tasks) -> Tasks:
        """Return these tasks and then the others."""
        joined = {
            key: np.concatenate([getattr(self, key), getattr(other, key)])
            for key in _TASKS
            if key != "option_offsets"
        }
        later = other.option_offsets[1:] + self.option_offsets[-1]
        return Tasks(option_offsets=np.concatenate([self.option_offsets, later]), **joined)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Structure:
    """One round: nodes in racks, free GPUs, tasks that wait, and tasks that will arrive later.

    `rack, free` have shape `[nodes]`; `unscheduled_capacity`, `[jobs]`, is the number of tasks
    of a job that may wait.
    """

    rack: AnyInts
    free: AnyInts
    unscheduled_capacity: AnyInts
    tasks: Tasks
    arrivals: Tasks

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.rack)

    @property
    def racks(self) -> int:
        """The number of racks."""
        return int(self.rack.max()) + 1

    @property
    def jobs(self) -> int:
        """The number of jobs."""
        return len(self.unscheduled_capacity)


def save(structure: Structure, path: Path) -> None:
    """Write a structure as `.npz`."""
    arrays = {key: getattr(structure, key) for key in _CLUSTER}
    for prefix, tasks in (("", structure.tasks), (_ARRIVAL, structure.arrivals)):
        arrays |= {f"{prefix}{key}": getattr(tasks, key) for key in _TASKS}
    np.savez(path, **arrays)


def load(path: Path) -> Structure:
    """Read a structure; without `arrival_` keys, tasks like the first ones arrive later.

    Raises SpecError, with every problem, for a file that does not exist or holds no structure.
    """
    arrays = _read(path)
    later = any(key.startswith(_ARRIVAL) for key in arrays)
    needed = [*_CLUSTER, *_TASKS, *(f"{_ARRIVAL}{key}" for key in _TASKS if later)]
    _refuse(path, _problems_of_arrays(arrays, needed), _HINT)
    tasks, arrivals = (
        Tasks(**{key: arrays[f"{prefix}{key}"] for key in _TASKS})
        for prefix in ("", _ARRIVAL if later else "")
    )
    structure = Structure(**{key: arrays[key] for key in _CLUSTER}, tasks=tasks, arrivals=arrivals)
    _refuse(path, _problems_of_cluster(structure))
    found = _problems_of_tasks(structure, tasks, "")
    if later:
        found |= _problems_of_tasks(structure, arrivals, _ARRIVAL)
    _refuse(path, found)
    return structure


def _refuse(path: Path, found: Mapping[str, str], hint: str = "") -> None:
    """Raise SpecError if anything was found."""
    if found:
        raise SpecError(
            Problem(path=f"{path}: {key}", problem=problem, hint=hint)
            for key, problem in found.items()
        )


def _problems_of_arrays(arrays: Mapping[str, NDArray[Any]], needed: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key in needed:
        array = arrays.get(key)
        if array is None:
            found[key] = "is missing"
        elif array.ndim != 1 or array.dtype.kind not in "iu":
            found[key] = f"is no list of whole numbers but {array.dtype} of shape {array.shape}"
        elif len(array) and int(array.max()) > np.iinfo(np.int64).max:
            found[key] = "holds numbers beyond those of 64 bits with a sign"
    return found


def _read(path: Path) -> Mapping[str, NDArray[Any]]:
    try:
        with path.open("rb") as raw:
            file = np.load(raw, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array")
            return {key: file[key] for key in file.files}
    except OSError as error:
        raise SpecError([Problem(path=str(path), problem=error.strerror or str(error))]) from error
    except _NO_NPZ as error:
        problem = f"is no .npz of plain arrays: {error}"
        raise SpecError([Problem(path=str(path), problem=problem, hint=_HINT)]) from error


def _problems_of_cluster(structure: Structure) -> dict[str, str]:
    found: dict[str, str] = {}
    rack, free, capacity = structure.rack, structure.free, structure.unscheduled_capacity
    if not len(rack):
        found["rack"] = "there are no nodes"
    elif rack.min() < 0 or rack.max() >= len(rack):
        node = int(np.flatnonzero((rack < 0) | (rack >= len(rack)))[0])
        found["rack"] = f"node {node} is in rack {rack[node]}, not 0 to {len(rack) - 1}"
    if len(free) != len(rack):
        found["free"] = f"has {len(free)} numbers for {len(rack)} nodes"
    elif len(free) and (free.min() < 0 or free.max() > _MOST_GPUS):
        node = int(np.flatnonzero((free < 0) | (free > _MOST_GPUS))[0])
        found["free"] = f"node {node} has {free[node]} free GPUs, not 0 to {_MOST_GPUS}"
    if len(capacity) and capacity.min() < 0:
        job = int(capacity.argmin())
        found["unscheduled_capacity"] = f"job {job} has the negative capacity {capacity[job]}"
    return found


def _problems_of_tasks(structure: Structure, tasks: Tasks, prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    count = len(tasks)
    if not count:
        return {f"{prefix}job": "there are no tasks"}
    for key in ("unscheduled_cost", "cluster_cost"):
        if len(getattr(tasks, key)) != count:
            found[f"{prefix}{key}"] = f"has {len(getattr(tasks, key))} numbers for {count} tasks"
    if tasks.job.min() < 0 or tasks.job.max() >= structure.jobs:
        task = int(np.flatnonzero((tasks.job < 0) | (tasks.job >= structure.jobs))[0])
        found[f"{prefix}job"] = f"task {task} is of job {tasks.job[task]}: {structure.jobs} jobs"
    offsets, vertex = tasks.option_offsets, tasks.option_vertex
    if len(tasks.option_cost) != len(vertex):
        found[f"{prefix}option_cost"] = (
            f"has {len(tasks.option_cost)} numbers for {len(vertex)} options"
        )
    # Compared, not subtracted: numbers without a sign would wrap around.
    if len(offsets) != count + 1 or (offsets[1:] < offsets[:-1]).any():
        found[f"{prefix}option_offsets"] = f"are not {count + 1} offsets that never fall"
    elif offsets[0] != 0 or offsets[-1] != len(vertex):
        found[f"{prefix}option_offsets"] = (
            f"run from {offsets[0]} to {offsets[-1]}, not from 0 to {len(vertex)}"
        )
    vertices = structure.nodes + structure.racks
    if len(vertex) and (vertex.min() < 0 or vertex.max() >= vertices):
        option = int(np.flatnonzero((vertex < 0) | (vertex >= vertices))[0])
        found[f"{prefix}option_vertex"] = (
            f"option {option} leads to {vertex[option]}, but nodes and racks end at {vertices - 1}"
        )
    return found
