"""A Ray program in its worker: a Ray cluster of its own inside the grant, then its script.

The program is a gang, whose members on one node offer what they hold to one Ray node there. The
first member's worker collects the offers through its hub (`headgate.live.run.hub`), which starts a
Ray node on each node, in the run of the member with the lowest rank there. When all are up, it runs
the script, as is; `RAY_ADDRESS` leads it to this cluster. When the script or any Ray node has
ended, so does the run, and the guards end all processes of the members.

Only the standard library is used, as the worker imports this module.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue

from headgate.live.base.exit_status import how_it_ended
from headgate.live.cluster.ray_ports import PortBlock
from headgate.live.run import ray_shared, ray_start
from headgate.live.run.hub import Channel, GangPlace, Hub, serve

GIVEN_OUT = "other Ray programs were faster to use what it was granted of the Ray cluster"
"""The error of a shared program that does not run for no fault of its own."""

_STARTED = "Ray runtime started"
_START_S = 180.0
_ASK_S = 10.0
_SEEN_S = 1.5  # `ray start` looks at its processes every second
_TAIL_LINES = 30
_STORE_PART = 0.3  # of the memory, as in other Ray clusters; it is taken when it is used
_STORE_LEAST = 80_000_000  # bytes; Ray requires 75 MiB
_SHM_PART = 0.95
_SHM = "/dev/shm"
_LEAST = 1_000_000
_CGROUP = Path("/sys/fs/cgroup/memory.max")
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",  # workers start when they are needed
    # No API server runs. Without an address, Ray Train waits 40 s for one; this one refuses.
    "RAY_API_SERVER_ADDRESS": "http://127.0.0.1:9",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RayPlace:
    """A member of a Ray program: its program's arguments, and what it holds of its node.

    `ports` are the first and the last port of a Ray node here, 0 for a shared program; the head is
    on the first member's node. `directory`, on this node, is for the Ray node's files and is
    removed after the run. `cpus` of None are the GPUs' part of the
    `node_cpus`; `memory_bytes` of 0 the GPUs' part of the node's memory. `custom` are in
    thousandths. `shared` is set for a program on the Ray cluster of the node, whose Ray id is
    `ray_id`: the `env` of a driver, the `versions` there, and the `envs` of the program.
    """

    args: Sequence[str]
    node: str
    directory: str
    ports: Sequence[int]
    gpus: Sequence[int]
    cpus: int | None
    memory_bytes: int
    custom: Mapping[str, int]
    node_cpus: int
    node_gpus: int
    ray_id: str = ""
    shared: Mapping[str, Mapping[str, str]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a member offers to the Ray node on its node, whose Python is `python`."""

    node: str
    directory: str
    ports: Sequence[int]
    python: str
    gpus: Sequence[int]
    cpus: int | None
    memory_bytes: int
    machine_bytes: int
    shm_bytes: int
    custom: Mapping[str, int]
    node_cpus: int
    node_gpus: int
    ray_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNode:
    """A Ray node to start in the run of the member `rank`, with exactly these amounts."""

    rank: int
    node: str
    directory: str
    ports: PortBlock
    python: str
    gpus: Sequence[int]
    cpus: int
    memory_bytes: int
    store_bytes: int
    custom: Mapping[str, int]


def run_ray(script: str, output: str, place: RayPlace, gang: GangPlace) -> str:
    """Run a member of a Ray program; return the error, or ''.

    The first one runs the script, whose result file is `output`.
    """
    token = Path(place.directory, "token")
    token.touch(mode=0o600)
    token.write_text(gang.token)
    offer = _offer(place)
    if gang.rank:
        error = serve(gang, asdict(offer))
        _report_processes()
        return error
    try:
        hub = Hub(gang)
    except OSError as error:
        return f"port {gang.hub_port} on {gang.hosts[0]} cannot be used: {error}"
    with hub:
        offers = {0: offer}
        for rank, fields in hub.wait_for_members().items():
            offers[rank] = Offer(**fields)
        if place.shared is not None:
            return _run_shared(script, output, place, offers)
        cluster = _Cluster(hub, gang.hosts, ray_nodes(offers))
        try:
            return cluster.start() or cluster.run([script, *place.args], output)
        finally:
            cluster.end()


def _run_shared(script: str, output: str, place: RayPlace, offers: Mapping[int, Offer]) -> str:
    """Run the program on the Ray cluster of its nodes; return the error, or ''."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # a notice is for the program
    shared = place.shared or {}
    settings = {
        "script": script,
        "args": list(place.args),
        "bundles": [(offers[node.rank].ray_id, _bundle(node)) for node in ray_nodes(offers)],
        "versions": shared["versions"],
        "envs": {**shared["envs"], "HEADGATE_OUTPUT": output},
        "directory": place.directory,
    }
    file = Path(place.directory, "settings")
    file.touch(mode=0o600)
    file.write_text(json.dumps(settings))
    status = subprocess.run(
        [program_python(), ray_shared.__file__, str(file)],
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **shared["env"]},
    ).returncode
    if Path(place.directory, ray_shared.REFUSED).exists():
        return GIVEN_OUT
    return how_it_ended("the program", status) if status else ""


def _bundle(node: RayNode) -> dict[str, float]:
    """Return what a program holds of a node as Ray's resources; never nothing."""
    amounts = {"GPU": len(node.gpus), "CPU": node.cpus}
    custom = {name: amount / 1000 for name, amount in node.custom.items()}
    held = {name: float(amount) for name, amount in {**amounts, **custom}.items() if amount}
    return held or {"CPU": 1.0}


