"""Elastic jobs on Ray: they fill the cluster, give way to others, and end with their work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.live.system import Headgate

pytestmark = pytest.mark.live

EXAMPLES = Path(__file__).parents[2] / "examples"
GRACE_S, SLACK_S = 2.0, 8.0
MOST = 8
EVERY = {str(unit) for unit in range(MOST)}
POLITE = {str(unit) for unit in range(1, MOST, 2)}  # others ignore their notice
GANG = {"name": "gang", "gang": True, "tasks": {"count": 4, "run": "sleep 5"}}
SYSTEM = {"nodes": 2, "gpus": MOST // 2}
WORKER = r"""
import os, signal, sys, time
from pathlib import Path

shared, unit = Path(sys.argv[1]), os.environ["HEADGATE_INDEX"]
seen = (shared / "seen").open("a", 1)
mine = None

def leave(*_):
    seen.write(f"notice {unit}\n")
    if int(unit) % 2:
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
Path("notes").write_text("kept")
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
    """Units that are stopped save their work and exit with 0, or are killed: the job continues."""
    job = submit(headgate, pieces)
    headgate.until(lambda: set(pieces.seen("begun")) == EVERY, "all units have begun")
    gang = headgate.submit(json.dumps(GANG))
    headgate.until(lambda: pieces.seen("notice"), "units have notice")
    if killed:
        headgate.kill_controller()
        headgate.up()
    else:
        waits = headgate.client.why(gang)
        assert waits["reason"]["code"] == "SurplusEnds", waits
    headgate.running(gang, 4)
    view, tasks = headgate.client.job(job), headgate.client.tasks(job)
    assert view["elastic"] == {"min": 2, "max": MOST, "running": 4, "surplus": 2, "unneeded": 0}
    assert view["reason"].startswith("SurplusHeld(surplus: 4 of at most 8 units run; starts")
    assert view["preempted_tasks"] == 0
    stops = {str(task["ordinal"]): task["stops"][-1] for task in tasks if task["stops"]}
    assert len(stops) == 4
    for unit, stop in stops.items():
        ended = "it ended after the notice" if unit in POLITE else "it was killed 2.0 s after"
        assert stop["end"].startswith(ended)
        assert stop["lost_gpu_s"] == 0
    began = headgate.client.job(gang)["wait_s"]
    assert killed or began < GRACE_S + SLACK_S, "the grace period, and a decision"
    headgate.ends(gang)
    headgate.running(job, MOST)
    again = headgate.until(lambda: pieces.seen("begun")[MOST:], "units are back")
    assert set(again) <= {*stops}
    assert {task["failures"] for task in headgate.client.tasks(job)} == {0}
    pieces.complete()
    headgate.ends(job)
    logs = headgate.run("logs", f"{job}/{min(stops)}").stdout
    assert logs == f"unit {min(stops)} has ended\n"


def test_units_that_never_ran_are_needed_no_more_once_one_has_finished(
    headgate: Headgate, pieces: Pieces, tmp_path: Path
) -> None:
    job = submit(headgate, pieces, elastic={"min": 2, "max": MOST + 4})
    headgate.until(lambda: set(pieces.seen("begun")) == EVERY, "as many as there is room for")
    assert headgate.call("cancel", f"{job}/3", code=2)["code"] == "not_cancellable"
    pieces.complete()
    view = headgate.ends(job)
    assert (view["exit"], view["elastic"]["unneeded"]) == (0, 4)
    headgate.call("get", job, "--output", str(tmp_path / "results"))
    assert {file.name: file.read_text() for file in (tmp_path / "results").iterdir()} == {
        unit: unit for unit in EVERY
    }
    headgate.call("get", job, "--files", str(tmp_path / "files"))
    assert len([*(tmp_path / "files").rglob("notes")]) == MOST
    assert headgate.call("logs", f"{job}/{MOST}", code=101)["code"] == "not_finished"


def test_a_unit_that_fails_is_run_again_and_the_others_continue(
    headgate: Headgate, pieces: Pieces, tmp_path: Path
) -> None:
    fails = f"[ $HEADGATE_INDEX != 1 ] || ! mkdir {tmp_path}/failed || exit 3"
    run = f"{fails}; python {pieces.worker} {pieces.folder}"
    job = submit(headgate, pieces, run=run, elastic={"min": 2, "max": 4, "retries": 1})
    headgate.until(
        lambda: set(pieces.seen("begun")) == {"0", "1", "2", "3"}, "all units have begun"
    )
    assert [task["failures"] for task in headgate.client.tasks(job)] == [0, 1, 0, 0]
    assert [task["attempts"] for task in headgate.client.tasks(job)] == [1, 2, 1, 1]
    pieces.complete()
    headgate.ends(job)


def test_the_example_counts_the_words_of_all_files(headgate: Headgate, tmp_path: Path) -> None:
    """Some of its workers are stopped while they have a file."""
    for name in ("elastic.yaml", "elastic_worker.py"):
        text = (EXAMPLES / name).read_text().replace("/shared/words", str(tmp_path))
        (tmp_path / name).write_text(text)
    (tmp_path / "texts").mkdir()
    for number in range(60):
        (tmp_path / "texts" / f"{number}").write_text("word " * number)
    job = headgate.call("submit", str(tmp_path / "elastic.yaml"))["id"]
    headgate.until(lambda: headgate.client.job(job)["elastic"]["surplus"], "surplus runs")
    cpus = sum(node["cpus"] for node in headgate.client.nodes())
    tasks = {"count": int(cpus) - 2, "run": "true", "resources": {"gpus": 0}}
    headgate.ends(headgate.submit(json.dumps({"name": "gang", "gang": True, "tasks": tasks})))
    headgate.ends(job)
    counts = {int(file.name): int(file.read_text()) for file in (tmp_path / "counts").iterdir()}
    assert counts == {number: number for number in range(60)}
    assert any(task["stops"] for task in headgate.client.tasks(job))
