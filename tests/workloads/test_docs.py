"""The examples of docs/workloads.md work exactly as written."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.workloads.pipeline import run_stage

from headgate.workloads.task import TaskContext, resolve

PAGE = Path(__file__).parents[2] / "docs" / "workloads.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def block(mark: str) -> str:
    (found,) = [text for text in BLOCKS if mark in text]
    return str(found)


def test_docs_list_every_field_of_task_context() -> None:
    table = re.search(r"\| field \|.*?\n\n", PAGE.read_text(), re.DOTALL)
    assert table is not None
    names = re.findall(r"`(\w+)`", "".join(re.findall(r"^\|[^|]*\|", table[0], re.MULTILINE)))
    assert tuple(names) == tuple(TaskContext.__dataclass_fields__)


def test_every_function_named_in_docs_exists() -> None:
    names = re.findall(r"headgate\.workloads\.\w+:\w+", PAGE.read_text())
    assert len(set(names)) == 16
    for name in names:
        resolve(name)


def test_documented_custom_workload_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "byte_counts.py").write_text(block("def merge"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(block("resolve("), {})
    table = np.load("result")
    assert {chr(b): int(n) for b, n in enumerate(table) if n} == {
        "t": 2, "o": 1, " ": 1, "r": 1, "y": 1,
    }  # fmt: skip
    (merged,) = run_stage(resolve("byte_counts:merge"), [[Path("result")] * 3], tmp_path)
    assert np.load(merged).tolist() == (3 * table).tolist()


def test_documented_generation_and_verification_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = block("verify(").replace("64 << 20", "64 << 10")
    put, check = text.split("# ...", 1)
    names: dict[str, object] = {}
    exec(put, names)
    params = {"dtype": "int64"}
    partial = run_stage(
        resolve("headgate.workloads.primes:find"),
        [[tmp_path / "primes-ints.bin"]],
        tmp_path,
        params,
    )
    (result,) = run_stage(resolve("headgate.workloads.primes:merge"), [partial], tmp_path)
    result.rename("result")
    exec(check.split("\n", 1)[1], names)
    assert capsys.readouterr().out.endswith("right\n")
