"""Commands run as jobs: output here, the outcome as exit code, Ctrl-C."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from typing import Any

import pytest
from tests.cli.program import ME, PROGRAM, until


def writes(controller: Any, text: str, outcome: bytes | str = b"") -> None:
    """Let every run write `text` and end immediately."""

    def run(launch: Any) -> bytes | str:
        controller.logs[launch.run] = text
        return outcome

    controller.on_launch = run


def test_run_prints_the_output_of_the_program_and_nothing_else(up: Any, controller: Any) -> None:
    writes(controller, "one\ntwo\n")
    output = up("run", "--gpus", "2", "--", "python", "train.py", "--lr", "a b")
    assert (output.code, output.out, output.err) == (0, "one\ntwo\n", "")
    (launch,) = controller.launches.values()
    assert launch.program.stage.run == "exec python train.py --lr 'a b'"
    assert (launch.run.job, launch.holds.gpus) == ("job-1", 2)


def test_options_after_the_program_belong_to_it(up: Any, controller: Any) -> None:
    writes(controller, "")
    assert up("run", "--cpus", "2", "sort", "--help", "").code == 2, "an empty argument needs --"
    assert up("run", "--cpus", "2", "sort", "--help").code == 0
    assert up("run", "--", "sort", "").code == 0
    runs = [launch.program.stage.run for launch in controller.launches.values()]
    assert runs == ["exec sort --help", "exec sort ''"]


def test_a_failed_program_is_not_repeated_and_ends_run_with_100(up: Any, controller: Any) -> None:
    writes(controller, "partly\n", "the command ended with exit status 3")
    output = up("run", "--", "false")
    assert (output.code, output.out) == (100, "partly\n")
    assert output.err.startswith("job-1 FAILED")
    assert "exit status 3" in output.err
    assert len(controller.launches) == 1


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_end_of_a_log_is_not_printed_again_with_the_reason_of_a_failure(
    up: Any, controller: Any, nodes: int
) -> None:
    message = "the command ended with exit status 3\nlate\nlater"
    writes(controller, "early\nlate\nlater\n", message)
    output = up("run", "--nodes", str(nodes), "--", "false")
    assert output.out.count("later") == nodes
    assert all(line.endswith(("early", "late", "later")) for line in output.out.splitlines())
    assert "exit status 3" in output.err
    assert "late" not in output.err
    writes(controller, "early\n", "the node has no disk\nleft on it")
    assert "left on it" in up("run", "--", "false").err, "that is no part of its log"


def test_as_json_the_job_is_on_stdout_and_the_output_on_stderr(up: Any, controller: Any) -> None:
    writes(controller, "hello\n")
    output = up("run", "-o", "json", "--", "true")
    assert (output.code, output.err) == (0, "hello\n")
    assert (output.json["id"], output.json["state"]) == ("job-1", "finished")


def test_lines_of_several_nodes_are_labelled_with_their_ranks(up: Any, controller: Any) -> None:
    writes(controller, "one\ntwo")
    output = up("run", "--num-nodes", "2", "--name", "pair", "--", "hostname")
    assert output.code == 0
    assert sorted(output.out.splitlines()) == ["0: one", "0: two", "1: one", "1: two"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--gpus", "9"), 105),
        (("--gpus", "many"), 2),
        (("--memory", "much"), 2),
        (("--gpu-model", "H100"), 105),
    ],
)
def test_what_cannot_run_is_rejected_with_the_codes_of_submit(
    up: Any, arguments: tuple[str, ...], code: int
) -> None:
    output = up("run", *arguments, "-o", "json", "--", "true")
    assert (output.code, bool(output.error["problems"])) == (code, True)


def test_run_waits_for_the_jobs_that_it_comes_after(up: Any, controller: Any) -> None:
    first = up("submit", "--", "sleep", "9").out.split()[1]
    launched = list[str]()

    def cancel_first() -> None:
        until(lambda: len(controller.engine.state.names.jobs) == 2)
        launched.extend(launch.run.job for launch in controller.launches.values())
        controller.cancel(first, user=ME)

    canceller = threading.Thread(target=cancel_first)
    canceller.start()
    output = up("run", "--after", first, "--", "sleep", "1")
    canceller.join()
    assert launched == [first], "the second one waits"
    assert output.code == 103
    assert f"{first} was cancelled: this job can never start" in output.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_the_job(up: Any, controller: Any, state: Any, number: int) -> None:
    program = subprocess.Popen(
        [*PROGRAM, "run", "--state-dir", str(state), "--", "sleep", "1000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: controller.launches)
    program.send_signal(number)
    _, err = program.communicate(timeout=30)
    assert program.returncode == 128 + number
    assert json.loads(up("jobs", "-o", "json").out)["jobs"][0]["state"] == "cancelled"
    if number == signal.SIGINT:
        assert "was cancelled" in err


def test_a_job_cancelled_by_another_user_ends_run_with_103(up: Any, controller: Any) -> None:
    def cancel() -> None:
        until(lambda: controller.launches)
        controller.cancel("job-1", user=ME)

    canceller = threading.Thread(target=cancel)
    canceller.start()
    output = up("run", "--", "sleep", "1000")
    canceller.join()
    assert output.code == 103


def test_submit_reads_a_job_file_from_stdin(up: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def given(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    given(b"{name: piped, run: 'true'}")
    assert up("submit", "-").out == "submitted job-1\n"
    for content in (b"nam: x\nrun: y\n", b"\xff\xfe\xff"):
        given(content)
        assert up("submit", "-", "-o", "json").error["code"] == "bad_spec"


@pytest.mark.parametrize("verb", ["run", "submit"])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--gpus", "many"),
        ("--cpus", "-1"),
        ("--nodes", "0"),
        ("--retries", "-1"),
        ("--time-limit", "3x"),
        ("--env", "="),
    ],
)
def test_problem_of_an_option_names_the_option_and_no_line(
    up: Any, verb: str, option: str, value: str
) -> None:
    output = up(verb, option, value, "-o", "json", "--", "true")
    (problem,) = output.error["problems"]
    assert (problem["path"], problem.get("line")) == (option, None)
    assert output.code in (2, 102)


@pytest.mark.parametrize("number", ["10", "0.5", "1e3"])
def test_memory_without_a_unit_asks_what_is_meant(up: Any, job_file: Any, number: str) -> None:
    texts = f"{{run: x, resources: {{memory: {number}, gpu_memory: {number}}}}}"
    errors = [
        up("run", "--memory", number, "--gpu-memory", number, "-o", "json", "--", "true").error,
        up("submit", job_file(texts), "-o", "json").error,
    ]
    places = [["--gpu-memory", "--memory"], ["resources.gpu_memory", "resources.memory"]]
    for error, expected in zip(errors, places, strict=True):
        found = {problem["path"]: problem for problem in error["problems"]}
        assert sorted(found) == expected, error
        assert all("without a unit is" in problem["problem"] for problem in found.values())
        assert all("GiB or " in problem["hint"] for problem in found.values())
    output = up("up", "--gpu-memory", number, "-o", "json")
    assert "without a unit" in output.error["problems"][0]["problem"]


def test_memory_in_bytes_is_accepted_with_a_unit_or_from_a_mebibyte_on(up: Any) -> None:
    for memory in ("10B", "1048576", "0"):
        assert up("submit", "--dry-run", "--memory", memory, "--", "sleep", "1").code == 0


def test_pending_line_fits_a_narrow_terminal_whose_width_stdout_does_not_have(
    up: Any, controller: Any, monkeypatch: pytest.MonkeyPatch, job_file: Any
) -> None:
    up("submit", job_file("{name: hold, tasks: {run: x, count: 4}}"))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 30, 0, 0))
    shown = bytearray()

    def cancel_once_shown() -> None:
        while b"PENDING" not in shown:
            shown.extend(os.read(ours, 4096))
        controller.cancel("job-2", user="root")

    reader = threading.Thread(target=cancel_once_shown)
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        reader.start()
        code = up("run", "--gpus", "2", "--", "true").code
        monkeypatch.undo()
        reader.join()
    os.close(ours)
    lines = [line for line in shown.decode().split("\r\x1b[K") if "PENDING" in line]
    assert code == 103
    assert [line for line in lines if len(line) > 29] == []
    assert lines[0].startswith("job-2: PENDING (")
    assert lines[0].endswith("...")