def program_python() -> str:
    """Return the Python of the program, and of its Ray cluster: the first on the PATH.

    That is Headgate's own, unless the job puts another one before it.
    """
    found = shutil.which("python3") or shutil.which("python") or sys.executable
    ours = Path(found).parent == Path(sys.executable).parent
    return sys.executable if ours else found


def _offer(place: RayPlace) -> Offer:
    return Offer(
        node=place.node,
        directory=place.directory,
        ports=place.ports,
        python=program_python(),
        gpus=tuple(place.gpus),
        cpus=place.cpus,
        memory_bytes=place.memory_bytes,
        machine_bytes=_machine_bytes(),
        shm_bytes=_shm_bytes(),
        custom=place.custom,
        node_cpus=place.node_cpus,
        node_gpus=place.node_gpus,
        ray_id=place.ray_id,
    )


def _machine_bytes() -> int:
    """Return the memory of this machine, or of the container it is."""
    size_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no limit
        return min(size_bytes, int(_CGROUP.read_text()))
    return size_bytes


def _shm_bytes() -> int:
    """Return the free shared memory; Ray puts a larger object store on a disk."""
    try:
        found = os.statvfs(_SHM)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def ray_nodes(offers: Mapping[int, Offer]) -> list[RayNode]:
    """Return the Ray nodes that the offers of a program's members, by rank, make; the head first.

    The members on one node make one Ray node, in the run of the lowest rank there.
    """
    ranks: dict[str, list[int]] = {}
    for rank in sorted(offers):
        ranks.setdefault(offers[rank].node, []).append(rank)
    return [_joined(here[0], [offers[rank] for rank in here]) for here in ranks.values()]


def _joined(rank: int, offers: Sequence[Offer]) -> RayNode:
    first = offers[0]
    gpus = sorted(gpu for offer in offers for gpu in offer.gpus)
    if any(offer.cpus is None for offer in offers):
        cpus = max(len(gpus), first.node_cpus * len(gpus) // max(1, first.node_gpus))
    else:
        cpus = sum(offer.cpus or 0 for offer in offers)
    memory_bytes = sum(offer.memory_bytes for offer in offers)
    if not memory_bytes:
        held, of = (len(gpus), first.node_gpus) if gpus else (cpus, first.node_cpus)
        memory_bytes = first.machine_bytes * min(held, of) // max(1, of)
    store_bytes = int(min(memory_bytes * _STORE_PART, first.shm_bytes * _SHM_PART))
    store_bytes = max(_STORE_LEAST, store_bytes)
    custom: dict[str, int] = {}
    for offer in offers:
        for name, amount in offer.custom.items():
            custom[name] = custom.get(name, 0) + amount
    return RayNode(
        rank=rank,
        node=first.node,
        directory=first.directory,
        ports=PortBlock(first=first.ports[0], last=first.ports[1]),
        python=first.python,
        gpus=gpus,
        cpus=cpus,
        memory_bytes=max(_LEAST, memory_bytes - store_bytes),
        store_bytes=store_bytes,
        custom=custom,
    )


def variables(node: RayNode, address: str) -> dict[str, str]:
    """Return the environment of a Ray node, and of a program that uses the cluster from there."""
    return {
        **_SETTINGS,
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, node.gpus)),
        "RAY_ADDRESS": address,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": f"{node.directory}/token",
        "RAY_TMPDIR": node.directory,  # also of a Ray that the program starts by itself
    }


def command(node: RayNode, address: str, host: str, *, head: bool) -> str:
    """Return the shell command that starts a Ray node on the address `host`."""
    custom = {name: amount / 1000 for name, amount in node.custom.items()}
    words = [
        *("env", *(f"{name}={value}" for name, value in variables(node, address).items())),
        *(node.python, ray_start.__file__, _socket(node) if head else ""),
        *(f"--node-ip-address={host}", f"--node-name={node.node}"),
        # below the directory, which only its user can enter: Ray opens its own one to all users
        f"--temp-dir={node.directory}/r",
        *(f"--num-gpus={len(node.gpus)}", f"--num-cpus={node.cpus}"),
        *(f"--memory={node.memory_bytes}", f"--object-store-memory={node.store_bytes}"),
        *node.ports.options(),
        *("--disable-usage-stats", f"--resources={json.dumps(custom)}"),
    ]
    if head:
        words += ["--head", f"--port={node.ports.gcs}", "--no-monitor", "--include-dashboard=false"]
    else:
        words.append(f"--address={address}")
    return f"exec {shlex.join(words)}"


def _socket(head: RayNode) -> str:
    return f"{head.directory}/ask"


