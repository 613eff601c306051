"""A test bed for experiments: a Ray cluster on one machine, in racks with shaped uplinks.

As root with iproute2, every node has a network namespace of its own. Nodes are connected to a
bridge per rack, racks to a core bridge; the rate of a rack's uplink can be changed at any time.
Otherwise all nodes use loopback addresses and the network cannot be shaped.

    with Bed({"r0": 2, "r1": 2}) as bed:
        bed.shape("r1", mbit_per_s=100)
        subprocess.run([*bed.enter, sys.executable, "-m", ...])  # a driver, on the head

It removes its processes, namespaces and files at the end and after a failure. If its process is
killed, the next test bed removes them.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from headgate.live.cluster.ray_nodes import (
    HEAD,
    LocalCluster,
    Seat,
    start_nodes,
    stop_nodes,
)
from headgate.model import Gpu, Node

HAS_NETWORK = os.geteuid() == 0 and bool(shutil.which("ip")) and bool(shutil.which("tc"))
PAYLOAD = 1448 / 1514
"""Data per byte that the shaper counts: 1448 of the 1514 bytes of a frame."""

_PREFIX = "hgbed"


class Bed:
    """Nodes n0, n1, ... through the racks in order, by default with two virtual GPUs of 2 GiB."""

    def __init__(
        self,
        racks: Mapping[str, int],
        *,
        gpus: int = 2,
        cpus: Sequence[int] = (),
        network: bool = HAS_NETWORK,
        ray: bool = True,
    ) -> None:
        """Set the nodes by rack; nothing starts yet. `network` = False uses loopback addresses.

        `cpus` are the CPUs that each node declares, by default 4; all nodes share the machine's.
        `ray` = False builds the network alone, for programs that `seats` are enough for.
        """
        places = [rack for rack, count in racks.items() for _ in range(count)]
        self.nodes = tuple(
            Node(
                id=f"n{number}",
                rack=rack,
                gpus=(Gpu(memory_bytes=2 << 30),) * gpus,
                cpus=cpus[number] if cpus else 4,
            )
            for number, rack in enumerate(places)
        )
        self._racks = tuple(racks)
        self._network = network
        self._ray = ray
        self._name = f"{_PREFIX}{os.getpid()}x{id(self):x}"
        self.state = Path(tempfile.gettempdir()) / self._name
        self.root = self.state / "nodes"
        self.seats: dict[str, Seat] = {}
        self.cluster: LocalCluster

    def __enter__(self) -> Self:
        """Build the network and start the nodes."""
        remove_leftovers()
        atexit.register(self.close)
        try:
            self.state.mkdir(mode=0o700)
            seats = self._build_network() if self._network else []
            names = (HEAD, *(node.id for node in self.nodes))
            self.seats = dict(zip(names, seats, strict=False))
            if self._ray:
                self.cluster = start_nodes(self.state, self.nodes, seats=seats)
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
        """Stop the nodes and remove the network and all files."""
        self.close()

    def close(self) -> None:
        """Stop the nodes and remove the network and all files; idempotent."""
        atexit.unregister(self.close)
        _remove(self._name)

    @property
    def enter(self) -> tuple[str, ...]:
        """The command prefix that runs a driver on the head's network; empty without namespaces."""
        return self.cluster.seats[HEAD].enter

    def shape(self, rack: str, *, mbit_per_s: float) -> None:
        """Limit a rack's uplink in both directions from now on; its nodes share it equally."""
        nodes = [number for number, node in enumerate(self.nodes) if node.rack == rack]
        whole = ("htb", "rate", f"{mbit_per_s}mbit")
        share = ("htb", "rate", f"{mbit_per_s / (len(nodes) + 1)}mbit", "ceil", whole[2])
        for device in (f"up-{rack}", f"dn-{rack}"):
            self._class(device, "1:", "1:1", whole)
            self._class(device, "1:1", "1:2", share)  # traffic of no node
            for number in nodes:
                self._class(device, "1:1", f"1:{number + 10:x}", share)

    def _class(self, device: str, parent: str, number: str, rate: tuple[str, ...]) -> None:
        self._fabric(
            *("class", "replace", "dev", device, "parent", parent, "classid", number, *rate),
            tool="tc",
        )

    def _build_network(self) -> list[Seat]:
        _ip("netns", "add", self._space("fabric"))
        self._fabric("link", "add", "core", "type", "bridge")
        self._fabric("link", "set", "core", "up")
        for rack in self._racks:
            self._fabric("link", "add", f"rack-{rack}", "type", "bridge")
            self._fabric("link", "set", f"rack-{rack}", "up")
            up, down = f"up-{rack}", f"dn-{rack}"
            self._fabric("link", "add", up, "type", "veth", "peer", "name", down)
            for device, bridge in ((up, f"rack-{rack}"), (down, "core")):
                self._fabric("link", "set", device, "master", bridge, "up")
                self._fabric(
                    *("qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", "2"),
                    tool="tc",
                )
            self.shape(rack, mbit_per_s=1000)
        seats = [self._plug_in(HEAD, "core", "10.77.255.1")]
        for number, node in enumerate(self.nodes):
            address = f"10.77.{self._racks.index(node.rack)}.{number + 1}"
            seats.append(self._plug_in(node.id, f"rack-{node.rack}", address))
            for device, side in ((f"up-{node.rack}", "src"), (f"dn-{node.rack}", "dst")):
                self._fabric(
                    *("filter", "add", "dev", device, "parent", "1:", "protocol", "ip", "u32"),
                    *("match", "ip", side, address, "flowid", f"1:{number + 10:x}"),
                    tool="tc",
                )
        return seats

    def _plug_in(self, name: str, bridge: str, address: str) -> Seat:
        space = self._space(name)
        _ip("netns", "add", space)
        _ip("-n", space, "link", "set", "lo", "up")
        self._fabric("link", "add", f"v-{name}", "type", "veth", "peer", "eth0", "netns", space)
        self._fabric("link", "set", f"v-{name}", "master", bridge, "up")
        _ip("-n", space, "addr", "add", f"{address}/16", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        return Seat(address=address, enter=("ip", "netns", "exec", space))

    def _space(self, name: str) -> str:
        return f"{self._name}-{name}"

    def _fabric(self, *command: str, tool: str = "ip") -> None:
        _run(tool, "-n", self._space("fabric"), *command)


def remove_leftovers() -> None:
    """Remove the test beds of processes that have died."""
    names = {path.name for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")}
    names |= {space.rpartition("-")[0] for space in _spaces()}
    for name in sorted(names):
        owner = name.removeprefix(_PREFIX).partition("x")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            _remove(name)


def _remove(name: str) -> None:
    """Kill the drivers and nodes of a test bed, then remove its network and its files."""
    state = Path(tempfile.gettempdir()) / name
    _end_drivers(state)
    stop_nodes(state)
    for space in _spaces():
        if space.startswith(f"{name}-"):
            _end_processes(space)
            _ip("netns", "delete", space)
    shutil.rmtree(state, ignore_errors=True)


def _end_drivers(state: Path) -> None:
    """Kill the drivers of a test bed, such as a controller: their arguments have its directory."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if str(state) in process.cmdline() and process.pid != os.getpid():
                process.kill()
                found.append(process)
    psutil.wait_procs(found, timeout=5)


def _end_processes(space: str) -> None:
    """Kill what still runs in a network namespace."""
    listed = _run("ip", "netns", "pids", space)
    found = []
    for number in listed.split():
        with suppress(psutil.Error):
            process = psutil.Process(int(number))
            process.kill()
            found.append(process)
    psutil.wait_procs(found, timeout=5)


def _spaces() -> list[str]:
    if not HAS_NETWORK:
        return []
    listed = subprocess.run(
        ["ip", "-json", "netns", "list"], check=True, capture_output=True, text=True, timeout=10
    ).stdout
    spaces = (entry["name"] for entry in json.loads(listed or "[]"))
    return [space for space in spaces if space.startswith(_PREFIX)]


def _ip(*command: str) -> None:
    _run("ip", *command)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
