"""A complete Headgate for tests: started by its command line, with injected faults, stopped.

    with Headgate(nodes=4, gpus=1) as headgate:
        job = headgate.submit("{name: a, run: 'echo hello'}")
        headgate.ends(job)

Every wait is bounded, and one that is in vain shows the end of the controller's log.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from tests.live.bed import Bed

from headgate.api.address import socket_path
from headgate.api.client import Client
from headgate.base.errors import WorldError
from headgate.live.actors.executor import shards_directory
from headgate.live.base.config import ControllerConfig, save_config
from headgate.live.cluster.ray_nodes import LocalCluster, kill_node, local_cluster, start_node
from headgate.live.node.split import split_files
from headgate.live.node.store import ShardStore
from headgate.live.run import run_limits
from headgate.model import Gpu, Node

GPU_MEMORY_BYTES = 4 << 30
ENDED = ("finished", "failed", "cancelled")
_PROGRAM = Path(sys.executable).parent / "headgate"
_MAIN = "from headgate.cli.main import main; main()"
_PATIENCE_S = 60.0
_LEFT_S = 5.0


class System:
    """A running Headgate, with operations of users and injected faults."""

    def __init__(self, state: Path, nodes: Sequence[Node]) -> None:
        """Speak with the controller of a state directory."""
        self.state, self.nodes = state, tuple(nodes)
        self.client = Client(socket_path(state))
        self.restarted: set[str] = set()
        self._forgotten = 0  # characters of the log that earlier tests have seen

    def answers(self) -> bool:
        """Return whether the controller responds."""
        try:
            return bool(self.client.health())
        except WorldError:
            return False

    def close_client(self) -> None:
        """Hang up."""
        self.client.__exit__(None, None, None)

    # --- jobs and data ---------------------------------------------------------------------------

    def submit(self, text: str, **options: Any) -> str:
        """Submit a job and return its id."""
        return self.client.submit(text, **options)

    def put(self, name: str, file: Path, shards: int, *, replicas: int = 1) -> None:
        """Put a file as a dataset of `shards` shards."""
        size = -(-file.stat().st_size // shards)
        parts = split_files([file], size, lines=False)
        for index, (_, part) in enumerate(parts):
            self.client.put_shard(name, index, part, replicas=replicas)
        self.client.commit_dataset(name, shards=len(parts))

    def holders(self, name: str) -> list[list[str]]:
        """Return the nodes of each shard of a dataset."""
        return [shard["nodes"] for shard in self.client.shards(name)]

    def store(self, node: str) -> ShardStore:
        """Return the store of a node."""
        return ShardStore(shards_directory(self.state / "nodes", node))

    def shard_file(self, node: str, shard: str) -> Path:
        """Return the file of a shard on a node."""
        return self.store(node).path(shard)

    def tasks_in(self, job: str, state: str) -> list[dict[str, Any]]:
        """Return a job's tasks that are in a state."""
        return [task for task in self.client.tasks(job) if task["state"] == state]

    def running(self, job: str, count: int) -> list[dict[str, Any]]:
        """Wait until so many tasks of a job run."""

        def found() -> list[dict[str, Any]]:
            tasks = self.tasks_in(job, "running")
            return tasks if len(tasks) == count else []

        tasks: list[dict[str, Any]] = self.until(found, f"{count} tasks of {job} run")
        return tasks

    def ends(self, job: str, state: str = "finished") -> Any:
        """Wait for a job's end, which must be this."""
        view = self.until(
            lambda: view if (view := self.client.job(job))["state"] in ENDED else None,
            f"{job} has ended",
        )
        assert view["state"] == state, f"{view}\n{self.log_tail()}"
        return view

    def result(self, job: str, task: int | None = None) -> bytes:
        """Return a result."""
        return b"".join(self.client.result(job, task))

    # --- waiting ---------------------------------------------------------------------------------

    def until(self, truth: Callable[[], Any], what: str, patience_s: float = _PATIENCE_S) -> Any:
        """Wait for something to become true, and return it."""
        pause_s, end = 0.05, time.monotonic() + patience_s
        while time.monotonic() < end:
            if found := truth():
                return found
            time.sleep(pause_s)
            pause_s = min(0.3, pause_s * 1.1)  # what takes long is asked about less often
        raise AssertionError(f"after {patience_s} s still not: {what}\n{self.log_tail()}")

    def logged(self) -> str:
        """Return the log of the controllers, without what was forgotten."""
        try:
            text = (self.state / "controller.log").read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return text[self._forgotten :]

    def forget_log(self) -> None:
        """Leave out of the log from now on what it has by now."""
        self._forgotten += len(self.logged())

    def tracebacks(self) -> list[str]:
        """Return the lines of the log with which tracebacks begin."""
        return [line for line in self.logged().splitlines() if line.startswith("Traceback")]

    def log_tail(self) -> str:
        """Return the end of the controllers' log, and the jobs."""
        try:
            jobs = [f"{j['id']} {j['state']} {j['tasks']}" for j in self.client.jobs()["jobs"]]
        except (WorldError, RuntimeError) as error:  # it is down, or we have hung up
            jobs = [str(error)]
        return "\n".join([*self.logged().splitlines()[-40:], *jobs])

    # --- breaking it -----------------------------------------------------------------------------

    @property
    def cluster(self) -> LocalCluster:
        """The Ray nodes."""
        cluster = local_cluster(self.state)
        assert cluster is not None
        return cluster

    def kill_controller(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the controller, by default with SIGKILL."""
        controller = psutil.Process(self.client.info()["pid"])
        controller.send_signal(number)
        gone_or_zombie(controller)

    def actors(self, kind: str, node: str | None = None) -> list[psutil.Process]:
        """Return the processes of Ray actors of a class, of one node or all."""
        sessions = self.cluster.sessions
        wanted = {s for name, s in sessions.items() if node in (None, name)}
        found = []
        for process in psutil.process_iter():
            try:
                command = process.cmdline()
                if command and command[0].startswith(f"ray::{kind}"):
                    found += [process] if os.getsid(process.pid) in wanted else []
            except (OSError, psutil.Error):
                continue
        return found

    def kill_node(self, node: str) -> None:
        """Crash a node."""
        kill_node(self.state, node)

    def restart_node(self, node: str) -> None:
        """Start a crashed node again."""
        start_node(self.state, next(n for n in self.nodes if n.id == node))
        self.restarted.add(node)

    def up_nodes(self) -> set[str]:
        """Return the nodes that are up."""
        return {node["id"] for node in self.client.nodes() if node["state"] == "up"}


class Headgate(System):
    """Nodes n0, n1, ... in two racks, and a controller, in a directory of their own."""

    def __init__(
        self, *, nodes: int, gpus: int, up: tuple[str, ...] = (), python: str | None = None
    ) -> None:
        """`up` are further arguments of `headgate up`; `python` runs it, if not ours."""
        self._program = [str(_PROGRAM)] if python is None else [python, "-c", _MAIN]
        # spares would start for each of many short lives
        self._shape = (f"--nodes={nodes}", f"--gpus={gpus}", "--racks=2", "--spares=0")
        self._size = (*self._shape, *up)
        self.base = Path(tempfile.mkdtemp(prefix="hg-system-", dir="/tmp"))
        self.base.chmod(0o755)  # its members may come in; what lies there decides for itself
        places = [
            Node(
                id=f"n{i}",
                rack=f"r{i * 2 // nodes}",
                gpus=(Gpu(memory_bytes=GPU_MEMORY_BYTES),) * gpus,
            )
            for i in range(nodes)
        ]
        super().__init__(self.base / "state", places)

    def __enter__(self) -> Self:
        """Bring it up."""
        try:
            self.up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop Headgate; no process may remain, and a failed test shows the controller's log."""
        if error is not None:
            sys.stderr.write(self.log_tail())
        self.close()

    def close(self) -> None:
        """Take it down and remove its directory; fail if any process is left running."""
        cluster = local_cluster(self.state)
        self.close_client()
        for node in self.restarted:  # our children: we must be the ones to bury them
            self.kill_node(node)
        self.call("down", "-y")
        end = time.monotonic() + _LEFT_S
        while (left := traces(self.state, cluster)) and time.monotonic() < end:
            time.sleep(0.1)  # agents of a Ray node that was killed end on their own
        tracebacks = self.tracebacks()
        tail = self.log_tail() if tracebacks else ""
        family = run_limits._family(self.state / "nodes")
        shutil.rmtree(self.base, ignore_errors=True)
        assert left == [], f"left running: {left}"
        groups = list(Path("/sys/fs/cgroup").glob(f"**/{family}"))
        assert groups == [], f"left control groups: {groups}"
        assert tracebacks == [], f"the controller failed:\n{tail}"

    # --- the command line ------------------------------------------------------------------------

    def run(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run one command line, by default in our directory."""
        return subprocess.run(
            [*self._program, *arguments],
            capture_output=True,
            check=False,
            cwd=cwd,
            env={**os.environ, "HEADGATE_STATE": str(self.state)},
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=180,
        )

    def call(self, *arguments: str, code: int = 0) -> Any:
        """Run one command line that ends with this exit code, and return the JSON it prints.

        That is what stands on stderr for one that fails.
        """
        done = self.run(*arguments, "-o", "json")
        output = f"headgate {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, output
        assert done.returncode == code, output
        return json.loads(done.stdout or done.stderr)

    def up(self) -> Any:
        """Start the nodes and the controller that are down."""
        return self.call("up", *self._size)

    def renew(self, up: tuple[str, ...]) -> None:
        """Start another controller, with these further arguments of `headgate up`."""
        self.kill_controller()
        self._size = (*self._shape, *up)
        self.up()


def gone_or_zombie(process: psutil.Process, patience_s: float = 30.0) -> None:
    """Wait until a process runs no more."""
    end = time.monotonic() + patience_s
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end, f"still running: {process}"
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def traces(state: Path, cluster: LocalCluster | None) -> list[str]:
    """Return the running processes that belong to a state directory or its cluster."""
    marks = [str(state).encode()]
    sessions: set[int] = set()
    if cluster is not None:
        marks += [cluster.mark.encode(), f"{cluster.temp}/".encode()]
        sessions = set(cluster.sessions.values())
    found = []
    for process in psutil.process_iter():
        try:
            process_data = Path(f"/proc/{process.pid}/environ").read_bytes()
            process_data += Path(f"/proc/{process.pid}/cmdline").read_bytes()
            ours = os.getsid(process.pid) in sessions or any(mark in process_data for mark in marks)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {process.cmdline()}")
        except (OSError, psutil.Error):
            continue
    return found


class Gates:
    """Tasks that wait until their gate opens, and record every start and end."""

    def __init__(self, folder: Path) -> None:
        """Keep gates and traces in a folder."""
        self._folder = folder
        folder.mkdir()
        self._silent = folder / "silent"
        os.mkfifo(self._silent)  # nothing is written to it: bash waits there without a process
        self._trace = folder / "trace"
        self._trace.touch()

    def command(self, then: str = "echo {index} > {output}", name: str = "") -> str:
        """Return the command of a task, which waits at the gate of its index."""
        gate = f"{self._folder}/{name}{{index}}"
        return (
            f"echo start {name}{{index}} $$ >> {self._trace}; "
            f"until [ -e {gate} ]; do read -rt 0.1 <> {self._silent} || true; done; {then}; "
            f"echo end {name}{{index}} $$ >> {self._trace}"
        )

    def open(self, *indices: int, name: str = "") -> None:
        """Open the gates of tasks."""
        for index in indices:
            (self._folder / f"{name}{index}").touch()

    def lines(self) -> list[str]:
        """Return the trace: `start` or `end`, which task, and its process, in order."""
        return self._trace.read_text().splitlines()

    def seen(self, what: str) -> list[str]:
        """Return which tasks have come to their `start` or `end`, in order, each time."""
        lines = [line.split() for line in self.lines()]
        return [line[1] for line in lines if line[0] == what]

    def alive(self) -> list[int]:
        """Return the processes of running tasks."""
        pids = {int(line.split()[2]) for line in self.lines()}
        return sorted(pid for pid in pids if psutil.pid_exists(pid) and _runs(pid))


@contextmanager
def controlled(bed: Bed, config: ControllerConfig) -> Iterator[System]:
    """Run a controller that lives where the bed's head does: from there all nodes are reached."""
    save_config(bed.state, config)
    command = [*bed.enter, sys.executable, "-m", "headgate.app", "controller"]
    with (bed.state / "controller.log").open("wb") as log:
        controller = subprocess.Popen(
            [*command, "--state", str(bed.state)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    headgate = System(bed.state, bed.nodes)
    try:
        headgate.until(headgate.answers, "the controller answers")
        headgate.until(lambda: len(headgate.up_nodes()) == len(bed.nodes), "all nodes have joined")
        yield headgate
    finally:
        controller.terminate()
        status = controller.wait(60)
        headgate.close_client()
    assert status == 0, headgate.log_tail()
    assert "Traceback" not in headgate.logged(), headgate.logged()
