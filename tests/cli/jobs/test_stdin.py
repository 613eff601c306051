"""The stdin of a program: what `--stdin` gives it, and the warning where it stays unread."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

MOST = 256 << 10


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give the program this stdin."""

    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


@contextmanager
def as_stdin(descriptor: int) -> Iterator[None]:
    """Make an open file the stdin of this process."""
    before = os.dup(0)
    try:
        os.dup2(descriptor, 0)
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


def stdin_of(controller: Any) -> list[Any]:
    return [each.program.stage.params.get("stdin") for each in controller.launches.values()]


@pytest.mark.parametrize("verb", ["submit", "run"])
def test_stdin_is_read_to_its_end_and_given_to_each_program_of_the_job(
    up: Any, controller: Any, given: Any, verb: str
) -> None:
    controller.on_launch = lambda _: b""
    text = "a {index} $HOME\r\n\0\u2028end"
    given(text.encode())
    output = up(verb, "--stdin", "--array", "0-1", "--", "sort")
    assert output.code == 0, output.err
    assert stdin_of(controller) == [text, text]


def test_stdin_wins_over_that_of_a_job_file(
    up: Any, controller: Any, given: Any, job_file: Any
) -> None:
    controller.on_launch = lambda _: b""
    path = job_file("{run: cat, stdin: of the file, resources: {gpus: 0}}")
    assert up("submit", path).code == 0
    given(b"of the line")
    output = up("submit", path, "--stdin")
    assert "stdin: of the file in the file, of the line on the command line" in output.err
    assert stdin_of(controller) == ["of the file", "of the line"]


@pytest.mark.parametrize(
    ("data", "arguments", "problem"),
    [
        (b"x" * (MOST + 1), ["--", "cat"], "--stdin: stdin has more than 256 KiB"),
        (b"\xff\xfe", ["--", "cat"], "--stdin: stdin is not text in UTF-8"),
        (b"run: cat", ["-"], "--stdin: does not go with '-'"),
        (b"x", ["--ray", __file__], "does not go with 'ray', whose programs"),
    ],
)
def test_stdin_that_no_program_can_be_given_is_an_error(
    up: Any, controller: Any, given: Any, data: bytes, arguments: list[str], problem: str
) -> None:
    given(data)
    output = up("submit", "--stdin", *arguments)
    assert output.code == 2
    assert problem in output.err
    assert not controller.engine.state.names.jobs


def test_a_warning_says_that_a_file_or_a_pipe_is_not_read(
    up: Any, controller: Any, tmp_path: Path
) -> None:
    controller.on_launch = lambda _: b""
    warning = "warning: stdin: is not read: the program has an empty one\n  --stdin passes it on"
    file = tmp_path / "input"
    file.write_text("one\ntwo\n")
    with file.open("rb", buffering=0) as opened, as_stdin(opened.fileno()):
        assert warning in up("submit", "--", "cat").err
        opened.read(4)  # as a `while read` loop does
        assert "stdin" not in up("submit", "--", "cat").err
    reading, writing = os.pipe()
    try:
        with as_stdin(reading):
            assert "stdin" not in up("run", "--", "cat").err
            os.write(writing, b"text")
            assert "stdin" not in up("submit", "--", "cat").err
            assert warning in up("run", "--", "cat").err
    finally:
        os.close(reading)
        os.close(writing)
