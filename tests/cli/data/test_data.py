"""Datasets on the command line: put completely or not at all, listed and removed."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.base.errors import WorldError


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    """A file of 1000 lines."""
    path = tmp_path / "numbers"
    path.write_text("".join(f"{i:04d}\n" for i in range(1000)))
    return str(path)


def test_files_are_split_put_and_listed(up: Any, controller: Any, numbers: str) -> None:
    output = up(
        "data", "put", numbers, "--name", "ints", "--shard", "1KiB", "--lines", "-o", "json"
    )
    assert output.json == {"name": "ints", "shards": 5, "size_bytes": 5000, "dry_run": False}
    parts = [controller.shards[f"ints:{i:05d}"] for i in range(5)]
    assert b"".join(parts) == Path(numbers).read_bytes()
    assert all(part.endswith(b"\n") for part in parts)
    assert up("data", "ls").out.splitlines()[0].split() == [
        "DATASET", "USER", "SHARDS", "SIZE", "REPLICAS",
    ]  # fmt: skip
    assert up("data", "ls").out.splitlines()[1].endswith("  5  4.9 KiB         2")
    assert up("data", "ls", "ints").out.splitlines()[1].split() == [
        "ints:00000", "1.0", "KiB", "n0,", "n1",
    ]  # fmt: skip
    assert up("data", "ls", "int", "-o", "json").error["problems"][0]["hint"] == (
        "did you mean 'ints'?"
    )


def test_a_dry_run_puts_nothing(up: Any, controller: Any, numbers: str) -> None:
    output = up("data", "put", numbers, "--name", "ints", "--dry-run")
    assert output.out == "ints: 4.9 KiB in 1 shard would be put\n"
    assert (controller.pending, controller.shards) == ({}, {})
    assert up("data", "put", numbers, "--name", "ints", "--dry-run", "--replicas", "3").code == 2


@pytest.mark.parametrize(
    "arguments", [["no-such-file"], ["--shard", "0"], ["--shard", "much"], ["--replicas", "0"]]
)
def test_put_with_invalid_arguments_is_rejected(
    up: Any, controller: Any, numbers: str, arguments: list[str]
) -> None:
    output = up("data", "put", numbers, "--name", "ints", *arguments, "-o", "json")
    assert output.code == 2
    assert output.error["problems"]
    assert controller.pending == {}


def test_put_under_an_existing_name_is_rejected_and_keeps_its_shards(
    up: Any, controller: Any, numbers: str
) -> None:
    up("data", "put", numbers, "--name", "ints")
    abandoned: list[str] = []
    controller.abandon_dataset = lambda name, user: abandoned.append(name)
    for arguments in ([], ["--dry-run"]):
        output = up("data", "put", numbers, "--name", "ints", "-o", "json", *arguments)
        assert (output.code, output.error["code"]) == (2, "exists")
    assert abandoned == []
    assert "ints:00000" in controller.shards


def test_a_failed_put_leaves_no_shard(up: Any, controller: Any, numbers: str) -> None:
    put = controller.put_shard

    def failing(dataset: str, index: int, pieces: Iterator[bytes], **more: Any) -> Any:
        if index == 3:
            raise WorldError("no node has room", code="disk_full")
        return put(dataset, index, pieces, **more)

    controller.put_shard = failing
    output = up("data", "put", numbers, "--name", "ints", "--shard", "1KiB", "-o", "json")
    assert (output.code, output.error["code"]) == (1, "disk_full")
    assert (controller.pending, controller.shards) == ({}, {})


@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGINT, "error: interrupted\n"), (signal.SIGTERM, ""), (signal.SIGHUP, "")],
)
def test_a_signal_during_a_put_leaves_no_shard(
    up: Any, controller: Any, numbers: str, number: signal.Signals, expected: str
) -> None:
    put, reached, resume = controller.put_shard, threading.Event(), threading.Event()

    def slow(dataset: str, index: int, pieces: Iterator[bytes], **more: Any) -> Any:
        if index == 2:
            reached.set()
            resume.wait(30)
        return put(dataset, index, pieces, **more)

    controller.put_shard = slow
    program = "from headgate.cli.main import main; main()"
    putting = subprocess.Popen(
        [sys.executable, "-c", program, "data", "put", numbers, "--name=ints", "--shard=1KiB"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert reached.wait(30)
    assert len(controller.pending["ints"]) == 2
    putting.send_signal(number)
    out, err = putting.communicate(timeout=30)
    left = dict(controller.pending)
    resume.set()
    assert (putting.returncode, out, err) == (128 + number, "", expected)
    assert left == {}


def test_removing_requires_a_confirmation(up: Any, numbers: str) -> None:
    up("data", "put", numbers, "--name", "ints")
    assert up("data", "rm", "ints", "-o", "json").error["code"] == "needs_confirmation"
    assert up("data", "rm", "ints", "--dry-run").out == "ints (4.9 KiB) would be removed\n"
    assert len(up("data", "ls", "-o", "json").json["datasets"]) == 1
    assert up("data", "rm", "ints", "-y").code == 0
    assert up("data", "rm", "ints", "-y").code == 102


@pytest.mark.parametrize("option", [[], ["-y"], ["--dry-run"]])
def test_removing_a_dataset_of_another_user_is_forbidden_without_a_question(
    up: Any, controller: Any, option: list[str]
) -> None:
    controller.admins = {"admin"}
    controller.put_shard("hers", 0, iter([b"x"]), replicas=1, user="ann")
    controller.commit_dataset("hers", shards=1, user="ann")
    output = up("data", "rm", "hers", "-o", "json", *option)
    assert (output.code, output.error["code"]) == (2, "forbidden")
    assert "hers" in controller.engine.state.datasets


@pytest.mark.parametrize("more", [[], ["--lines"], ["--dry-run"]])
def test_too_many_shards_are_rejected_before_any_is_placed(
    up: Any, controller: Any, tmp_path: Path, more: list[str]
) -> None:
    (tmp_path / "lines").write_text("\n" * 10_001)
    controller.put_shard = lambda *_, **__: pytest.fail("a shard was placed")
    output = up("data", "put", "lines", "--shard", "1B", *more, "-o", "json")
    assert output.code == 2
    (problem,) = output.error["problems"]
    assert (problem["path"], problem["problem"]) == ("--shard", "makes more than 10000 shards")
    assert problem["hint"] == "--shard 1MiB makes fewer"


def test_put_shows_progress_on_a_terminal(up: Any, tmp_path: Path) -> None:
    (tmp_path / "numbers").write_bytes(b"x" * 100_000)
    ours, theirs = pty.openpty()
    program = "from headgate.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "data", "put", "numbers", "--shard", "1KiB"],
        stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"},
    ) as putting:  # fmt: skip
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(ours, 4096):
                shown += piece
        os.close(ours)
        assert putting.wait(60) == 0
    assert b"100.0" in shown
    assert b"kB" in shown
