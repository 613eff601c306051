"""Rendezvous: the ports and the token with which the members of a gang find each other.

The executor on the first node makes one per attempt of the gang, and returns the same for every
member. Members start only on nodes that are up, so it lives as long as an attempt that needs it.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack
from pathlib import Path

from headgate.base.errors import WorldError
from headgate.live.base.records import Rendezvous
from headgate.live.cluster.ray_ports import LAST_PORT

_FIRST, _LAST = LAST_PORT + 1, 60_000  # below are ports of services, Ray's among them
_LEAST = 1_000  # ports to choose from
_TRIES = 1_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class RendezvousMaker:
    """The rendezvous of the gangs whose first members run on this node, one of each job."""

    def __init__(self) -> None:
        """Nothing is reserved yet."""
        self._made: dict[str, tuple[int, Rendezvous, ExitStack]] = {}

    def of(self, job: str, attempt: int) -> Rendezvous:
        """Return the rendezvous of an attempt, which releases the ports of earlier ones.

        WorldError `no_port` when no port is free.
        """
        made = self._made.get(job)
        if made is not None and made[0] == attempt:
            return made[1]
        self.release(job, attempt)
        with ExitStack() as claims:
            token = secrets.token_hex(16)
            ports = _claim(claims), _claim(claims)
            found = Rendezvous(port=ports[0], hub_port=ports[1], token=token)
            self._made[job] = attempt, found, claims.pop_all()
        return found

    def release(self, job: str, attempt: int) -> None:
        """Release the ports of this attempt of a job, and of earlier ones."""
        made = self._made.get(job)
        if made is not None and made[0] <= attempt:
            del self._made[job]
            made[2].close()

    def close(self) -> None:
        """Release all ports."""
        for _, _, claims in self._made.values():
            claims.close()
        self._made.clear()


def _claim(claims: ExitStack) -> int:
    """Return a port that no process listens on, claimed against other executors of this node.

    The kernel gives it to no other socket by itself, and its claim, the name of a socket, ends with
    `claims`, or with this process.
    """
    last = _first_ephemeral() - 1
    if last < _FIRST + _LEAST:
        last = _LAST
    for _ in range(_TRIES):
        port = _FIRST + secrets.randbelow(last - _FIRST)
        with ExitStack() as attempt:
            claim = attempt.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            try:
                claim.bind(f"\0headgate-port-{port}")
                with socket.socket() as probe:
                    probe.bind(("", port))
            except OSError:
                continue
            claims.push(attempt.pop_all())
            return port
    raise WorldError("no port is free on the first node of the gang", code="no_port")


def _first_ephemeral() -> int:
    """Return the first port that the kernel gives to sockets without one."""
    try:
        return int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _LAST
