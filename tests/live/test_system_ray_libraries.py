"""Ray's libraries in Ray programs: the examples, on two nodes with a GPU each.

HEADGATE_TEST_RAY_LIBRARIES names the directory of the programs of a Python with what the libraries
need: `make test-ray`.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import psutil
import pytest
from tests.live.system import Headgate

PROGRAMS = os.environ.get("HEADGATE_TEST_RAY_LIBRARIES")
pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(600),
    pytest.mark.skipif(PROGRAMS is None, reason="needs Ray's libraries: make test-ray"),
]
EXAMPLES = Path(__file__).parents[2] / "examples"
MARK = re.compile("/tmp/hgr-[0-9a-f]{8}")  # the files of a Ray program's own cluster
PRINTED = {
    "ray_program.py": ["8 trials on 2 GPUs", "GPU 0 of n0", "GPU 0 of n1", "best rate: 0.5"],
    "ray/data_pipeline.py": [f"station {n}: {50.9 + 1.8 * n:.2f} F" for n in range(5)],
    "ray/tune_search.py": ["8 trials, 0 errors", "best: rate 0.3, momentum 0.0"],
    "ray/train_loop.py": [
        "rank 0 of 2 on GPU 0",
        "rank 1 of 2 on GPU 0",
        "weights: [0.0, 1.0, 2.0, 3.0]",
    ],
    "ray/process_pool.py": ["5133 primes below 50,000; powers [1024, 243]"],
}


SYSTEM = {"nodes": 2, "gpus": 1}


@pytest.mark.parametrize("program", PRINTED)
def test_library_runs_in_a_grant_and_leaves_nothing(
    headgate: Headgate, tmp_path: Path, program: str
) -> None:
    before = remains()
    log = run(headgate, EXAMPLES / program, str(tmp_path))
    assert [line for line in PRINTED[program] if line not in log] == [], log
    assert "headgate: " not in log, log  # detached actors of the libraries are not the user's
    headgate.until(lambda: remains() <= before, "nothing of it is left")


def run(headgate: Headgate, script: Path, *args: str) -> str:
    """Run a Ray program on both nodes, until it has finished, and return its log."""
    envs = {"PATH": f"{PROGRAMS}:/usr/bin:/bin"}
    ray = {"script": str(script), "args": args, "resources": {"gpus": 2, "cpus": 4}, "retries": 0}
    job = headgate.submit(json.dumps({"name": script.stem, "ray": ray, "envs": envs}))
    try:
        headgate.until(
            lambda: headgate.client.job(job)["state"] in {"finished", "failed"}, "it ends", 240.0
        )
        headgate.ends(job)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{log_of(headgate, job)}") from error
    return log_of(headgate, job)


def log_of(headgate: Headgate, job: str) -> str:
    """Return the log of a Ray program."""
    text, offset = "", 0
    while piece := headgate.client.log(job, 0, attempt=None, offset=offset):
        if not piece["text"]:
            return text
        text, offset = text + piece["text"], piece["next_offset"]
    return text


def remains() -> set[str]:
    """Return the directories of Ray programs' own clusters that exist, or that a process uses."""
    found = {str(path) for path in Path("/tmp").glob("hgr-*") if MARK.fullmatch(str(path))}
    for process in psutil.process_iter():
        try:
            text = " ".join([*process.cmdline(), *process.environ().values()])
        except (OSError, psutil.Error):
            continue
        found.update(MARK.findall(text))
    return found
