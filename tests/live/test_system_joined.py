"""A joined Ray cluster: other programs share it, and Headgate takes its GPUs when they are free."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.live.system import Gates, Headgate, traces

from headgate.live.ray_nodes import LocalCluster, start_nodes, stop_nodes
from headgate.model import Gpu, Node

GPUS = 3
NODE = Node(id="n0", rack="r0", gpus=(Gpu(memory_bytes=4 << 30),) * GPUS)


class Joined(Headgate):
    """A Headgate that joins a Ray cluster of the test's own."""

    def __init__(self) -> None:
        """Start the cluster."""
        super().__init__(nodes=1, gpus=0)
        self.ray = self.base / "ray"
        self.joined: LocalCluster = start_nodes(self.ray, [NODE])
        token = self.joined.token
        self.programs: list[Program] = []
        self._size = (f"--address={self.joined.address}", f"--token-file={token}", "--policy=fifo")

    @property
    def cluster(self) -> LocalCluster:
        """The Ray nodes."""
        return self.joined

    def close(self) -> None:
        """Take Headgate down, then the cluster; nothing of either may stay."""
        for program in self.programs:
            program.kill()
        self.call("down", "-y")
        actors = [process for kind in ("Holder", "NodeAgent") for process in self.actors(kind)]
        psutil.wait_procs(actors, timeout=10)
        left = [process for process in actors if process.is_running()]
        stop_nodes(self.ray)
        super().close()
        assert left == [], f"left on the joined cluster: {left}"
        assert traces(self.ray, self.joined) == []

    def program(self, folder: Path) -> Program:
        """Start a plain program beside Headgate."""
        self.programs.append(Program(self.joined, folder))
        return self.programs[-1]

    def withheld(self) -> list[int]:
        """Return the GPUs of the node that other programs use."""
        (node,) = self.client.nodes()
        return [gpu["index"] for gpu in node["gpus"] if gpu["withheld"]]


class Program:
    """A plain Ray program beside Headgate: it requires a GPU, and says which one it was given."""

    CODE = """
import pathlib, ray, sys, time
ray.init(log_to_driver=False)
@ray.remote(num_gpus=1, num_cpus=0)
def hold(folder):
    folder = pathlib.Path(folder)
    (folder / "given").write_text(str(ray.get_gpu_ids()[0]))
    while not (folder / "end").exists():
        time.sleep(0.05)
ray.get(hold.remote(sys.argv[1]))
"""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        """Start it; it waits for its GPU."""
        folder.mkdir()
        self._folder = folder
        settings = {"RAY_ADDRESS": cluster.address, "RAY_AUTH_MODE": "token"}
        with (folder / "errors").open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", self.CODE, str(folder)],
                env={**os.environ, **settings, "RAY_AUTH_TOKEN_PATH": cluster.token},
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def given(self) -> str:
        """Return the GPU that Ray has given it, "" before."""
        assert self.process.poll() is None, (self._folder / "errors").read_text()
        file = self._folder / "given"
        return file.read_text() if file.exists() else ""

    def end(self) -> None:
        """Let it end."""
        (self._folder / "end").touch()
        assert self.process.wait(30) == 0, (self._folder / "errors").read_text()

    def kill(self) -> None:
        """End it while it waits."""
        self.process.kill()
        self.process.wait(30)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="hg-joined-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def job(gates: Gates, name: str, gpus: int) -> str:
    resources = f"{{gpus: {gpus}}}"
    return f"{{name: {name}, run: '{gates.command('true', name)}', resources: {resources}}}"


def test_gpus_are_held_for_jobs_and_those_given_out_join_when_they_are_free(folder: Path) -> None:
    gates, headgate = Gates(folder / "gates"), Joined()
    first = headgate.program(folder / "first")
    headgate.until(first.given, "a program has a GPU")
    with headgate:
        given = int(first.given())
        assert headgate.withheld() == [given]
        note = f"n0: GPU {given} is in use by other Ray programs; "
        assert note in headgate.run("up").stdout
        assert note in headgate.run("nodes").stdout

        two = headgate.submit(job(gates, "two", 2))
        headgate.running(two, 1)
        three = headgate.submit(job(gates, "three", 3))
        assert "1 GPU is in use by other Ray programs (on n0)" in _why(headgate, three)

        second = headgate.program(folder / "second")
        holders = {process.pid for process in headgate.actors("Holder")}
        headgate.kill_controller()
        headgate.up()
        assert headgate.withheld() == [given]
        assert holders <= {process.pid for process in headgate.actors("Holder")}
        gates.open(0, name="two")
        headgate.ends(two)
        assert not second.given(), "it was given a GPU that Headgate holds"
        second.kill()

        first.end()
        headgate.until(lambda: not headgate.withheld(), "the GPU has joined")
        assert f"n0: GPU {given} is available to jobs now" in headgate.logged()
        gates.open(0, name="three")
        headgate.ends(three)

        headgate.call("down", "-y")
        third = headgate.program(folder / "third")
        headgate.until(third.given, "without Headgate, Ray gives out its GPUs")
        third.end()


def _why(headgate: Headgate, job: str) -> str:
    def reason() -> Any:
        return headgate.client.explanation(job)["reason"]

    found = headgate.until(reason, f"{job} waits")
    return str(found)
