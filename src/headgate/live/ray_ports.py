"""Ports of a Ray node: a block of its own, below the ports that the kernel gives by itself.

Ray listens on every address of its machine, whatever the address of its node, so that only the
ports distinguish its sockets from those of others. They are all chosen here, and a packet filter
can be set on them before any process listens (`headgate.live.packet_filter`).

Only the standard library is used, as workers import this module.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from headgate.base.errors import WorldError

FIRST_PORT, LAST_PORT = 20_000, 27_999
"""All blocks are between these. Above are the ports where gangs meet, below those of Ray itself."""

_UNIT = 50  # ports; blocks consist of units
_SERVICES = 10  # ports at the beginning of a block that are not for workers


@dataclass(frozen=True, slots=True, kw_only=True)
class PortBlock:
    """The ports of a Ray node, from `first` to `last`; the first one is only its claim."""

    first: int
    last: int

    @property
    def gcs(self) -> int:
        """The port at which the cluster is known, where the node is its head."""
        return self.first + 1

    @property
    def client_server(self) -> int:
        """The port of the server for Ray clients, where a head has one."""
        return self.first + 2

    def options(self) -> list[str]:
        """Return the arguments of `ray start` that keep all processes of a node in the block."""
        names = (
            "node-manager",
            "object-manager",
            "runtime-env-agent",
            "dashboard-agent-grpc",
            "dashboard-agent-listen",
            "metrics-export",
        )
        services = [f"--{name}-port={self.first + 3 + at}" for at, name in enumerate(names)]
        workers = (self.first + _SERVICES, self.last)
        return [*services, f"--min-worker-port={workers[0]}", f"--max-worker-port={workers[1]}"]


@contextmanager
def claimed_ports(count: int) -> Iterator[tuple[PortBlock, tuple[int, ...]]]:
    """Claim a free block of `count` ports, or of fewer where no such block is free.

    Yields the block and the descriptors of its claim: sockets that are bound to the first port of
    every 50. The claim lasts as long as any process has them open. WorldError `no_port` when no
    block is free.
    """
    units = count // _UNIT
    while units:
        for first in range(FIRST_PORT, LAST_PORT + 2 - units * _UNIT, units * _UNIT):
            with ExitStack() as claims:
                try:
                    descriptors = tuple(
                        claims.enter_context(_claim(first + unit * _UNIT)) for unit in range(units)
                    )
                except OSError:
                    continue
                yield PortBlock(first=first, last=first + units * _UNIT - 1), descriptors
                return
        units //= 2
    text = f"no {_UNIT} ports in a row between {FIRST_PORT} and {LAST_PORT} are free for Ray"
    raise WorldError(text, code="no_port")


@contextmanager
def _claim(first: int) -> Iterator[int]:
    """Claim a unit; OSError if it is claimed, or a process listens on any of its ports."""
    with socket.socket() as claim:
        claim.bind(("", first))
        for port in range(first + 1, first + _UNIT):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("", port))
        yield claim.fileno()
