"""Up and down: which process is ours, what a failure leaves, and a real life from up to down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headgate.base.errors import SpecError, WorldError
from headgate.cli import process
from headgate.cli.lifecycle import load_queues
from headgate.live.config import ControllerConfig, load_config, save_config
from headgate.model import Queue

DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[Any]:
    """Start processes whose command lines are those of controllers."""
    (tmp_path / "headgate").mkdir()
    (tmp_path / "headgate" / "__init__.py").touch()
    (tmp_path / "headgate" / "app.py").write_text(DEAF)
    # An editable install finds its package before PYTHONPATH is looked at.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "sys.meta_path = [f for f in sys.meta_path if 'editable' not in type(f).__module__]\n"
    )
    started = []

    def start(state: Path) -> int:
        command = [sys.executable, "-m", "headgate.app", "controller", "--state", str(state)]
        child = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, stdout=subprocess.PIPE
        )
        started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"deaf\n"
        return child.pid

    yield start
    for child in started:
        child.kill()
        child.communicate()


def test_only_the_controllers_of_a_directory_are_ended(
    stand_in: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = stand_in(tmp_path / "mine"), stand_in(tmp_path / "mine-too")
    assert [p.pid for p in process.controllers(tmp_path / "mine")] == [mine]
    monkeypatch.setattr(process, "_END_S", 0.2)
    assert process.end_controllers(tmp_path / "mine") == 1
    assert process.controllers(tmp_path / "mine") == []
    assert psutil.pid_exists(other)
    assert process.end_controllers(tmp_path / "mine") == 0


def test_two_never_work_on_one_directory(tmp_path: Path) -> None:
    first = process.alone(tmp_path)
    with first, pytest.raises(WorldError, match="at work here"), process.alone(tmp_path):
        pass
    with process.alone(tmp_path):
        pass


def test_nothing_is_down_already(headgate: Any, tmp_path: Path) -> None:
    said = headgate("down", "--state", str(tmp_path / "none"), "-o", "json")
    assert said.code == 0
    assert (said.json["controllers"], said.json["nodes"]) == (0, 0)
    assert not (tmp_path / "none").exists()


def test_up_finds_a_healthy_one(up: Any, state: Path) -> None:
    said = up("up", "-o", "json")
    assert said.code == 0
    assert said.json == {
        "state": str(state), "pid": os.getpid(), "policy": "fifo", "nodes": 2,
        "already_running": True,
    }  # fmt: skip


def test_up_and_down_look_before_they_touch(up: Any, headgate: Any, state: Path) -> None:
    said = headgate("up", "--queues", "no-such-file", "--state", str(state), "-o", "json")
    assert (said.code, said.error["problems"][0]["path"]) == (2, "no-such-file")
    said = headgate("up", "--group", "no-such-group-here", "--state", str(state / "new"))
    assert (said.code, "no group" in said.err) == (2, True)


def test_a_configuration_comes_back_as_it_was(tmp_path: Path) -> None:
    assert load_config(tmp_path) is None
    config = ControllerConfig(
        policy="fs",
        ray_address="127.0.0.1:6379",
        parameters={"omega": 1.5},
        seed=3,
        queues=(Queue(name="team", weight=2.0, max_gpus=4),),
        foreign=True,
    )
    save_config(tmp_path, config)
    assert load_config(tmp_path) == config
    (tmp_path / "config.json").write_text('{"policy": "fs"')
    with pytest.raises(WorldError, match="cannot be read"):
        load_config(tmp_path)


def test_queues_are_read_with_every_problem(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("queues:\n- {name: a, weight: 2}\n- {name: b, max_gpus: 3}\n")
    assert load_queues(file) == (Queue(name="a", weight=2.0), Queue(name="b", max_gpus=3))
    file.write_text("queues:\n- {name: a, wait: 2}\n- {name: a, weight: -1}\nother: 1\n")
    with pytest.raises(SpecError) as wrong:
        load_queues(file)
    assert [p.path for p in wrong.value.problems] == [
        "queues[0].wait", "queues[1].name", "queues[1].weight", "other",
    ]  # fmt: skip
    file.write_text("queues: []\n")
    with pytest.raises(SpecError, match="must be a list"):
        load_queues(file)


def environments_with(text: bytes) -> list[int]:
    """Return the processes that were started under a state directory of this test."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if text in (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


@pytest.mark.live
def test_a_life_from_up_through_a_crash_to_down(headgate: Any, state: Path, job_file: Any) -> None:
    there = ("--state", str(state), "-o", "json")
    first = headgate("up", "--nodes", "2", "--gpus", "1", "--policy", "fifo", *there)
    assert (first.code, first.json["nodes"], first.json["policy"]) == (0, 2, "fifo"), first.err
    try:
        run = "sleep 4; echo done > {output}"
        job = headgate("submit", job_file(f"{{run: '{run}'}}"), *there).json["id"]
        os.kill(first.json["pid"], signal.SIGKILL)
        while psutil.pid_exists(first.json["pid"]):
            os.waitpid(first.json["pid"], 0)  # it is a child of this process
        assert headgate("jobs", *there).error["code"] == "unreachable"
        again = headgate("up", *there)
        assert again.json["pid"] != first.json["pid"]
        assert (again.json["policy"], again.json["already_running"]) == ("fifo", False)
        end = time.monotonic() + 60
        while headgate("get", job, *there).json["state"] == "active" and time.monotonic() < end:
            time.sleep(0.3)
        assert headgate("get", job, *there).json["task_list"][0]["attempts"] == 1
        target = state / "result"
        assert headgate("get", job, "--output", str(target), *there).code == 0
        assert target.read_text() == "done\n"
    finally:
        ended = headgate("down", "-y", *there)
    assert ended.code == 0, ended.err
    assert environments_with(os.fsencode(state)) == []
    assert headgate("down", *there).json["controllers"] == 0
