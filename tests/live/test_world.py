"""What the live world hands over gets done, in the right order, even when something fails."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.engine import Engine
from headgate.live import link
from headgate.live.link import JobLink
from headgate.live.supervise import Backoff
from headgate.live.world import LiveWorld
from headgate.policies.flow import FlowSharing
from headgate.protocol import LaunchGang, LaunchTask, StopTask

WAIT_S = 30.0


def _no_master(*_: object) -> None:
    raise ValueError("there is no Ray here")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveWorld]:
    monkeypatch.setattr(link, "start_master", _no_master)
    world = LiveWorld(
        policy=FlowSharing(), seed=0, root=Path("/nowhere"), program_of=lambda job: "{}"
    )
    yield world
    world.close()


def _member(ordinal: int, node: str) -> LaunchTask:
    return LaunchTask(
        id=10 + ordinal, job="j", ordinal=ordinal, attempt=1, node=node, gpus=(0,), reads=()
    )


def test_gang_hosts_follow_ordinals_whatever_the_order_of_the_plan(
    world: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    gangs: list[tuple[str, ...]] = []
    done = threading.Event()
    monkeypatch.setattr(
        JobLink, "launch", lambda self, launches, *, gang: (gangs.append(gang), done.set())
    )
    members = (_member(2, "n0"), _member(0, "n1"), _member(1, "n2"))
    world.submit([LaunchGang(id=1, members=members)], Engine().snapshot)
    assert done.wait(WAIT_S)
    assert gangs == [("n1", "n2", "n0")]


def test_command_that_fails_to_be_handed_over_is_repeated(
    world: LiveWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Backoff, "failed", lambda self, after_s: 0.0)
    attempts: list[int] = []
    done = threading.Event()

    def stop(self: JobLink, launch: int) -> None:
        attempts.append(launch)
        if len(attempts) < 3:
            raise KeyError(launch)
        done.set()

    monkeypatch.setattr(JobLink, "stop", stop)
    world.submit([StopTask(id=2, launch=1, job="j", node="n0")], Engine().snapshot)
    assert done.wait(WAIT_S)
    assert attempts == [1, 1, 1]
    assert "KeyError" in caplog.text


DYING = """
from pathlib import Path
import sys, threading
from headgate.live.world import LiveWorld
from headgate.policies.flow import FlowSharing
world = LiveWorld(policy=FlowSharing(), seed=0, root=Path("/nowhere"), program_of=str)
world._call(sys.exit)
threading.Event().wait()
"""


def test_controllers_process_ends_when_the_loop_that_talks_with_ray_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DYING], check=False, capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 70
    assert "the thread that talks with Ray ended" in done.stderr
