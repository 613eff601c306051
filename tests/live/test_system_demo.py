"""The demo: it runs, its figures are right, jobs that waited have reasons, nothing remains."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.live
FEW_NODES = """
from headgate.cli.main import main
from headgate.cli.simulate import demo
demo._NODES = 4  # instead of 8, which say no more
main()
"""


def marked(mark: str) -> list[psutil.Process]:
    """Return the processes that carry a setting in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if mark in process.environ().get("HEADGATE_DEMO_TEST", ""):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for temporary files, with a path that leaves room for a socket's."""
    with tempfile.TemporaryDirectory(prefix="hg-", dir="/tmp") as name:
        yield Path(name)


def test_jobs_of_three_users_share_a_cluster_and_the_simulator_agrees(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FEW_NODES, "demo", "-o", "json"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "TMPDIR": str(folder), "HEADGATE_DEMO_TEST": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [job["job"] for job in report["jobs"]] == [
        "occurrence-1",
        "search-2",
        "train-3",
        "primes-4",
        "matmul-5",
        "errors-6",
    ]
    for job in report["jobs"]:
        assert job["verdict"] == "", job
        assert (sum(job["read_bytes"]) > 0) == (job["job"] not in ("search-2", "train-3"))
        assert job["run_s"] > 0
        assert job["fairness"] > 0
    train = report["jobs"][2]
    assert train["what"].startswith("a gang")
    short = r"\d of 8 needed GPUs are free|of 4 tasks( with 2 GPUs)? fit now"
    assert re.search(short, train["why"]), "the first job holds the GPUs when the gang arrives"
    assert train["why_after_s"] > 0
    assert train["expected"]
    # a simulated task may find another GPU free; what is read in all is the same, apart from what
    # runs had read that were preempted for the gang
    simulated = sum(report["simulated"]["bytes"].values())
    assert sum(report["bytes"].values()) == pytest.approx(simulated, rel=0.3)
    assert report["bytes"]["node"] > report["bytes"]["cluster"]
    assert list(folder.iterdir()) == []
    assert marked(str(folder)) == []
