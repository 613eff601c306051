"""Ports of a Ray node: a block of its own, below the ports that the kernel gives by itself.

Ray listens on every address of its machine, whatever the address of its node, so that only the
ports distinguish its sockets from those of others. They are all chosen here, and a packet filter
can be set on them before any process listens (`headgate.live.cluster.packet_filter`).

Only the standard library is used, as workers import this module.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from headgate.base.errors import WorldError

FIRST_PORT, LAST_PORT = 20_000, 27_999
"""All blocks are between these. Above are the ports where gangs meet, below those of Ray itself."""

_UNIT = 50  # ports; blocks consist of units
_LISTEN = "0A"  # as the kernel shows it
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
        services = [f"--{name}-port={self.first + 3 + index}" for index, name in enumerate(names)]
        workers = (self.first + _SERVICES, self.last)
        return [*services, f"--min-worker-port={workers[0]}", f"--max-worker-port={workers[1]}"]


@contextmanager
def claimed_ports(count: int) -> Iterator[tuple[PortBlock, tuple[int, ...]]]:
    """Claim a free block of `count` ports, or of fewer where no such block is free.

    Yields the block and the descriptors of its claim: sockets that are bound to the first port of
    every 50. The claim lasts as long as any process has them open. WorldError `no_port` when no
    block is free.
    """
    units, listening = count // _UNIT, _listening()
    while units:
        places = range(FIRST_PORT, LAST_PORT + 2 - units * _UNIT, units * _UNIT)
        # Not the first free one: ports that were just given up would soon be those of others.
        for first in random.sample(places, len(places)):
            block = PortBlock(first=first, last=first + units * _UNIT - 1)
            if not listening.isdisjoint(range(block.first, block.last + 1)):
                continue
            with ExitStack() as claims:
                try:
                    descriptors = tuple(
                        claims.enter_context(_bound(first + unit * _UNIT)) for unit in range(units)
                    )
                    for port in range(first + 1, first + _SERVICES):
                        with _bound(port, reuse=True):
                            pass
                except OSError:  # it is claimed, or a connection of others has such a port
                    continue
                yield block, descriptors
                return
        units //= 2
    text = f"no {_UNIT} ports in a row between {FIRST_PORT} and {LAST_PORT} are free for Ray"
    raise WorldError(text, code="no_port")


@contextmanager
def _bound(port: int, *, reuse: bool = False) -> Iterator[int]:
    """Bind a socket to a port, as a server would that may `reuse` it; OSError if it is taken."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        bound.bind(("", port))
        yield bound.fileno()


def _listening() -> set[int]:
    """Return the ports at which any process listens; those of connections are not among them."""
    found = set()
    for name in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):  # without IPv6
            for line in Path("/proc/net", name).read_text().splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                if state == _LISTEN:
                    found.add(int(local.rpartition(":")[2], 16))
    return found
