"""Control characters in text of jobs and users are escaped; streams that end or fail."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.program import PROGRAM

TITLE = "\x1b]0;X\x07\x1b[2J\x9b31m\u202e[bold]"
EVIL = f"{TITLE}\r\nerror: all is lost"
SLEEP = "{name: nap, tasks: {run: 'true', count: 2}}"


def environment(**settings: str) -> dict[str, str]:
    """Return an environment in which output is buffered: else Python drops what a pipe leaves."""
    return {**os.environ, "PYTHONUNBUFFERED": "", **settings}


def controls(text: str, allowed: str = "\n") -> set[str]:
    """Return the characters that would act on a terminal."""
    return {
        c for c in text
        if c not in allowed and (unicodedata.category(c) in ("Cc", "Cs") or c in "\u202e\u2028")
    }  # fmt: skip


@pytest.fixture
def broken(up: Any, controller: Any, job_file: Any) -> Any:
    """A job that has failed with a message full of escapes, and one of a user with such a name."""
    controller.on_launch = lambda launch: EVIL
    up("submit", job_file("{name: bad, run: 'false'}"))
    controller.on_launch = lambda launch: None
    controller.submit(SLEEP, user=f"ann{EVIL}", key=None)
    controller.logs["job-1", 0, 1] = EVIL
    return up


@pytest.mark.parametrize("option", ["--policy", "--place", "--group", "--address", "--gpu-memory"])
def test_rejected_value_of_up_is_escaped(broken: Any, option: str) -> None:
    """Where a cluster would start; test_escapes.py has all other verbs."""
    for chosen in ("table", "json"):
        output = broken("up", option, TITLE, "-o", chosen)
        assert output.code == 2
        assert controls(output.out + output.err) == set(), chosen


def test_further_lines_of_a_message_are_indented(broken: Any) -> None:
    shown = r"\x1b]0;X\x07\x1b[2J\x9b31m\u202e[bold]\x0d"
    message = f"task 0 failed once: {shown}"
    assert f"Message: {message}\n  error: all is lost\n" in broken("get", "job-1").out
    assert broken("why", "job-1").out.endswith(f"\nMessage: {message}\n  error: all is lost\n")
    assert broken("jobs", "-o", "wide").out.splitlines()[-1].endswith(f"{message} ...")
    assert broken("get", "job-1", "-o", "json").json["message"] == f"{message}\nerror: all is lost"
    output = broken("get", "job-1", "--output", "x")
    assert output.err.endswith(f"\n  {message}\n  error: all is lost\n")


def test_waiting_shows_the_message_escaped(up: Any, controller: Any, job_file: Any) -> None:
    controller.on_launch = lambda launch: EVIL
    for chosen in ("table", "json"):
        output = up("submit", job_file("{run: x}"), "--wait", "-o", chosen)
        assert "all is lost" in output.out
        assert controls(output.out + output.err) == set()


def on_terminal(arguments: list[str]) -> str:
    """Return the output of a program whose stdout is a terminal."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(arguments, stdout=theirs, stdin=subprocess.DEVNULL)
    os.close(theirs)
    sent = b""
    while True:
        try:
            sent += os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    assert child.wait(30) == 0
    return sent.decode().replace("\r\n", "\n")


def test_a_log_is_escaped_on_a_terminal_and_unchanged_elsewhere(
    broken: Any, controller: Any
) -> None:
    log = controller.logs["job-1", 0, 1] = f"10%\r20%\r\n\ttab {EVIL}\n"
    assert broken("logs", "job-1").out == log
    output = broken("logs", "job-1", "-o", "json")
    assert output.json["text"] == log
    assert controls(output.out) == set()
    expected = "10%\n20%\n\ttab \\x1b]0;X\\x07\\x1b[2J\\x9b31m\\u202e[bold]\nerror: all is lost\n"
    for more in ([], ["-f"]):
        sent = on_terminal([*PROGRAM, "logs", "job-1", *more])
        assert sent.expandtabs() == expected.expandtabs()


# --- streams -------------------------------------------------------------------------------------


