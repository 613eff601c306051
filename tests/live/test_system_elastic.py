"""Elastic jobs on Ray: they fill the cluster, give way to others, and end with their work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.live.system import Headgate

pytestmark = pytest.mark.live

GRACE_S = 2.0
MOST = 8
SYSTEM = {"nodes": 2, "gpus": MOST // 2}
WORKER = r"""
import os, signal, sys, time
from pathlib import Path

shared, unit = Path(sys.argv[1]), os.environ["HEADGATE_INDEX"]
seen = (shared / "seen").open("a", 1)
running, mine = True, None

def leave(*_):
    seen.write(f"notice {unit}\n")
    if int(unit) % 2:  # the others ignore it
        if mine is not None:
            mine.rename(shared / "todo" / mine.name.split("-")[0])
        raise SystemExit

def take():
    for piece in sorted((shared / "todo").iterdir()):
        try:
            return piece.rename(shared / "taken" / f"{piece.name}-{unit}")
        except FileNotFoundError:
            continue

signal.signal(signal.SIGTERM, leave)
seen.write(f"begun {unit} {os.environ['GIVEN']}\n")
while not (shared / "complete").exists():
    mine = take()
    time.sleep(0.2)
    if mine is not None:
        mine.rename(shared / "done" / mine.name)
print(f"unit {unit} has ended")
Path(os.environ["HEADGATE_OUTPUT"]).write_text(unit)
"""


class Pieces:
    """Pieces of work in a directory, which units take until the work is complete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("todo", "taken", "done"):
            (folder / name).mkdir()
        for piece in range(100):
            (folder / "todo" / f"{piece:03}").touch()
        self.worker = folder / "worker.py"
        self.worker.write_text(WORKER)

    def seen(self, word: str) -> list[str]:
        """Return the units that have written a line of this word, in order, each time."""
        file = self.folder / "seen"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.split()[1] for line in lines if line.split()[0] == word]

    def complete(self) -> None:
        """Let the units end."""
        (self.folder / "complete").touch()


def submit(headgate: Headgate, pieces: Pieces, **options: Any) -> str:
    file = {
        "name": "work",
        "run": f"python {pieces.worker} {pieces.folder}",
        "elastic": {"min": 2, "max": MOST},
        "envs": {"GIVEN": "given"},
        "grace": f"{GRACE_S:g}s",
        **options,
    }
    return headgate.submit(json.dumps(file))


@pytest.fixture
def pieces(tmp_path: Path) -> Pieces:
    """The work of a job."""
    return Pieces(tmp_path)


@pytest.mark.parametrize("killed", [False, True], ids=["", "the controller is killed"])
def test_surplus_gives_way_to_a_gang_and_returns_when_that_has_ended(
    headgate: Headgate, pieces: Pieces, killed: bool
) -> None:
    job = submit(headgate, pieces)
    every = {str(unit) for unit in range(MOST)}
    headgate.until(lambda: set(pieces.seen("begun")) == every, "all units have begun")
    gang = headgate.submit(
        json.dumps({"name": "gang", "tasks": {"count": 4, "run": "sleep 3"}, "gang": True})
    )
    if killed:
        headgate.until(lambda: pieces.seen("notice"), "units have notice")
        headgate.kill_controller()
        headgate.up()
    headgate.running(gang, 4)
    assert len(headgate.tasks_in(job, "running")) == MOST - 4
    headgate.ends(gang)
    headgate.running(job, MOST)
    tasks = headgate.client.tasks(job)
    print(json.dumps(headgate.client.job(job), indent=1))
    print(headgate.run("get", job).stdout)
    print(headgate.run("jobs").stdout)
    print(headgate.run("why", job).stdout)
    assert [task["failures"] for task in tasks] == [0] * MOST
    stops = [stop for task in tasks for stop in task["stops"]]
    print(stops)
    assert len(stops) == 4
    assert {stop["lost_gpu_s"] for stop in stops} == {0}
    pieces.complete()
    headgate.ends(job)
    print(headgate.run("logs", job).stdout)


def test_units_that_never_ran_are_needed_no_more_once_one_has_finished(
    headgate: Headgate, pieces: Pieces
) -> None:
    job = submit(headgate, pieces, elastic={"min": 2, "max": MOST + 4})
    headgate.running(job, MOST)
    pieces.complete()
    headgate.ends(job)
    print(json.dumps(headgate.call("get", job), indent=1))
    print(headgate.run("get", job).stdout)
    print(headgate.run("jobs").stdout)
    print(headgate.run("logs", job))
    print(headgate.run("logs", f"{job}/11"))
    print(headgate.run("get", job, "--output", str(pieces.folder / "results")))
    print(sorted((pieces.folder / "results").iterdir()))
    print(headgate.run("get", job, "--task=11", "--output", str(pieces.folder / "r11")))
    print(headgate.run("why", job).stdout)
