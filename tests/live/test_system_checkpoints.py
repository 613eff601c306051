"""A preempted task continues from its checkpoint, and its lost time is counted."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from tests.live.system import Headgate

from headgate.engine import Engine
from headgate.journal import Journal
from headgate.model import RunId
from headgate.protocol import LaunchTask, TaskStarted, TaskStopped

pytestmark = pytest.mark.live
EVERY_S = 0.2
COUNTER = """
import os, time
from pathlib import Path

def count(task):
    saved = task.checkpoint / "count"
    done = int(saved.read_text()) if saved.exists() else 0
    with Path(task.params["trace"]).open("a") as trace:
        trace.write(f"{task.index} {done}\\n")
    while not Path(task.params["gate"]).exists():
        time.sleep(0.05)
        done += 1
        (task.checkpoint / "new").write_text(str(done))
        os.replace(task.checkpoint / "new", saved)
    task.output.write_text(str(done))
"""


SYSTEM = {"nodes": 2, "gpus": 1, "up": ("--policy=fsp",)}


def _replayed(
    headgate: Headgate, job: str, copy: Path
) -> tuple[Engine, list[LaunchTask], dict[str, float]]:
    """Return from the journal: an engine, all launches, and the times of a job's preempted run.

    Read from a copy, since the controller holds it.
    """
    copy.mkdir()
    for file in headgate.state.glob("journal.db*"):
        shutil.copy(file, copy)
    journal, engine = Journal.open(copy / "journal.db"), Engine()
    launches: list[LaunchTask] = []
    at: dict[RunId, list[float]] = {}
    cut: dict[str, float] = {}
    for _, batch in journal.batches():
        for event in batch:
            if not isinstance(event, TaskStarted | TaskStopped) or event.run.job != job:
                continue
            if isinstance(event, TaskStarted):
                at[event.run].append(event.at)
            else:
                launched_at, started_at = at[event.run]
                cut["held_s"] = event.at - launched_at
                cut["computed_s"] = event.at - started_at - event.usage.read_s
        new = [c for c in engine.handle(*batch) if isinstance(c, LaunchTask)]
        launches += new
        at.update({launch.run: [engine.state.now] for launch in new})
    journal.close()
    return engine, launches, cut


def test_preempted_task_continues_from_its_checkpoint(headgate: Headgate, tmp_path: Path) -> None:
    shared, gate, trace = (tmp_path / name for name in ("shared", "gate", "trace"))
    shared.mkdir()
    (tmp_path / "counter.py").write_text(COUNTER)
    tasks = {
        "count": 2,
        "run": "counter:count",
        "params": {"gate": str(gate), "trace": str(trace)},
        "checkpoint": {"every_s": EVERY_S, "path": str(shared)},
    }
    envs = {"PYTHONPATH": str(tmp_path)}
    early = headgate.submit(json.dumps({"name": "early", "tasks": tasks, "envs": envs}))
    saved = [shared / f"{early}.{n}" / "count" for n in range(2)]
    headgate.until(
        lambda: all(file.exists() and int(file.read_text()) >= 20 for file in saved),
        "both tasks have saved something",
    )
    late = headgate.submit(
        json.dumps(
            {
                "name": "late",
                "tasks": {
                    "count": 1,
                    "run": 'echo "$HEADGATE_CHECKPOINT" > {output}; ls "$HEADGATE_CHECKPOINT"',
                    "checkpoint": {"every_s": 60, "path": str(shared)},
                },
            }
        )
    )
    headgate.ends(late)  # early has held both GPUs: one was taken from it
    assert headgate.result(late) == f"{shared}/{late}.0\n".encode()
    headgate.running(early, 2)
    headgate.until(lambda: len(trace.read_text().splitlines()) == 3, "the third run has begun")
    gate.touch()
    headgate.ends(early)
    runs = [[int(word) for word in line.split()] for line in trace.read_text().splitlines()]
    assert [done for _, done in runs[:2]] == [0, 0]
    again, done = runs[2]
    assert done >= 20, "it continued from its checkpoint"
    assert int(headgate.result(early, again)) >= done
    assert list(shared.iterdir()) == [], "who has finished needs no checkpoint"

    engine, launches, cut = _replayed(headgate, early, tmp_path / "copy")
    kept_s = math.floor(cut["computed_s"] / EVERY_S + 1e-9) * EVERY_S
    assert kept_s > 0
    row = engine.state.names.job_rows[early]
    assert engine.state.jobs.lost_gpu_s[row] == pytest.approx(cut["held_s"] - kept_s)
    progress = [c.progress_s for c in launches if c.run[:2] == (early, again)]
    assert progress == [0, pytest.approx(kept_s)]


def test_task_without_its_checkpoint_directory_fails_with_a_message(
    headgate: Headgate, tmp_path: Path
) -> None:
    checkpoint = {"every_s": 1, "path": str(tmp_path / "absent")}
    tasks = {"count": 1, "run": "true", "retries": 0, "checkpoint": checkpoint}
    view = headgate.ends(headgate.submit(json.dumps({"tasks": tasks})), "failed")
    assert "its checkpoint directory cannot be used" in json.dumps(view)
    assert not (tmp_path / "absent").exists()