def test_jobs_that_run_are_watched_above_those_that_have_ended(broken: Any) -> None:
    """`headgate jobs` lists the newest first; here the running job is older than an ended one."""
    broken("cancel", "job-2", "-y")
    listed = [job["id"] for job in broken("jobs", "-o", "json").json["jobs"]]
    assert listed == ["job-2", "job-1"]
    broken("submit", "--", "sleep", "9")
    broken("submit", "--", "sleep", "9")
    broken("cancel", "job-4", "-y")
    screen, terminal = pty.openpty()
    watching = subprocess.Popen(
        [*PROGRAM, "jobs", "--watch"], stdout=terminal, stderr=terminal, stdin=terminal
    )
    os.close(terminal)
    shown = ""
    while "job-1" not in shown:  # the last one
        shown += os.read(screen, 1 << 16).decode()
    watching.send_signal(signal.SIGINT)
    assert watching.wait(30) == 0
    os.close(screen)
    order = sorted(("job-1", "job-2", "job-3", "job-4"), key=shown.index)
    assert order == ["job-3", "job-4", "job-2", "job-1"]


@pytest.fixture
def many(up: Any, controller: Any) -> Any:
    """More jobs than a pipe holds."""
    for _ in range(1000):
        controller.submit("{name: '" + "n" * 90 + "', run: x}", user="ann", key=None)
    return up


def test_a_reader_that_closes_the_pipe_ends_the_program_silently(many: Any) -> None:
    for more in ([], ["-o", "json"]):
        with subprocess.Popen(
            [*PROGRAM, "jobs", "--limit", "1000", *more],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
        ) as child:  # fmt: skip
            assert child.stdout is not None
            assert child.stderr is not None
            child.stdout.readline()
            child.stdout.close()
            code = child.wait(60)
            assert (code, child.stderr.read()) == (141, b""), more


def shell(command: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command in which `headgate` is the program."""
    script = f'headgate() {{ "{sys.executable}" -m headgate.cli.main "$@"; }}; {command}'
    return subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60,
        env=environment(**settings),
    )  # fmt: skip


@pytest.mark.parametrize("verb", ["jobs", "policies", "nodes -o json"])
def test_a_full_disk_behind_stdout_is_reported(up: Any, verb: str) -> None:
    done = shell(f"headgate {verb} > /dev/full")
    assert done.returncode == 1
    assert "stdout" in done.stderr
    assert "No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_closed_streams_are_no_error(up: Any) -> None:
    done = shell("headgate jobs >&- 2>&- <&-; echo $?; headgate data rm x <&-; echo $?")
    assert done.stdout == "0\n102\n"
    assert done.stderr.startswith("error: x: there is no dataset 'x'")


def test_characters_that_an_encoding_lacks_are_escaped(up: Any, controller: Any) -> None:
    controller.submit(SLEEP, user="Jörg", key=None)
    done = shell("headgate jobs; headgate jobs -o json", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("J\\xf6rg") == 2


def test_pipes_and_terminals_without_colour_get_plain_text(broken: Any) -> None:
    assert "\x1b" not in shell("headgate jobs; headgate get job-1; headgate policies").stdout
    command = ["env", "NO_COLOR=1", "TERM=xterm-256color", *PROGRAM, "jobs"]
    assert "\x1b[3" not in on_terminal(command)  # no colours; bold headings may be


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_during_get_output_leaves_no_file(
    up: Any, controller: Any, tmp_path: Path, number: signal.Signals
) -> None:
    controller.submit("{name: one, run: x}", user="ann", key=None)
    controller.end("job-1", 0, b"x" * 1000)
    whole: Callable[..., Any] = controller.result
    resume = threading.Event()

    def slow(job: str, ordinal: int | None) -> Any:
        for piece in whole(job, ordinal):
            yield piece
            resume.wait(30)

    controller.result = slow
    target = tmp_path / "result"
    child = subprocess.Popen([*PROGRAM, "get", "job-1", "--output", str(target)])
    while not list(tmp_path.glob(".result*")):
        assert child.poll() is None
    child.send_signal(number)
    assert child.wait(30) == 128 + number
    resume.set()
    assert list(tmp_path.glob("*result*")) == []
