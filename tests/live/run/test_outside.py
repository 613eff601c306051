"""What processes use that belong to no run, by made-up processes and by real ones."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.live.actors import agent
from headgate.live.cluster.ray_nodes import NODE_MARK
from headgate.live.run import guard
from headgate.live.run.outside import SMOOTHING_S, OutsideMeter, ProcessUse, of_no_run, running
from headgate.protocol import NO_OUTSIDE, GpuOutside, Outside

MIB = 1 << 20
GUARD = f"/usr/bin/python3 -I -S {guard.__file__}"


def process(pid: int, parent: int = 1, command: str = "python train.py") -> ProcessUse:
    return ProcessUse(pid, parent, 0.0, command, 0.0, MIB)


@dataclass
class Machine:
    """Processes, and a clock, that a test sets."""

    processes: list[ProcessUse] = field(default_factory=list)
    gpus: dict[int, dict[int, int]] = field(default_factory=dict)
    now: float = 100.0

    def meter(self) -> OutsideMeter:
        return OutsideMeter(
            processes=lambda: self.processes, on_gpus=lambda: self.gpus, now=lambda: self.now
        )


@given(
    parents=st.lists(st.integers(0, 12), min_size=12, max_size=12),
    guards=st.sets(st.integers(1, 12)),
)
def test_descendants_of_guards_are_runs_in_any_tree_of_processes(
    parents: list[int], guards: set[int]
) -> None:
    """A process list is no snapshot: ids may be reused, so that parents form cycles, too."""
    every = [
        process(pid, parent, GUARD if pid in guards else "python train.py")
        for pid, parent in enumerate(parents, 1)
    ]

    def in_run(pid: int) -> bool:
        for _ in range(len(parents) + 1):
            if pid in guards:
                return True
            if pid == 0:
                return False
            pid = parents[pid - 1]
        return False

    assert set(of_no_run(every)) == {each.pid for each in every if not in_run(each.pid)}


@pytest.mark.parametrize(
    "command",
    [
        "/usr/lib/python3/site-packages/ray/core/src/ray/raylet/raylet --raylet_socket_name=x",
        "/usr/lib/python3/site-packages/ray/core/src/ray/gcs/gcs_server --log_dir=/tmp",
        "/usr/bin/python3 -u /usr/lib/python3/site-packages/ray/dashboard/agent.py --x",
        "/usr/bin/python3 -u /usr/lib/python3/site-packages/ray/_private/log_monitor.py",
        "ray::IDLE",
        "ray::NodeAgent.report",
        "ray::Executor",
        "ray::Master.poll",
        "ray::Holder.ended",
        "/usr/bin/python3 -m headgate.live.controller.controller",
        "/usr/bin/python3 /usr/bin/headgate up",
    ],
)
def test_services_of_ray_and_headgate_are_not_outside(command: str) -> None:
    assert of_no_run([process(7, command=command)]) == {}


@pytest.mark.parametrize("command", ["ray::train", "python headgate.py", "vim /etc/headgate/x", ""])
def test_other_programs_are_outside(command: str) -> None:
    assert list(of_no_run([process(7, command=command)])) == [7]


def test_memory_is_that_of_all_processes_of_no_run_and_at_most_what_is_used() -> None:
    machine = Machine([process(7), process(8, 7), process(9, command=GUARD), process(10, 9)])
    assert machine.meter().measure(1 << 40).memory_bytes == 2 * MIB
    assert machine.meter().measure(MIB).memory_bytes == MIB
    assert Machine().meter().measure(1 << 40) == NO_OUTSIDE


def test_memory_of_gpus_is_that_of_processes_of_no_run_that_are_seen() -> None:
    machine = Machine([process(7), process(8), process(9, command=GUARD), process(10, 9)])
    machine.gpus = {0: {10: 5}, 1: {7: 30, 8: 40, 10: 500}, 2: {4711: 9}}
    assert machine.meter().measure(0).gpus == (GpuOutside(1, 70, 8),)


def test_load_is_a_smoothed_mean_of_processes_of_no_run() -> None:
    machine, meter = Machine([process(7), process(9, command=GUARD)]), None
    meter = machine.meter()
    assert meter.measure(0).cpus_milli == 0, "what it did before is not known"

    def passes(seconds: float, load: float) -> int:
        machine.now += seconds
        machine.processes = [
            each._replace(cpu_s=each.cpu_s + seconds * load) for each in machine.processes
        ]
        return meter.measure(0).cpus_milli

    assert passes(SMOOTHING_S, 2.0) == pytest.approx(2000 * (1 - 0.3679), abs=2)
    assert passes(20 * SMOOTHING_S, 2.0) == pytest.approx(2000, abs=2)
    assert passes(3.0, 0.0) == pytest.approx(1902, abs=2), "a pause does not count much"
    assert passes(20 * SMOOTHING_S, 0.0) == 0
    reused = [each._replace(started=9.0, cpu_s=0.5) for each in machine.processes]
    machine.processes = reused
    assert passes(1.0, 0.0) == 0, "another process of the same id has used what it has before"


def test_load_of_noise_moves_little() -> None:
    rng, machine = random.Random(4), Machine([process(7)])
    meter, seen = machine.meter(), list[int]()
    for step in range(2000):
        machine.now += 3.0
        (each,) = machine.processes
        machine.processes = [each._replace(cpu_s=each.cpu_s + 3.0 * rng.choice((0, 4)))]
        if step > 200:
            seen.append(meter.measure(0).cpus_milli)
        else:
            meter.measure(0)
    assert max(seen) - min(seen) < 4000 * 0.6, "of 0 to 4 CPUs from one report to the next"


@pytest.fixture
def outsider() -> Iterator[subprocess.Popen[bytes]]:
    code = "x = bytearray(64 << 20); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started
        started.kill()


def use_of(pid: int, processes: Iterable[ProcessUse]) -> ProcessUse | None:
    return next((each for each in processes if each.pid == pid), None)


def test_real_process_is_outside_with_its_memory(outsider: subprocess.Popen[bytes]) -> None:
    found = use_of(outsider.pid, of_no_run(running()).values())
    assert found is not None
    assert found.parent == os.getpid()
    assert 64 * MIB <= found.memory_bytes < 256 * MIB


def test_process_of_a_real_guard_is_not_outside() -> None:
    read_end, write_end = os.pipe()
    request = {
        "command": [sys.executable, "-c", "import time; time.sleep(600)"],
        "options": {}, "directory": "", "control_group": None, "most_processes": 100_000,
        "pass_fds": [], "responses": write_end,
    }  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__], stdin=subprocess.PIPE, pass_fds=(write_end,)
    ) as started:
        assert started.stdin is not None
        started.stdin.write(json.dumps(request).encode() + b"\n")
        started.stdin.flush()
        children: list[psutil.Process] = []
        while not children:
            children = psutil.Process(started.pid).children()
        worker = children[0].pid
        assert use_of(worker, running()) is not None
        outside = of_no_run(running())
        assert worker not in outside
        assert started.pid not in outside
        started.stdin.close()
    os.close(read_end)
    os.close(write_end)


@pytest.mark.parametrize("is_virtual", [False, True])
def test_agent_reports_it_but_of_a_node_that_shares_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_virtual: bool
) -> None:
    monkeypatch.setattr(agent, "OutsideMeter", lambda: Machine([process(7)]).meter())
    monkeypatch.delenv(NODE_MARK, raising=False)
    if is_virtual:
        monkeypatch.setenv(NODE_MARK, "cluster/n0")
    made = agent.NodeAgent(node="n0", host="127.0.0.1", root=str(tmp_path), token="t")
    assert made.report().machine.outside == Outside(memory_bytes=0 if is_virtual else MIB)
    made._server.close()
