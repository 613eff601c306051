"""The faults that are planted in the source: all apply, and near tests are those to find them."""

from __future__ import annotations

import ast
import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headgate"


@pytest.fixture(scope="module")
def faults() -> Any:
    """Return the script as a module."""
    spec = spec_from_file_location("planted_faults", ROOT / "fuzz" / "planted_faults.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_of_the_40_faults_applies_once(faults: Any) -> None:
    counts = {
        (fault.module, fault.old): (PACKAGE / fault.module).read_text().count(fault.old)
        for fault in faults.FAULTS
    }
    assert {key: count for key, count in counts.items() if count != 1} == {}
    assert len({(fault.module, fault.breaks) for fault in faults.FAULTS}) == 40


def test_each_fault_changes_the_program_and_leaves_it_readable(faults: Any) -> None:
    for fault in faults.FAULTS:
        source = (PACKAGE / fault.module).read_text()
        trees = (ast.parse(source), ast.parse(faults.planted(fault, source)))
        assert ast.dump(trees[0]) != ast.dump(trees[1]), fault


def test_fault_whose_text_does_not_occur_once_no_longer_applies(faults: Any) -> None:
    fault = faults.Fault("any.py", "a < b", "a > b", "order")
    assert faults.planted(fault, "if a < b:") == "if a > b:"
    assert faults.planted(fault, "if a <= b:") is None
    assert faults.planted(fault, "a < b or a < b") is None


def _project(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_near_tests_are_found_by_name_by_folder_and_by_imports(faults: Any, tmp_path: Path) -> None:
    files = {
        "src/headgate/plan/__init__.py": "from headgate.plan.limits import Limit",
        "src/headgate/plan/limits.py": "",
        "src/headgate/plan/inner.py": "",
        "src/headgate/plan/outer.py": "from headgate.plan.inner import x",
        "tests/plan/test_limits.py": "",
        "tests/plan/test_a.py": "",
        "tests/a/test_face.py": "from headgate.plan import Limit",
        "tests/a/helper.py": "from headgate.plan.outer import y",
        "tests/a/test_helped.py": "from tests.a.helper import z",
        "tests/a/test_live.py": "from headgate.plan import Limit\npytestmark = pytest.mark.live",
        "tests/a/test_other.py": "import os",
    }
    near = faults.Imports(_project(tmp_path, files)).near
    folder = ["tests/plan/test_a.py", "tests/plan/test_limits.py"]
    assert near("plan/limits.py") == [*reversed(folder), "tests/a/test_face.py"]
    assert near("plan/inner.py") == [*folder, "tests/a/test_helped.py"]


def test_fault_that_is_no_longer_found_is_reported(
    faults: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def compared(*outcomes: tuple[str, ...]) -> tuple[int, list[str]]:
        paths = [tmp_path / "before", tmp_path / "after"]
        for path, each in zip(paths, outcomes, strict=True):
            entries = [
                {"module": "a.py", "breaks": f"fault {number}", "outcome": outcome}
                for number, outcome in enumerate(each, start=1)
            ]
            path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        monkeypatch.setattr(sys, "argv", ["planted_faults.py", "compare", *map(str, paths)])
        return faults.main(), capsys.readouterr().out.splitlines()

    assert compared(("found", "missed"), ("found", "found")) == (
        0,
        ["a.py: fault 2: missed, then found", "0 of 1 found before are no longer found"],
    )
    assert compared(("found", "found", "missed"), ("missed",)) == (
        1,
        [
            "a.py: fault 1: found, then missed",
            "a.py: fault 2: found, then not tried",
            "a.py: fault 3: missed, then not tried",
            "2 of 2 found before are no longer found",
        ],
    )
