"""Every test on real Ray nodes is run by a target of the Makefile, in one place."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIVE = re.compile(r"^(pytestmark = \[?|@|\s+)pytest\.mark\.live\b", re.MULTILINE)
TARGETS = ("test", "test-experiments", "test-torch", "test-ray")


def _printed(*targets: str) -> list[str]:
    """Return the words of the command lines that `make` would run."""
    assert shutil.which("make")
    done = subprocess.run(
        ["make", "--no-print-directory", "-n", *targets],
        capture_output=True,
        check=True,
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        text=True,
    )
    lines = [
        line for line in done.stdout.replace("\\\n", " ").splitlines() if "pytest -m live" in line
    ]
    return [word for line in lines for word in line.split() if word.endswith(".py")]


def test_each_file_of_live_tests_is_run_by_a_target() -> None:
    files = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    live = {file for file in files if LIVE.search((ROOT / file).read_text())}
    assert live <= set(_printed(*TARGETS))


def test_no_file_of_live_tests_is_run_twice_by_make_test() -> None:
    files = _printed("test")
    assert len(files) == len(set(files))