@dataclass(slots=True)
class _Output:
    """The end of what a Ray node has printed, and the channel that its output comes from."""

    channel: Channel
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))


class _Cluster:
    """The Ray nodes of a program."""

    def __init__(self, hub: Hub, hosts: Sequence[str], nodes: Sequence[RayNode]) -> None:
        """The first of `nodes` is the head, on this node."""
        self._hub, self._hosts, self._nodes = hub, hosts, nodes
        self._address = f"{hosts[0]}:{nodes[0].ports.gcs}"
        self._outputs: dict[str, _Output] = {}  # by node
        # What happens: (node, _STARTED), (node, how it ended), and ("", how the program ended).
        self._events: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self._program: subprocess.Popen[bytes] | None = None
        signal.signal(signal.SIGTERM, self._notified)

    def start(self) -> str:
        """Start the head, then all others; return the error, or ''."""
        head, *others = self._nodes
        return self._start_nodes([head]) or self._start_nodes(others)

    def run(self, arguments: Sequence[str], output: str) -> str:
        """Run the program until it or a Ray node ends; return the error, or ''."""
        head = self._nodes[0]
        environment = {**os.environ, **variables(head, self._address), "HEADGATE_OUTPUT": output}
        self._program = subprocess.Popen(
            [head.python, *arguments], stdin=subprocess.DEVNULL, env=environment
        )
        _in_thread(self._wait_for_program)
        name, how = self._events.get()
        if how and not name:  # a program often fails before the loss that it fails of is seen
            with suppress(Empty):
                name, how = self._events.get(timeout=_SEEN_S)
        if name:
            return self._failed(name, f"its Ray cluster lost node {name}: {how}")
        _report("detached actor", self._detached_actors())
        _report_processes()
        return how

    def end(self) -> None:
        """End all Ray nodes; the guards end what remains of them."""
        for output in self._outputs.values():
            output.channel.close()

    def _start_nodes(self, nodes: Sequence[RayNode]) -> str:
        waiting = {node.node for node in nodes}
        for node in nodes:
            head = node is self._nodes[0]
            text = command(node, self._address, self._hosts[node.rank], head=head)
            output = self._outputs[node.node] = _Output(self._hub.start(node.rank, text))
            _in_thread(self._follow, node.node, output)
        while waiting:
            try:
                name, how = self._events.get(timeout=_START_S)
            except Empty:
                name, how = min(waiting), f"it was not up within {_START_S:g} s"
            if not name:
                return how
            if how != _STARTED:
                return self._failed(name, f"its Ray cluster did not start on node {name}: {how}")
            waiting.remove(name)
        return ""

    def _failed(self, name: str, problem: str) -> str:
        """Write the end of a Ray node's output to the log, and return the problem."""
        output = self._outputs.get(name)
        for line in output.tail if output else ():
            if line.startswith("headgate: "):  # of `ray_start`
                return line.removeprefix("headgate: ")
            sys.stderr.write(f"{line}\n")
        return problem

    def _follow(self, name: str, output: _Output) -> None:
        """Read a Ray node's output until its end."""
        how, rest = "the connection to it was lost", ""
        while (message := output.channel.read()) is not None:
            if "stream" not in message:
                how = message.get("error") or f"it ended with exit status {message.get('status')}"
                break
            text = rest + base64.b64decode(message["data"]).decode(errors="replace")
            *lines, rest = text.split("\n")
            output.tail.extend(lines)
            if any(_STARTED in line for line in lines):
                self._events.put((name, _STARTED))
        self._events.put((name, how))

    def _wait_for_program(self) -> None:
        assert self._program is not None
        status = self._program.wait()
        self._events.put(("", how_it_ended("the program", status) if status else ""))

    def _notified(self, *_: object) -> None:
        """Handle the notice, which the program gets itself, once it runs."""
        if self._program is None:
            self._events.put(("", "it was stopped before its program started"))

    def _detached_actors(self) -> list[str]:
        """Return the names of the detached actors that the program has left."""
        with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as ask:
            ask.settimeout(_ASK_S)
            ask.connect(_socket(self._nodes[0]))
            with ask.makefile("rb") as answer:
                names: list[str] = json.load(answer)
            return names
        return []


def _report_processes() -> None:
    """Report the processes that the program has left on this node: orphans, which our guard has."""
    guard, found = os.getppid(), []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):  # it has ended, or is no process
            name, _, rest = (entry / "stat").read_text().rpartition(")")
            state, parent = rest.split()[:2]
            if int(parent) == guard and state != "Z" and int(entry.name) != os.getpid():
                found.append(name.partition("(")[2])
    _report("process", sorted(found))


def _report(what: str, names: Sequence[str]) -> None:
    """Write to the log what the program has left, and ends with it."""
    if names:
        plural = "" if len(names) == 1 else "es" if what.endswith("s") else "s"
        listed = ", ".join(names)
        sys.stderr.write(f"headgate: {len(names)} {what}{plural} removed: {listed}\n")
        sys.stderr.flush()


def _in_thread(function: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=function, args=arguments, daemon=True).start()
