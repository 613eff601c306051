"""The hub of a gang whose program runs on its first node only: it starts commands on the others.

MPI's `mpirun` starts its daemons on the other nodes by an agent in the manner of `rsh`. Headgate's
agent (`headgate.live.run.rsh_agent`) asks the hub, a thread in the first member's worker, which
asks the worker of the member on that node. So every daemon is a descendant of its node's run: it
has the GPUs and the environment of that run and ends with it, without a login or a key.

All connections come to the hub, and carry JSON lines; the first one has the token.

    {"token", "member": rank, "offer"}  from a member; then to it {"run", "command"} and {"end"}
    {"token", "host", "command"}        from an agent; then to it the output, or {"error"}
    {"token", "rank", "command"}        the same, by the number of a member
    {"token", "output": run}            from a member, then the output of a command that it runs:
                                        {"stream": 1 or 2, "data"} with base64, last {"status"}

The end of a connection ends what it stands for: an agent's its command, a member's its run. What a
member offers is for the program of the first one (see `headgate.live.run.ray_program`). Only
the standard library is used, as the worker imports this module.
"""

from __future__ import annotations

import base64
import hmac
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

_LONGEST = 1 << 22  # bytes of a line
_PIECE = 1 << 16
_RETRY_S = 0.2
_PATIENCE_S = 20.0  # for the stop of a run whose hub was lost, which usually follows
_LONG_S = 15.0
_ENDED = 255  # the status of commands that end with the run
_DRAIN_S = 1.0  # for output of processes that a command has left
_AGENT = Path(__file__).with_name("rsh_agent.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPlace:
    """A member's place in a gang with one task per node: its rank, and all addresses by rank.

    MPI starts `slots` processes on a node, one per GPU at most. With `first_only` the program runs
    in the first member alone, whose hub listens on `hub_port`.
    """

    rank: int
    hosts: Sequence[str]
    slots: int
    first_only: bool
    hub_port: int
    token: str


def run_member(place: GangPlace, directory: Path, program: Callable[[], str]) -> str:
    """Run a member of a gang in its working directory; return the error, or ''.

    It runs `program`, or what the first member starts on its node.
    """
    _set_variables(place, directory)
    if not place.first_only:
        return program()
    if place.rank:
        return serve(place)
    try:
        hub = Hub(place)
    except OSError as error:
        return f"port {place.hub_port} on {place.hosts[0]} cannot be used: {error}"
    with hub:
        hub.wait_for_members()
        return program()


def _set_variables(place: GangPlace, directory: Path) -> None:
    """Write the files of a gang, and set the variables that name them."""
    hostfile = directory / "hostfile"
    hostfile.write_text("".join(f"{host} slots={place.slots}\n" for host in place.hosts))
    os.environ["HEADGATE_HOSTFILE"] = str(hostfile)
    if not place.first_only:
        return
    rendezvous = directory / "rendezvous.json"
    rendezvous.touch(mode=0o600)
    hub = {"host": place.hosts[0], "port": place.hub_port, "token": place.token}
    rendezvous.write_text(json.dumps(hub))
    agent = f"{sys.executable} -I -S {_AGENT}"
    os.environ |= {
        "HEADGATE_RENDEZVOUS": str(rendezvous),
        "OMPI_MCA_plm_rsh_agent": agent,  # Open MPI 4
        "OMPI_MCA_orte_default_hostfile": str(hostfile),
        "PRTE_MCA_plm_ssh_agent": agent,  # Open MPI 5
        "PRTE_MCA_prte_default_hostfile": str(hostfile),
    }


class Channel:
    """A connection that carries JSON lines; `send` may be called by several threads."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._lock = connection, threading.Lock()
        self._file = connection.makefile("rb")

    def send(self, **message: Any) -> bool:
        """Send a message; return whether the connection is still open."""
        try:
            with self._lock:
                self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def read(self) -> dict[str, Any] | None:
        """Return the next message, None at the end of the connection and for anything else."""
        try:
            line = self._file.readline(_LONGEST)
            message = json.loads(line) if line.endswith(b"\n") else None
        except (OSError, ValueError):
            return None
        return message if isinstance(message, dict) else None

    def close(self) -> None:
        """Close it; a thread that reads from it continues with None."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Hub:
    """Starts commands on the nodes of a gang; a context in which it accepts connections."""

    def __init__(self, place: GangPlace) -> None:
        """Listen on the address of the first member; OSError if that is impossible."""
        self._place = place
        self._server = socket.create_server((place.hosts[0], place.hub_port))
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()  # guards all below
        self._members: dict[int, Channel] = {}  # by rank
        self._offers: dict[int, Any] = {}
        self._agents: dict[int, Channel] = {}  # by number of the run
        self._outputs: dict[int, Channel] = {}

    def __enter__(self) -> Self:
        """Accept connections."""
        _in_thread(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the members' part; what they have started ends with them."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._changed:
            members, agents = list(self._members.values()), list(self._agents.values())
        for agent in agents:
            agent.send(status=_ENDED)
        for member in members:
            member.send(end=True)

    def wait_for_members(self) -> dict[int, Any]:
        """Wait until all members are connected, and return what each other one offers, by rank.

        The log names those that take long.
        """
        others = range(1, len(self._place.hosts))
        with self._changed:
            while not self._changed.wait_for(lambda: len(self._members) == len(others), _LONG_S):
                absent = [self._place.hosts[rank] for rank in others if rank not in self._members]
                sys.stderr.write(f"headgate: waiting for the processes on {', '.join(absent)}\n")
                sys.stderr.flush()
            return dict(self._offers)

    def start(self, rank: int, command: str) -> Channel:
        """Start a shell command as a part of a member's run; return the channel of its output.

        Closing the channel ends the command.
        """
        channel = _connect(self._place)
        channel.send(token=self._place.token, rank=rank, command=command)
        return channel

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # the hub is closed
                return
            _in_thread(self._answer, Channel(connection))

    def _answer(self, channel: Channel) -> None:
        with closing(channel):
            hello = channel.read() or {}
            if not hmac.compare_digest(str(hello.get("token")), self._place.token):
                return
            match hello:
                case {"member": int(rank)}:
                    self._keep(rank, channel, hello.get("offer"))
                case {"host": str(host), "command": str(command)}:
                    self._start_on(host, command, channel)
                case {"rank": int(rank), "command": str(command)}:
                    self._start(rank, command, channel)
                case {"output": int(number)}:
                    self._carry(number, channel)
                case _:
                    pass

    def _keep(self, rank: int, member: Channel, offer: Any) -> None:
        """Keep a member's connection until it ends."""
        with self._changed:
            self._members[rank] = member
            self._offers[rank] = offer
            self._changed.notify_all()
        while member.read() is not None:
            pass
        with self._changed:
            if self._members.get(rank) is member:
                del self._members[rank]

    def _start_on(self, host: str, command: str, agent: Channel) -> None:
        """Start a command for an agent that names an address."""
        if host not in self._place.hosts:
            known = ", ".join(self._place.hosts)
            agent.send(error=f"'{host}' is no node of this job; its nodes are {known}")
            return
        self._start(list(self._place.hosts).index(host), command, agent)

    def _start(self, rank: int, command: str, agent: Channel) -> None:
        """Start a command for an agent, and end it when the agent ends."""
        with self._changed:
            number, member = next(self._numbers), self._members.get(rank)
            self._agents[number] = agent
        if rank == 0:
            _in_thread(_execute, self._place, number, command)
        elif member is None or not member.send(run=number, command=command):
            agent.send(error=f"the process on {self._place.hosts[rank]} has ended")
            return
        agent.read()  # it sends nothing: this is its end
        with self._changed:
            del self._agents[number]
            output = self._outputs.pop(number, None)
        if output is not None:
            output.close()

    def _carry(self, number: int, output: Channel) -> None:
        """Pass the output of a command on to its agent."""
        with self._changed:
            agent = self._agents.get(number)
            if agent is None:  # it has ended already
                return
            self._outputs[number] = output
        while (message := output.read()) is not None and agent.send(**message):
            pass
        agent.close()


def serve(place: GangPlace, offer: Any = None) -> str:
    """Run what the hub wants to be run on this node until it ends; return the error, or ''.

    `offer` (a value of JSON) is for the program of the first member. SIGTERM is a notice: it still
    waits for the hub's end, but no longer for the hub.
    """
    notices: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: notices.append(number))
    connection = _connect_once_up(place, notices)
    if connection is None:
        return "it was stopped before the first process had started"
    with closing(connection) as hub:
        hub.send(token=place.token, member=place.rank, offer=offer)
        while (message := hub.read()) is not None:
            if "end" in message:
                return ""
            _in_thread(_execute, place, int(message["run"]), str(message["command"]))
    lost_s = time.monotonic()
    while not notices and time.monotonic() < lost_s + _PATIENCE_S:
        time.sleep(_RETRY_S)
    return f"the connection to the first process, on {place.hosts[0]}, was lost"


def _connect_once_up(place: GangPlace, notices: Sequence[int]) -> Channel | None:
    """Connect to the hub once it listens; return None if there is a notice first."""
    while not notices:
        with suppress(OSError):
            return _connect(place)
        time.sleep(_RETRY_S)
    return None


def _connect(place: GangPlace) -> Channel:
    return Channel(socket.create_connection((place.hosts[0], place.hub_port)))


def _execute(place: GangPlace, number: int, command: str) -> None:
    """Run a command as a login shell would that `rsh` starts; it ends with its connection."""
    with closing(_connect(place)) as hub:
        hub.send(token=place.token, output=number)
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        _in_thread(_end_with, process, hub)
        streams = [
            _in_thread(_forward, hub, number, stream)
            for number, stream in ((1, process.stdout), (2, process.stderr))
        ]
        status = process.wait()
        for stream in streams:
            stream.join(_DRAIN_S)
        hub.send(status=status if status >= 0 else 128 - status)


def _forward(hub: Channel, number: int, stream: IO[bytes]) -> None:
    while piece := os.read(stream.fileno(), _PIECE):
        hub.send(stream=number, data=base64.b64encode(piece).decode())


def _end_with(process: subprocess.Popen[bytes], hub: Channel) -> None:
    hub.read()  # it sends nothing: this is its end
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def _in_thread(function: Callable[..., None], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread
