"""Commands of the live world are executed in order, also after failures."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.conftest import ME, command, until

from headgate.engine import Engine
from headgate.live.actors import master_client
from headgate.live.actors.master_client import MasterClient
from headgate.live.base.supervise import Backoff
from headgate.live.controller import world as world_module
from headgate.live.controller.world import LiveWorld
from headgate.model import Demand, RunId
from headgate.policies.flow import FlowSharing
from headgate.protocol import LaunchTask, StopTask

WAIT_S = 30.0


def _no_master(*_: object) -> None:
    raise ValueError("there is no Ray here")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveWorld]:
    monkeypatch.setattr(master_client, "start_master", _no_master)
    world = LiveWorld(policies=lambda name: FlowSharing(), seed=0, root=Path("/nowhere"))
    yield world
    world.close()


RUN = RunId("j", 0, 1)
LAUNCH = LaunchTask(
    run=RUN, node="n0", gpus=(0,), reads=(), holds=Demand(gpus=1), program=command("true")
)


def test_command_that_fails_on_the_event_loop_is_repeated(
    world: LiveWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Backoff, "failed", lambda self, after_s: 0.0)
    attempts: list[RunId] = []
    done = threading.Event()

    def stop(self: MasterClient, run: RunId, *, now: bool, grace_s: float) -> None:
        assert grace_s == math.inf
        assert not now
        attempts.append(run)
        if len(attempts) < 3:
            raise KeyError(run)
        done.set()

    monkeypatch.setattr(MasterClient, "stop", stop)
    world.submit([LAUNCH, StopTask(run=RUN, node="n0")], Engine().snapshot)
    assert done.wait(WAIT_S)
    assert attempts == [RUN] * 3
    assert "KeyError" in caplog.text


def test_actors_of_an_account_end_when_it_has_had_no_run_for_some_time(
    world: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world_module, "_LOOK_S", 0.001)
    monkeypatch.setattr(world_module, "_KEEP_S", 0.0)
    ended: list[str] = []
    monkeypatch.setattr(world_module, "end_account", ended.append)
    world.submit([LAUNCH], Engine().snapshot)
    world.start(world.end_idle())

    async def clients() -> list[str]:
        await asyncio.sleep(0.05)  # it has looked several times
        return list(world._clients)

    def found() -> list[str]:
        return asyncio.run_coroutine_threadsafe(clients(), world._loop).result(WAIT_S)

    assert found() == [ME]
    assert not ended, "a run is outstanding"
    world.node_lost("n0")
    until(lambda: not found(), "the client ends")
    until(lambda: ended == [ME], "its actors end")
    world.submit([StopTask(run=RUN, node="n0")], Engine().snapshot)
    assert found() == [], "a late stop starts no master"


def test_launch_waits_until_the_earlier_actors_of_its_account_have_ended(
    world: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world_module, "_LOOK_S", 0.001)
    monkeypatch.setattr(world_module, "_KEEP_S", 0.0)
    calls: list[str] = []
    ending, released = threading.Event(), threading.Event()

    def end(account: str) -> None:
        ending.set()
        assert released.wait(WAIT_S)
        calls.append(f"{account} has ended")

    def start(account: str, *_: object) -> None:
        calls.append(f"{account} starts")
        raise ValueError("there is no Ray here")

    monkeypatch.setattr(world_module, "end_account", end)
    world.submit([LAUNCH], Engine().snapshot)
    world.node_lost("n0")
    world.start(world.end_idle())
    assert ending.wait(WAIT_S)
    monkeypatch.setattr(master_client, "start_master", start)
    world.submit([LAUNCH], Engine().snapshot)
    assert not calls
    released.set()
    until(lambda: calls[:2] == [f"{ME} has ended", f"{ME} starts"], "both, in this order")


DYING = """
from pathlib import Path
import sys, threading
from headgate.live.controller.world import LiveWorld
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
