"""What a run uses is that of its guard and all processes below it, by looks while they run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from headgate.live.run import run_meter
from headgate.live.run.run_meter import Peaks, RunMeter, measured
from headgate.model import Usage

MIB = 1 << 20
GUARDED = """
import subprocess, sys
child = "x = bytearray(64 << 20); print(flush=True); input(); x = None; print(flush=True); input()"
subprocess.run([sys.executable, "-c", child])
"""


@pytest.fixture
def guarded() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a child that holds 64 MiB until it gets a line."""
    with subprocess.Popen(
        [sys.executable, "-c", GUARDED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        next_line(started)
        yield started
        started.kill()


def next_line(started: subprocess.Popen[bytes]) -> None:
    assert started.stdout is not None
    started.stdout.readline()


def test_most_memory_is_kept_and_the_first_look_counts_nothing(
    guarded: subprocess.Popen[bytes],
) -> None:
    meter = RunMeter(guarded.pid, on_gpus=False)
    meter.look()
    assert meter.peaks == Peaks()
    meter.look()
    most = meter.peaks.memory_bytes
    assert 64 * MIB <= most < 256 * MIB
    assert guarded.stdin is not None
    guarded.stdin.write(b"\n")
    guarded.stdin.flush()
    next_line(guarded)
    meter.look()
    assert meter.peaks.memory_bytes == most
    assert meter.now.memory_bytes <= most - 60 * MIB, "it has freed what it held"


def test_memory_of_gpus_is_that_of_its_processes_on_the_gpu_with_most(
    guarded: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    (child,) = run_meter.psutil.Process(guarded.pid).children()
    on_gpus = {0: {guarded.pid: 5, child.pid: 2, os.getpid(): 900}, 1: {child.pid: 6}}
    monkeypatch.setattr(run_meter, "gpu_processes", lambda: on_gpus)
    meter = RunMeter(guarded.pid, on_gpus=True)
    for _ in range(2):
        meter.look()
    assert meter.peaks.gpu_bytes == 7
    on_gpus.clear()
    meter.look()
    assert meter.peaks.gpu_bytes == 7
    without = RunMeter(guarded.pid, on_gpus=False)
    for _ in range(2):
        without.look()
    assert without.peaks.gpu_bytes == 0


def test_mean_load_is_that_since_the_first_look(
    guarded: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(run_meter.time, "monotonic", lambda: now[0])
    meter = RunMeter(os.getpid(), on_gpus=False)
    meter.look()
    before = sum(os.times()[:4])
    while sum(os.times()[:4]) < before + 0.5:
        pass
    now[0] += 2.0
    meter.look()
    assert meter.peaks.cpus_milli >= 200, "half a second in two"


def test_end_of_the_processes_is_no_error(guarded: subprocess.Popen[bytes]) -> None:
    meter = RunMeter(guarded.pid, on_gpus=False)
    for _ in range(2):
        meter.look()
    before = meter.peaks
    guarded.kill()
    guarded.wait()
    meter.look()
    assert meter.peaks == before


def test_what_was_seen_is_reported_at_the_end_of_the_block_even_after_an_error() -> None:
    reported, noted = list[Peaks](), list[Peaks]()

    async def run() -> None:
        async with measured(os.getpid(), on_gpus=False, report=reported.append, note=noted.append):
            await asyncio.sleep(0)
            raise ValueError("it fails")

    with pytest.raises(ValueError, match="it fails"):
        asyncio.run(run())
    assert reported == [Peaks()], "so short a run was not seen"
    assert noted[-1] == Peaks(), "it uses nothing any more"


def test_usage_of_a_run_gets_what_was_seen() -> None:
    usage = Usage(read_s=2.0, exit_status=3)
    assert Peaks(1, 2, 3).added_to(usage) == Usage(
        read_s=2.0, exit_status=3, peak_memory_bytes=1, peak_gpu_bytes=2, cpus_milli=3
    )
