"""What ran, when and where: `get`, its results, and the output of all tasks."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.program import ME

from headgate.protocol import FailureKind, TaskFailed, Usage


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone of the user, an hour ahead of UTC in winter."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_get_shows_a_job_and_its_tasks(up: Any, pair: str, controller: Any, berlin: None) -> None:
    controller.end(pair, 0, b"", after_s=2.0)
    assert up("get", pair).out == (
        "Job: job-1 (pair)\n"
        "Command: true\n"
        f"User: {ME}\n"
        "Queue: default, priority 0\n"
        "State: RUNNING\n"
        "Tasks: 2 (1 RUNNING, 1 COMPLETED)\n"
        "GPUs: 1 allocated (peak 2)\n"
        "Nodes: n0 (GPUs 0, 1)\n"
        "Submitted: 1970-01-12 at 14:46:40 CET\n"
        "Started: 1970-01-12 at 14:46:40 CET\n"
        "Waited: 0.0 s\n"
        "Ran: 2.0 s\n"
        "Log: /nodes/n0/logs/job-1/0.1.log on n0, and 1 more (-o json lists all)\n"
        "\n"
        "TASK  STATE      NODE  GPU IDS  RUNS  FAILURES  RAN\n"
        "   0  COMPLETED  n0          0     1         0  2.0 s\n"
        "   1  RUNNING    n0          1     1         0  -\n"
    )
    view = up("get", pair, "-o", "json").json
    assert [task["state"] for task in view["task_list"]] == ["finished", "running"]
    assert up("get", pair, "--task", "7", "-o", "json").error["code"] == "not_found"


def test_get_shows_where_an_ended_job_ran_and_how_it_ended(
    up: Any, pair: str, controller: Any
) -> None:
    controller.end(pair, 0, b"")
    run = controller.launches[pair, 1].run
    usage = Usage(exit_status=-signal.SIGKILL)
    kind = FailureKind.ERROR
    controller.handle(TaskFailed(at=2e6, run=run, kind=kind, message="killed", usage=usage))

    def shown() -> list[Any]:
        view = up("get", pair, "-o", "json").json
        tasks = [[t["node"], t["gpus"], t["exit"], t["log"]] for t in view["task_list"]]
        return [*(view[key] for key in ("command", "nodes", "gpus", "exit", "ended_at")), *tasks]

    before = shown()
    gpus = {"held": 0, "peak": 2, "by_node": {"n0": [0, 1]}}
    assert before == [
        *("true", ["n0"], gpus, "SIGKILL", 2e6),
        ["n0", [0], 0, "/nodes/n0/logs/job-1/0.1.log"],
        ["n0", [1], "SIGKILL", "/nodes/n0/logs/job-1/1.1.log"],
    ]
    assert "Exit: SIGKILL\n" in up("get", pair).out
    controller.move_to_archive(pair)
    assert shown() == before


def test_results_of_all_tasks_are_written_into_a_directory(
    up: Any, pair: str, controller: Any, tmp_path: Path
) -> None:
    to = tmp_path / "new" / "results"
    controller.end(pair, 0, b"first")
    early = up("get", pair, "--output", f"{to}/")
    assert (early.code, "task 1 has no result" in early.err) == (101, True)
    assert [(p.name, p.read_bytes()) for p in to.iterdir()] == [("0", b"first")]
    controller.end(pair, 1, b"second")
    assert up("get", pair, "--output", str(to), "-o", "json").json == {
        "job": pair, "output": str(to), "results": 2, "size_bytes": 11,
    }  # fmt: skip
    assert {p.name: p.read_bytes() for p in to.iterdir()} == {"0": b"first", "1": b"second"}


def test_output_for_an_array_is_a_directory(
    up: Any, pair: str, job_file: Any, controller: Any, tmp_path: Path
) -> None:
    """One that does not exist is made; a file is for the one result of other jobs, or `--task`."""
    controller.end(pair, 0, b"first")
    controller.end(pair, 1, b"second")
    to, file = tmp_path / "results", tmp_path / "file"
    assert up("get", pair, "--output", str(to)).code == 0
    assert {p.name: p.read_bytes() for p in to.iterdir()} == {"0": b"first", "1": b"second"}
    file.write_text("mine")
    refused = up("get", pair, "--output", str(file), "-o", "json")
    assert (refused.code, refused.error["problems"][0]["hint"]) == (2, "--task N for one")
    assert file.read_text() == "mine"
    assert up("get", pair, "--task", "1", "--output", str(file)).code == 0
    assert file.read_bytes() == b"second"
    reduced = "{tasks: {run: x, count: 2}, reduce: {run: y}}"
    job = up("submit", job_file(reduced), "-o", "json").json["id"]
    for n in range(3):
        controller.end(job, n, b"%d" % n)
    assert up("get", job, "--output", str(tmp_path / "sum")).code == 0
    assert (tmp_path / "sum").read_bytes() == b"2"


def test_logs_follow_all_tasks_until_the_job_ends(up: Any, job_file: Any, controller: Any) -> None:
    """Those that start later appear, beyond as many as are read at a time."""
    job = up("submit", job_file("{tasks: {run: x, count: 70}}"), "-o", "json").json["id"]
    controller.logs |= {(job, n, 1): f"a{n}\nb{n}" for n in range(70)}
    controller.on_launch = lambda launch: b""
    for n in range(4):
        controller.end(job, n, b"")
    output = up("logs", "-f", job)
    assert sorted(output.out.splitlines()) == sorted(
        f"{n}: {line}{n}" for n in range(70) for line in "ab"
    )
    assert up("logs", "-f", f"{job}/3").out == up("logs", f"{job}/3").out == "a3\nb3"
    lines = [json.loads(line) for line in up("logs", "-f", job, "-o", "json").out.splitlines()]
    assert {line["task"] for line in lines} == {*range(70)}
