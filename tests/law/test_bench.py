"""The law of benchmarks: every script in `bench/` can be imported, so `make bench` starts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
_IMPORT = "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_path(sys.argv[2])"


@pytest.mark.parametrize("name", sorted(path.name for path in BENCH.glob("[!_]*.py")))
def test_script_can_be_imported(name: str) -> None:
    """All names that it imports exist; what it does from there on, `make bench` shows."""
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT, str(BENCH), str(BENCH / name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
