"""A training job on Ray changes its width 1 -> 4 -> 2 and ends with the right answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.live.system import Headgate

pytestmark = pytest.mark.live

SYSTEM = {"nodes": 2, "gpus": 2}
STEPS = 2500
PROGRAM = r"""
import os, signal, sys, time
from pathlib import Path

shared, steps = Path(sys.argv[1]), int(sys.argv[2])
rank, width = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
assert os.environ["MASTER_ADDR"] and os.environ["MASTER_PORT"]
assert len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) == 1
state, notice = shared / "checkpoint", []
signal.signal(signal.SIGTERM, lambda *_: notice.append(1))
step, total = map(int, state.read_text().split()) if state.exists() else (0, 0)
if rank == 0:
    with (shared / "widths").open("a", 1) as seen:
        seen.write(f"{width} {step}\n")
while not notice and step < steps:
    if rank == 0:
        for _ in range(width):  # each process would do one of them
            total, step = total + step, step + 1
    else:
        step = steps if (shared / "answer").exists() else step
    time.sleep(0.05)
if rank == 0:
    state.with_suffix(".new").write_text(f"{step} {total}")
    state.with_suffix(".new").rename(state)
    if step >= steps:
        (shared / "answer").write_text(str(sum(range(step)) - total))
sys.exit(1 if notice and step < steps else 0)
"""


def widths(shared: Path) -> list[int]:
    file = shared / "widths"
    return [int(line.split()[0]) for line in file.read_text().splitlines()] if file.exists() else []


def test_job_resumes_with_each_new_width_from_its_own_checkpoint(
    headgate: Headgate, tmp_path: Path
) -> None:
    """It grows when others have ended, and gives way when they come."""
    tmp_path.chmod(0o777)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    gang = {"gang": True, "grace": "2s"}
    three = {"name": "three", **gang, "tasks": {"count": 3, "run": "sleep 5"}}
    job = {
        "name": "trains",
        "run": f"python3 {program} {tmp_path} {STEPS}",
        "work": STEPS,
        "throughput": {1: 20, 2: 38, 4: 70},
        "elastic": {"gpus": [1, 2, 4], "restart": "1s", "retries": 3},
        "deadline": "1h",
        "grace": "10s",
    }
    before = headgate.submit(json.dumps(three))
    headgate.running(before, 3)
    trains = headgate.submit(json.dumps(job))
    headgate.until(lambda: widths(tmp_path) == [1], "it starts with one GPU")
    headgate.ends(before)
    headgate.until(lambda: widths(tmp_path) == [1, 4], "it grows", patience_s=120)
    two = {"name": "two", **gang, "tasks": {"count": 2, "run": "sleep 5"}}
    after = headgate.submit(json.dumps(two))
    headgate.until(lambda: widths(tmp_path) == [1, 4, 2], "it gives way")
    headgate.ends(after)
    headgate.until((tmp_path / "answer").exists, "it ends", patience_s=180)
    headgate.ends(trains)
    assert (tmp_path / "answer").read_text() == "0"
    steps = [int(line.split()[1]) for line in (tmp_path / "widths").read_text().splitlines()]
    assert steps == sorted(set(steps)), "each width begins where the last one has stopped"
