"""The interface of a task's function: its context, its lookup by name, and its arrays."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.base.errors import Problem, SpecError, nearest

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """One run of one task: what it reads, where its result goes, and which GPUs it holds.

    `index` of `count` is the task's position in its stage. `shards` are the files to read: the
    task's shards, or for a stage that follows another the results of all its tasks, in order.
    `output` is the path of the result file that the function must write; it does not exist before.
    A result in several parts is written to `outputs` instead, one file per part. `gpus` are the
    node's GPUs that this run holds, which the process sees as devices 0, 1, ...; empty for a task
    on CPU slots. A run may be repeated, so it must change nothing but `output` and the files in
    `checkpoint`, a directory of the task's own in which earlier runs may have saved their progress;
    it is None for tasks whose job does not ask for one.
    """

    index: int
    count: int
    shards: tuple[Path, ...]
    output: Path
    params: Mapping[str, Any] = field(default_factory=dict)
    gpus: tuple[int, ...] = ()
    outputs: tuple[Path, ...] = ()
    checkpoint: Path | None = None


TaskFunction = Callable[[TaskContext], None]


def resolve(name: str) -> TaskFunction:
    """Return the function named `module:function`; SpecError reports why it cannot be loaded."""
    module_name, colon, attribute = name.partition(":")
    if not (colon and module_name and attribute):
        raise _unresolved(name, "is not of the form 'module:function'")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise _unresolved(
                name, f"there is no module '{error.name}'", "is it installed, or on PYTHONPATH?"
            ) from error
        raise _unresolved(name, f"importing '{module_name}' failed: {error}") from error
    except Exception as error:
        problem = f"importing '{module_name}' failed: {type(error).__name__}: {error}"
        raise _unresolved(name, problem) from error
    function = getattr(module, attribute, None)
    if function is None:
        known = [n for n, value in vars(module).items() if callable(value) and n[0] != "_"]
        raise _unresolved(
            name, f"module '{module_name}' has no '{attribute}'", nearest(attribute, known)
        )
    if not callable(function):
        raise _unresolved(name, f"'{attribute}' is a {type(function).__name__}, not a function")
    checked: TaskFunction = function
    return checked


def _unresolved(name: str, problem: str, hint: str = "") -> SpecError:
    return SpecError([Problem(path=f"run: {name}", problem=problem, hint=hint)])


def array_module(task: TaskContext) -> Any:
    """Return the module whose arrays the task computes with: CuPy, else torch, else NumPy.

    CuPy and torch are taken only by a task that holds a GPU, when they are installed and see a
    device. The three share the operators, `where`, `zeros_like` and `ones_like`; the helpers of
    this module cover the rest.
    """
    if task.gpus:
        for name, sees_device in (("cupy", _cupy_sees_device), ("torch", _torch_sees_device)):
            if importlib.util.find_spec(name) is None:
                continue
            module = importlib.import_module(name)
            if sees_device(module):
                _log.info("arrays: %s on GPU %s", name, task.gpus)
                return module
    _log.info("arrays: NumPy")
    return np


def _cupy_sees_device(cupy: Any) -> bool:
    try:
        return bool(cupy.cuda.runtime.getDeviceCount() > 0)
    except cupy.cuda.runtime.CUDARuntimeError:  # no driver
        return False


def _torch_sees_device(torch: Any) -> bool:
    return bool(torch.cuda.is_available())


def from_numpy(module: Any, array: NDArray[Any]) -> Any:
    """Return a NumPy array as an array of the module, on the first GPU where it has one."""
    if module is np:
        return array
    if module.__name__ == "torch":
        return module.tensor(array, device="cuda")
    return module.asarray(array)


def to_numpy(array: Any) -> NDArray[Any]:
    """Return an array of any of the three modules as a NumPy array."""
    if isinstance(array, np.ndarray):
        return array
    on_host = array.cpu().numpy() if hasattr(array, "cpu") else array.get()
    return np.asarray(on_host)


def unique_counts(module: Any, array: Any) -> tuple[Any, Any]:
    """Return the sorted distinct values of an array and how often each occurs."""
    values, counts = module.unique(array, return_counts=True)
    return values, counts
