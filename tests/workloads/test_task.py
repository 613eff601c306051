"""Lookup of a task's function by name, and the arrays it computes with."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headgate.base.errors import SpecError
from headgate.workloads import occurrence
from headgate.workloads.task import (
    TaskContext,
    array_module,
    from_numpy,
    resolve,
    to_numpy,
    unique_counts,
)


def test_resolve_returns_the_named_function() -> None:
    assert resolve("headgate.workloads.occurrence:count") is occurrence.count


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("headgate.workloads.occurrence", "not of the form"),
        (":count", "not of the form"),
        ("headgate.workloads.occurrence:", "not of the form"),
        ("no_such_package.sub:f", "no module 'no_such_package'"),
        ("headgate.workloads.nothing:f", "no module 'headgate.workloads.nothing'"),
        ("headgate.workloads.occurrence:cuont", "did you mean 'count'"),
        ("headgate.workloads.primes:LARGEST", "int, not a function"),
        (".relative:f", "importing '.relative' failed"),
        ("broken_import:f", "failed: No module named 'missing_dependency'"),
        ("broken_syntax:f", "SyntaxError"),
        ("broken_run:f", "ZeroDivisionError"),
    ],
)
def test_resolve_reports_what_is_wrong_with_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    (tmp_path / "broken_import.py").write_text("import missing_dependency")
    (tmp_path / "broken_syntax.py").write_text("def f(:")
    (tmp_path / "broken_run.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SpecError) as caught:
        resolve(name)
    (problem,) = caught.value.problems
    assert problem.path == f"run: {name}"
    assert message in str(problem)


# -------------------------------------------------------------------------------- arrays


def task(*gpus: int) -> TaskContext:
    return TaskContext(index=0, count=1, shards=(), output=Path("unused"), gpus=gpus)


class FakeTensor:
    """The part of a torch tensor that the helpers use: a copy on the host."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def cpu(self) -> FakeTensor:
        return self

    def numpy(self) -> Any:
        return self.array


def install(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = SimpleNamespace(name=name)  # type: ignore[assignment]
    for attribute, value in content.items():
        setattr(module, attribute, value)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def install_torch(monkeypatch: pytest.MonkeyPatch, *, device: bool) -> ModuleType:
    return install(
        monkeypatch,
        "torch",
        cuda=SimpleNamespace(is_available=lambda: device),
        tensor=lambda array, device: FakeTensor(array.copy()),
    )


def install_cupy(monkeypatch: pytest.MonkeyPatch, *, devices: int | None) -> ModuleType:
    """Without a driver (None) the count raises, as CuPy does."""

    class CUDARuntimeError(RuntimeError):
        pass

    def count() -> int:
        if devices is None:
            raise CUDARuntimeError
        return devices

    runtime = SimpleNamespace(getDeviceCount=count, CUDARuntimeError=CUDARuntimeError)
    return install(monkeypatch, "cupy", cuda=SimpleNamespace(runtime=runtime))


def test_a_task_without_gpus_computes_with_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    install_cupy(monkeypatch, devices=1)
    assert array_module(task()) is np


def test_cupy_comes_before_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = install_cupy(monkeypatch, devices=1)
    torch = install_torch(monkeypatch, device=True)
    assert array_module(task(3)) is cupy
    for devices in (0, None):
        install_cupy(monkeypatch, devices=devices)
        assert array_module(task(3)) is torch


def test_a_task_on_a_virtual_gpu_computes_with_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    install_cupy(monkeypatch, devices=None)
    install_torch(monkeypatch, device=False)
    assert array_module(task(0)) is np


def test_arrays_convert_to_the_module_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(3)
    assert to_numpy(from_numpy(np, array)) is array
    there = from_numpy(install_torch(monkeypatch, device=True), array)
    assert isinstance(there, FakeTensor)
    assert to_numpy(there).tolist() == [0, 1, 2]
    on_cupy = SimpleNamespace(get=lambda: array)
    assert to_numpy(on_cupy) is array


def test_unique_counts_are_sorted() -> None:
    values, counts = unique_counts(np, np.array([3, 1, 3, -2]))
    assert (values.tolist(), counts.tolist()) == ([-2, 1, 3], [1, 1, 2])
