"""Commands of the live world are executed in order, also after failures."""

from __future__ import annotations

import asyncio
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
from headgate.model import Demand, RunId
from headgate.policies.flow import FlowSharing
from headgate.protocol import LaunchTask, StopTask

WAIT_S = 30.0


def _no_master(*_: object) -> None:
    raise ValueError("there is no Ray here")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveWorld]:
    monkeypatch.setattr(link, "start_master", _no_master)
    world = LiveWorld(policies=lambda name: FlowSharing(), seed=0, root=Path("/nowhere"))
    yield world
    world.close()


RUN = RunId("j", 0, 1)


def test_command_that_fails_on_the_event_loop_is_repeated(
    world: LiveWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Backoff, "failed", lambda self, after_s: 0.0)
    attempts: list[RunId] = []
    done = threading.Event()

    def stop(self: JobLink, run: RunId, *, now: bool) -> None:
        assert not now
        attempts.append(run)
        if len(attempts) < 3:
            raise KeyError(run)
        done.set()

    monkeypatch.setattr(JobLink, "stop", stop)
    launch = LaunchTask(run=RUN, node="n0", gpus=(0,), reads=(), holds=Demand(gpus=1))
    world.submit([launch, StopTask(run=RUN, node="n0")], Engine().snapshot)
    assert done.wait(WAIT_S)
    assert attempts == [RUN] * 3
    assert "KeyError" in caplog.text


def test_stop_of_a_run_whose_job_has_ended_starts_no_master(
    world: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.live.world.end_job", lambda job: None)
    launch = LaunchTask(run=RUN, node="n0", gpus=(0,), reads=(), holds=Demand(gpus=1))
    world.submit([launch], Engine().snapshot)
    world.job_ended("j")
    world.submit([StopTask(run=RUN, node="n0")], Engine().snapshot)

    async def links() -> list[str]:
        return list(world._links)

    assert asyncio.run_coroutine_threadsafe(links(), world._loop).result(WAIT_S) == []


DYING = """
from pathlib import Path
import sys, threading
from headgate.live.world import LiveWorld
from headgate.policies.flow import FlowSharing
world = LiveWorld(policies=lambda name: FlowSharing(), seed=0, root=Path("/nowhere"))
world._call(sys.exit)
threading.Event().wait()
"""


def test_process_of_the_controller_ends_with_the_event_loop_of_ray() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DYING], check=False, capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 70
    assert "the thread that talks with Ray ended" in done.stderr
