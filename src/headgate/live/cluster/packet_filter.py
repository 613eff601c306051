"""The packet filter: ports of Ray that only some users of this machine can connect to.

Ray's servers listen on every address, and one call without a token ends some of them. Where this
process may, it therefore sets a table of nftables for each Ray node or cluster: new connections to
its ports are refused, unless a process of a user in question makes them, or a host in question. A
table is named after a process, its owner, and removed once that has ended.
"""

from __future__ import annotations

import ctypes
import ipaddress
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headgate.live.base.account import SYSTEM_PATH
from headgate.live.base.control_groups import identity
from headgate.live.cluster.ray_ports import PortBlock

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NFT_S = 20.0
_CONNECT_S = 5.0
_OVERFLOW_UID = 65534  # of a user without rights
_OPENS = "tcp flags & (fin | syn | rst | ack) == syn"
"""Only what opens a connection: where the kernel gives ports from the same range to connections of
others, what they receive passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shield:
    """Ports that only root, `users` and the addresses `hosts` may connect to.

    `owner` is the process, of this machine, that it is for; `name` distinguishes its shields.
    """

    ports: Sequence[PortBlock]
    owner: int
    users: Sequence[int] = ()
    hosts: Sequence[str] = ()
    name: str = "ray"


def set_shield(shield: Shield) -> str:
    """Set a shield, in the place of one with the same owner and name, and remove those of the dead.

    Returns why that is impossible, '' if it is in force. Idempotent.
    """
    remove_shields_of_the_dead()
    if not _identity(shield.owner):
        return f"process {shield.owner} has ended"
    try:
        hosts = sorted({ipaddress.ip_address(host) for host in shield.hosts}, key=str)
    except ValueError as error:
        return str(error)
    return _nft("\n".join(_replacement(_table(shield), shield, hosts)))


def remove_shield(shield: Shield) -> None:
    """Remove a shield, if it was set."""
    _nft(f"delete table inet {_table(shield)}")


def remove_shields_of_the_dead() -> None:
    """Remove all shields whose owners have ended."""
    for name in _tables():
        if not _is_owned(name):
            _nft(f"delete table inet {name}")


def lets_others_in(host: str, port: int) -> bool:
    """Return whether a user without any rights can connect to a port; only root can know.

    The filter asks for the user who made the socket: that of the thread's file system access.
    """
    libc = ctypes.CDLL(None)
    libc.setfsuid(_OVERFLOW_UID)
    try:
        connection = socket.socket()
    finally:
        libc.setfsuid(os.geteuid())
    with connection:
        connection.settimeout(_CONNECT_S)
        try:
            connection.connect((host, port))
        except OSError:
            return False
        return True


def _table(shield: Shield) -> str:
    return f"{_prefix()}{_identity(shield.owner)}-{shield.name}"


def _prefix() -> str:
    """Return how the tables begin whose owners we can see: those of our namespace of processes."""
    return f"headgate-{Path('/proc/self/ns/pid').stat().st_ino}-"


def _replacement(table: str, shield: Shield, hosts: Sequence[_Address]) -> list[str]:
    """Return the commands that replace a table, in one transaction."""
    ports = ", ".join(f"{block.first}-{block.last}" for block in shield.ports)
    users = ", ".join(map(str, sorted({0, os.geteuid(), *shield.users})))
    opens, refused = f"{_OPENS} tcp dport {{ {ports} }}", "reject with tcp reset"
    trusted = [f"{'ip' if host.version == 4 else 'ip6'} saddr {host} accept" for host in hosts]
    return [
        f"add table inet {table}",
        f"delete table inet {table}",
        f"table inet {table} {{",
        "chain from_here { type filter hook output priority 0; policy accept;",
        'oifname != "lo" accept',
        f"meta skuid {{ {users} }} accept",
        f"{opens} {refused}",  # also what no user is known of
        "}",
        "chain from_elsewhere { type filter hook input priority 0; policy accept;",
        'iifname "lo" accept',
        *trusted,
        f"{opens} {refused}",
        "}",
        "}",
    ]


def _nft(commands: str) -> str:
    """Execute commands in one transaction; return why that is impossible, or ''."""
    if os.geteuid() != 0:
        return "Headgate does not run as root"
    program = shutil.which("nft", path=SYSTEM_PATH)
    if program is None:
        return "nft is not installed (on Debian: apt-get install nftables)"
    try:
        done = subprocess.run(
            [program, "-f", "-"],
            input=commands,
            check=False,
            capture_output=True,
            text=True,
            timeout=_NFT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nft cannot be run: {error}"
    return f"nft: {done.stderr.strip().splitlines()[0]}" if done.returncode else ""


def _tables() -> list[str]:
    """Return the names of all shields' tables; none where they cannot be read."""
    program = shutil.which("nft", path=SYSTEM_PATH)
    if os.geteuid() != 0 or program is None:
        return []
    with suppress(OSError, subprocess.TimeoutExpired):
        command = [program, "list", "tables", "inet"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_NFT_S)
        names = [line.split()[-1] for line in done.stdout.splitlines() if line.strip()]
        return [name for name in names if name.startswith(_prefix())]
    return []


def _is_owned(table: str) -> bool:
    """Return whether the owner of a table has not ended."""
    named = "-".join(table.removeprefix(_prefix()).split("-")[:2])
    pid = named.partition("-")[0]
    return pid.isdigit() and _identity(int(pid)) == named


def _identity(pid: int) -> str:
    """Return the identity of a process as a part of a table's name, which has no dots."""
    return identity(pid).replace(".", "-")
