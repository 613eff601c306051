"""The Python API: jobs submitted, followed and read, tables, errors, and its examples."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate.api.address import socket_path
from headgate.api.app import make_app
from headgate.api.client import Client
from headgate.api.server import Server, listen

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "client").glob("*.py"))
TWO = {"name": "pair", "tasks": {"run": "true", "count": 2}}


def test_the_package_exports_the_client_and_its_errors() -> None:
    assert headgate.Client is Client
    assert issubclass(headgate.SpecError, headgate.HeadgateError)
    assert issubclass(headgate.WorldError, headgate.HeadgateError)
    with pytest.raises(AttributeError):
        _ = headgate.no_such_name


def test_importing_the_package_imports_no_part_of_it() -> None:
    program = "import sys, headgate; print([m for m in sys.modules if m.startswith('headgate.')])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_client_finds_the_state_directory_as_the_command_line_does(
    socket: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADGATE_STATE", raising=False)
    with Client(state=state) as given, Client(state=str(state)) as text:
        assert given.health() == text.health()
    monkeypatch.setenv("HEADGATE_STATE", str(state))
    with Client() as found:
        assert found.health()["status"] == "ok"


def test_a_job_is_submitted_as_text_as_a_file_and_as_its_content(
    client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("{name: file, run: 'true'}")
    jobs = [client.submit(job) for job in ("{name: text, run: 'true'}", file, TWO)]
    assert [client.job(job)["name"] for job in jobs] == ["text", "file", "pair"]


def test_a_directory_that_a_job_names_is_sent_with_it(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, controller: Any
) -> None:
    (tmp_path / "train.py").write_text("print('hello')\n")
    file = tmp_path / "job.yaml"
    file.write_text("run: python train.py\n")
    monkeypatch.chdir(tmp_path)
    for job in (file, {"run": "python train.py"}, {"run": "python other.py"}):
        client.submit(job)
    programs = [launch.program for launch in controller.launches.values()]
    assert [bool(program.environment.package) for program in programs] == [True, True, False]


def test_run_submits_a_command_and_returns_its_end(client: Client, controller: Any) -> None:
    controller.on_launch = lambda launch: b""
    view = client.run(["echo", "a b"], name="echo", gpus=2, envs={"X": "1"})
    assert (view["name"], view["state"]) == ("echo", "finished")
    controller.on_launch = lambda launch: "no"
    assert client.run("exit 3", time_limit="1h")["state"] == "failed"
    first, second = controller.launches.values()
    assert (first.program.stage.run, first.holds.gpus) == ("exec echo 'a b'", 2)
    assert (second.program.stage.run, second.time_limit_s) == ("exit 3", 3600)


def test_wait_returns_the_view_of_the_end_or_times_out(client: Client, controller: Any) -> None:
    job = client.submit(TWO)
    with pytest.raises(headgate.WorldError) as late:
        client.wait(job, timeout_s=0.05)
    assert late.value.code == "timeout"
    controller.end(job, 0, b"")
    controller.end(job, 1, b"")
    assert client.wait(job)["state"] == "finished"


def test_wait_and_logs_continue_with_the_next_controller(state: Path, controller: Any) -> None:
    def serve() -> Server:
        server = Server(make_app(controller), listen(socket_path(state)))
        server.start()
        return server

    server = serve()
    with Client(state=state) as client:
        job = client.submit(TWO)
        ends: list[Any] = []
        waiting = [
            threading.Thread(target=lambda: ends.append(client.wait(job)["state"])),
            threading.Thread(target=lambda: ends.append("".join(client.logs(job, 1, follow=True)))),
        ]
        for thread in waiting:
            thread.start()
        server.stop()
        controller.logs[job, 1, 1] = "written meanwhile\n"
        controller.end(job, 0, b"")
        controller.end(job, 1, b"")
        server = serve()
        for thread in waiting:
            thread.join(timeout=30)
        assert sorted(ends) == ["finished", "written meanwhile\n"]
    server.stop()


def test_logs_are_of_the_task_that_matters(client: Client, controller: Any) -> None:
    job = client.submit(TWO)
    controller.logs[job, 0, 1] = "first " * 1000
    controller.logs[job, 1, 1] = "second"
    assert "".join(client.logs(job)) == "first " * 1000
    assert "".join(client.logs(job, 1)) == "second"
    waiting = client.submit({**TWO, "queue": "narrow"}), client.submit({**TWO, "queue": "narrow"})
    with pytest.raises(headgate.SpecError) as early:
        client.logs(waiting[1])
    assert early.value.code == "not_finished"


def test_results_are_those_of_the_finished_tasks(client: Client, controller: Any) -> None:
    job = client.submit(TWO)
    controller.end(job, 1, b"second")
    assert list(client.results(job)) == [(1, b"second")]
    controller.end(job, 0, b"first")
    assert list(client.results(job)) == [(0, b"first"), (1, b"second")]


def test_tables_have_one_row_per_object_and_columns_also_when_empty(
    client: Client, controller: Any
) -> None:
    empty = client.table("jobs")
    assert empty.num_rows == 0
    job = client.submit(TWO)
    controller.end(job, 0, b"")
    table = client.table("jobs")
    assert table.schema == empty.schema
    (row,) = table.to_pylist()
    assert (row["id"], row["state"], row["gpus_held"]) == (job, "active", 1.0)
    assert (row["tasks_total"], row["tasks_finished"], row["tasks_waiting"]) == (2, 1, 0)
    assert client.table("nodes").column("id").to_pylist() == ["n0", "n1"]
    assert client.table("nodes").column("gpus_free").to_pylist() == [1, 2]
    assert client.table("queues").column("name").to_pylist() == ["default", "narrow"]
    assert client.table("datasets").num_rows == 0
    with pytest.raises(headgate.SpecError, match="did you mean 'jobs'"):
        client.table("job")


def test_an_error_of_uploaded_pieces_is_raised_unchanged(client: Client) -> None:
    def pieces() -> Any:
        yield b"x" * 100_000
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        client.put_shard("numbers", 0, pieces(), replicas=1)
    assert client.health()["status"] == "ok"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(
    example: Path, client: Client, state: Path, controller: Any, tmp_path: Path
) -> None:
    controller.on_launch = lambda launch: None if launch.run.job == "job-1" else b"the result"
    client.submit({**TWO, "queue": "narrow"})
    client.submit({**TWO, "queue": "narrow"})
    done = subprocess.run(
        [sys.executable, str(example)],
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "HEADGATE_STATE": str(state)},
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
