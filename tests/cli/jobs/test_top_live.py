"""`headgate top` on a terminal: keys, sizes, errors, and its end."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from tests.cli.common.test_escapes import fill
from tests.cli.terminal import Terminal

from headgate.api.address import socket_path
from headgate.api.app import make_app
from headgate.api.server import Server, listen
from headgate.protocol import NodeLost, NodeReported

TITLES = ("[1 nodes & jobs]", "[2 GPUs]", "[3 queues]", "[4 links]")
HEADINGS = ("NODE  STATE", "NODE  GPU  MODEL", "QUEUE    STATE", "LINK  CAPACITY")


def test_keys_show_every_page_and_q_leaves(up: Any, controller: Any) -> None:
    controller.submit("{run: train}", user="ann", key=None)
    with Terminal("top") as terminal:
        terminal.shows("nodes 2/2  GPUs 1/4 allocated", "job-1", TITLES[0])
        for key, (title, heading) in enumerate(zip(TITLES, HEADINGS, strict=True), start=1):
            terminal.press(str(key))
            terminal.shows(title, heading)
        terminal.press("q")
        assert terminal.ends() == 0
        assert terminal.is_as_before()
        assert "\x1b[?1049h" in terminal.sent, "what was on the screen is there again"


def test_links_can_be_the_first_page(up: Any) -> None:
    with Terminal("top", "--links", "--interval", "1h") as terminal:
        assert "CAPACITY" in terminal.shows(TITLES[3])[1]
        terminal.press("1")
        terminal.shows(TITLES[0], "job")
        terminal.press("q")
        assert terminal.ends() == 0


def test_view_follows_the_cluster(up: Any, controller: Any) -> None:
    with Terminal("top", "--interval", "0.1") as terminal:
        terminal.shows("nodes 2/2")
        controller.submit("{name: new, run: train}", user="ann", key=None)
        terminal.shows("job-1")
        reported = NodeReported(at=controller.clock, node="n1", cpus_milli=4000, memory_bytes=0)
        controller.handle(reported)
        terminal.until(lambda lines: any(line.endswith("CPUs") and "n1" in line for line in lines))
        controller.handle(NodeLost(at=controller.clock, node="n1"))
        terminal.shows("nodes 1/2", "DOWN")


def test_sizes_of_the_terminal_are_followed(up: Any, controller: Any) -> None:
    for _ in range(4):
        controller.submit("{run: train}", user="ann", key=None)
    with Terminal("top", "--interval", "1h") as terminal:
        terminal.shows("job-4")
        for columns, rows in ((200, 50), (40, 10), (1, 1), (3, 2), (20, 3), (80, 8)):
            terminal.resize(columns, rows)
            lines = terminal.until(lambda lines, most=columns: any(lines[:1]) and all(
                len(line) <= most for line in lines
            ))  # fmt: skip
            assert len(lines) == rows
        terminal.press("G")
        assert "job-1" in terminal.shows("job-1")[-2]
        terminal.press("\x1b[5~")
        terminal.shows("n0", "1-6 of")
        terminal.press("\x1b[6~")
        terminal.until(lambda lines: "n0" not in "".join(lines) and lines[1].startswith("NODE"))
        terminal.press("q")
        assert terminal.ends() == 0


def test_size_is_followed_whichever_thread_gets_the_signal(
    up: Any, tmp_path: Path, controller: Any
) -> None:
    """The main thread blocks it here, so that the kernel gives it to the one that reads."""
    block = "import signal, headgate.cli.common.screen as s\nread = s.FullScreen.read_keys\n"
    block += "s.FullScreen.read_keys = lambda self: (signal.pthread_sigmask("
    block += "signal.SIG_BLOCK, [signal.SIGWINCH]), read(self))[1]\n"
    (tmp_path / "sitecustomize.py").write_text(block)
    with Terminal("top", "--interval", "1h", PYTHONPATH=str(tmp_path)) as terminal:
        terminal.shows(TITLES[0])
        for columns, rows in ((60, 12), (70, 14), (80, 16)):  # the first may be seen by chance
            terminal.resize(columns, rows)
            lines = terminal.until(lambda lines, most=columns: any(lines) and all(
                len(line) <= most for line in lines
            ))  # fmt: skip
            assert len(lines) == rows
        terminal.press("q")
        assert terminal.ends() == 0


@pytest.mark.parametrize("how", ["key", signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_as_before_after_every_end(up: Any, how: Any) -> None:
    with Terminal("top") as terminal:
        terminal.shows(TITLES[0])
        assert not terminal.is_as_before()
        if how == "key":
            terminal.press("\x03")
        else:
            terminal.signal(how)
        assert terminal.ends() == (0 if how in ("key", signal.SIGINT) else 128 + how)
        assert terminal.is_as_before()
        assert "Traceback" not in terminal.sent


def test_the_terminal_is_as_before_after_an_unforeseen_error(
    up: Any, monkeypatch: pytest.MonkeyPatch, controller: Any, tmp_path: Path
) -> None:
    broken = "import headgate.cli.jobs.top_live as t; t.totals = lambda views: 1 / 0"
    (tmp_path / "sitecustomize.py").write_text(broken)
    with Terminal("top", PYTHONPATH=str(tmp_path), TMPDIR=str(tmp_path)) as terminal:
        assert terminal.ends() == 1
        assert terminal.is_as_before()
        assert "error: internal error (ZeroDivisionError)" in terminal.sent


def test_suspended_and_continued(up: Any) -> None:
    with Terminal("top") as terminal:
        terminal.shows(TITLES[0])
        terminal.press("\x1a")  # in a session without a shell, the signal has no effect
        terminal.until(lambda _: terminal.sent.count("\x1b[?1049h") == 2)
        assert terminal.sent.count("\x1b[?1049l") == 1
        terminal.press("2")
        terminal.shows(TITLES[1])
        terminal.press("q")
        assert terminal.ends() == 0
        assert terminal.is_as_before()


def test_a_controller_that_goes_away_is_noticed_and_awaited(
    state: Path, controller: Any, headgate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_STATE", str(state))
    server = Server(make_app(controller), listen(socket_path(state)))
    server.start()
    with Terminal("top", "--interval", "0.1") as terminal:
        terminal.shows("nodes 2/2")
        server.stop()
        lines = terminal.shows("; as of ")
        assert "n0" in lines[3], "what was known stays"
        terminal.press("2")
        terminal.shows(TITLES[1], "; as of ", "MODEL")
        server = Server(make_app(controller), listen(socket_path(state)))
        server.start()
        try:
            terminal.until(lambda lines: "; as of " not in "".join(lines))
            terminal.press("q")
            assert terminal.ends() == 0
        finally:
            server.stop()


def test_without_a_controller_it_is_an_error_on_the_screen_as_it_was(
    state: Path, headgate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_STATE", str(state))
    with Terminal("top") as terminal:
        assert terminal.ends() == 1
        assert "no Headgate is running here" in terminal.sent
        assert "\x1b" not in terminal.sent


def test_terminals_that_cannot_be_drawn_on_get_the_page_once(up: Any) -> None:
    for variables, arguments in (({"TERM": "dumb"}, ()), ({}, ("--once",)), ({}, ("-o", "json"))):
        with Terminal("top", *arguments, **variables) as terminal:
            assert terminal.ends() == 0
            assert "n0" in terminal.sent
            assert "\x1b" not in terminal.sent


def test_hostile_names_do_nothing_on_a_terminal(up: Any, controller: Any) -> None:
    fill(controller, log="")
    with Terminal("top", columns=300, rows=60) as terminal:
        for key, title in enumerate(TITLES, start=1):
            terminal.press(str(key))
            lines = terminal.until(
                lambda lines, title=title: title in "".join(lines) and "reading" not in lines[1]
            )
            assert any(r"\x1b]0;X\x07" in line for line in lines)
            assert not any(line.startswith("error: all is lost") for line in lines)
        terminal.press("q")
        assert terminal.ends() == 0
        for mark in ("\x1b]", "\x1b[2J", "\x07", "\x9b", "\u202e", "\u2066", "\u2028"):
            assert mark not in terminal.sent
