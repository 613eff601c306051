"""A joined Ray cluster: other programs share it, and Headgate takes its GPUs when they are free."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.live.system import Gates, Headgate, traces

from headgate.live.cluster.ray_nodes import LocalCluster, start_nodes, stop_nodes
from headgate.model import Gpu, Node

pytestmark = pytest.mark.live

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

    def held(self) -> int:
        """Return how many GPUs are available to jobs, all of them free."""
        (node,) = self.client.nodes()
        return int(node["free_gpus"])

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


@pytest.fixture(scope="module")
def joined() -> Iterator[Joined]:
    """A Ray cluster, which a test joins with `up`."""
    headgate = Joined()
    yield headgate
    headgate.close()


def test_gpus_are_held_for_jobs_and_those_given_out_join_when_they_are_free(
    joined: Joined, folder: Path
) -> None:
    gates, headgate = Gates(folder / "gates"), joined
    first = headgate.program(folder / "first")
    headgate.until(first.given, "a program has a GPU")
    headgate.up()
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
        return headgate.client.why(job)["reason"]

    found = headgate.until(reason, f"{job} waits")
    return str(found)


SHARED = """
import os, sys, time
from pathlib import Path
import ray
folder = Path(sys.argv[1])
ray.init()
ray.shutdown()
ray.init(num_cpus=99)

@ray.remote(num_gpus=1, num_cpus=0)
def gpu():
    time.sleep(1)
    return ray.get_gpu_ids()[0], os.environ["GREETING"]

@ray.remote(num_cpus=0)
class Left:
    def ready(self):
        return os.getpid()

print("gpus", sorted(set(ray.get([gpu.remote() for _ in range(4)]))))
left = Left.options(name="left", lifetime="detached").remote()
(folder / "left").write_text(str(ray.get(left.ready.remote())))
try:
    ray.init(address="10.0.0.9:6379")
except ConnectionError as error:
    print(error)
if sys.argv[2] == "wait":
    (folder / "waits").write_text(str(os.getpid()))
    time.sleep(600)
sys.exit(int(sys.argv[2]))
"""


def _shared(script: Path, *args: str, gpus: int = 2) -> str:
    ray = {"script": str(script), "args": [str(script.parent), *args], "mode": "shared"}
    text = {
        "name": "plain",
        "ray": {**ray, "retries": 0, "resources": {"gpus": gpus}},
        "envs": {"GREETING": "hello"},
    }
    return json.dumps(text)


def _log(headgate: Headgate, job: str) -> str:
    return str(headgate.client.log(job, 0, attempt=None, offset=0)["text"])


def _waiting(headgate: Joined, script: Path) -> tuple[str, list[int]]:
    """Submit a shared program that waits; return it, and its process and its detached actor."""
    (script.parent / "waits").unlink(missing_ok=True)
    job = headgate.submit(_shared(script, "wait"))
    headgate.until((script.parent / "waits").exists, "the program waits")
    return job, [int((script.parent / name).read_text()) for name in ("waits", "left")]


@pytest.fixture
def shared(joined: Joined) -> Joined:
    """The cluster, joined, with all its GPUs."""
    for program in joined.programs:  # that a failed test has left
        program.kill()
    joined.up()
    joined.until(lambda: joined.up_nodes() and joined.held() == GPUS, "all GPUs are held")
    return joined


def test_shared_program_has_its_grant_alone_and_leaves_nothing(
    shared: Joined, folder: Path
) -> None:
    script, headgate = folder / "plain.py", shared
    script.write_text(SHARED)
    waiting, processes = _waiting(headgate, script)
    granted = sorted(gpu for task in headgate.client.tasks(waiting) for gpu in task["gpus"])
    log = _log(headgate, waiting)
    assert f"gpus {[(gpu, 'hello') for gpu in granted]}" in log
    assert "cannot connect to 10.0.0.9:6379" in log
    assert headgate.withheld() == []
    headgate.call("cancel", waiting)
    headgate.ends(waiting, "cancelled")
    headgate.until(lambda: not _any_runs(*processes), "nothing of it runs")

    other = headgate.program(folder / "other")  # it gets a GPU as soon as Headgate holds none
    job = headgate.submit(_shared(script, "3", gpus=GPUS))
    headgate.until(other.given, "the other program was faster")
    assert headgate.client.job(job)["state"] == "active"
    headgate.until(lambda: len(headgate.withheld()) == 1, "the other GPUs are held again")
    assert "1 GPU is in use by other Ray programs (on n0)" in _why(headgate, job)
    other.end()
    view = headgate.ends(job, "failed")
    assert "the program ended with exit status 3" in view["message"]
    assert "1 detached actor removed: left" in _log(headgate, job)
    headgate.until(lambda: not _any_runs(int((folder / "left").read_text())), "it is removed")
    headgate.until(lambda: headgate.held() == GPUS, "the GPUs are held again")


def _any_runs(*pids: int) -> bool:
    return any(psutil.pid_exists(pid) for pid in pids)


def _victim(headgate: Joined, kind: str) -> psutil.Process:
    """Return the raylet of the node, or the driver of the shared program."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            words = [Path(word).name for word in process.cmdline()]
            if kind == "raylet":
                of_ours = os.getsid(process.pid) == headgate.cluster.sessions[NODE.id]
            else:
                of_ours = process.environ().get("RAY_ADDRESS") == headgate.cluster.address
            if kind in words[:3] and of_ours:
                found.append(process)
    assert found, kind
    return found[-1]


def test_nothing_of_a_shared_program_remains_when_a_process_of_it_or_the_raylet_is_killed(
    shared: Joined, folder: Path
) -> None:
    script, headgate = folder / "plain.py", shared
    script.write_text(SHARED)
    job, (program, left) = _waiting(headgate, script)
    psutil.Process(program).kill()
    view = headgate.ends(job, "failed")
    assert "headgate: the process of the program ended unexpectedly" in view["message"]
    headgate.until(lambda: not _any_runs(program, left), "nothing of it runs")

    job, (program, left) = _waiting(headgate, script)
    _victim(headgate, "ray_shared.py").kill()
    assert "SIGKILL" in headgate.ends(job, "failed")["message"]
    headgate.until(lambda: not _any_runs(program, left), "nothing of it runs")
    headgate.until(lambda: headgate.held() == GPUS, "the GPUs are held again")

    job, (program, left) = _waiting(headgate, script)
    _victim(headgate, "raylet").kill()
    headgate.until(lambda: not headgate.up_nodes(), "its node is lost")
    headgate.until(lambda: not _any_runs(program, left), "nothing of it runs")
    headgate.call("cancel", job)
    headgate.ends(job, "cancelled")
