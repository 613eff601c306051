"""The packet filter lets only some users, and some hosts, connect to ports."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest
from tests.live.accounts import OTHER, USER, needs_filter

from headgate.base.errors import WorldError
from headgate.live.cluster import ray_ports
from headgate.live.cluster.packet_filter import (
    Shield,
    lets_others_in,
    remove_shield,
    remove_shields_of_the_dead,
    set_shield,
)
from headgate.live.cluster.ray_nodes import HEAD, LocalCluster, Seat, why_open
from headgate.live.cluster.ray_ports import PortBlock, claimed_ports

UID = pwd.getpwnam(USER).pw_uid
TRY = """
import socket, sys
for text in sys.argv[1:]:
    family, protocol, host, port = text.split()
    with socket.socket(int(family), socket.SOCK_STREAM, int(protocol)) as tried:
        tried.settimeout(5)
        try:
            tried.connect((host, int(port)))
            print("connected")
        except OSError as error:
            print(type(error).__name__)
"""


class Servers:
    """A server on every address, at any port."""

    def __init__(self) -> None:
        self._open = ExitStack()

    def listen(self, port: int) -> int:
        """Listen at a port, as Ray does."""
        server = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        self._open.enter_context(server)
        threading.Thread(target=self._accept, args=(server,), daemon=True).start()
        return port

    def close(self) -> None:
        """Stop listening."""
        self._open.close()

    @staticmethod
    def _accept(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                server.accept()[0].close()


@pytest.fixture(autouse=True)
def _ports_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters that start meanwhile take no ports from here."""
    monkeypatch.setattr(ray_ports, "FIRST_PORT", 12_000)
    monkeypatch.setattr(ray_ports, "LAST_PORT", 12_999)


@pytest.fixture
def servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.close()


@pytest.fixture
def block() -> Iterator[PortBlock]:
    """A block of ports, which nothing else uses."""
    with claimed_ports(50) as (block, _):
        yield block


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[bytes]]:
    """A process for which a shield is set; the shield goes with it."""
    owner = subprocess.Popen(["sleep", "600"])
    yield owner
    owner.kill()
    owner.wait()
    remove_shields_of_the_dead()


def tries(user: str, *targets: tuple[str, int], protocol: int = 0) -> list[str]:
    """Let a user connect to ports."""
    families = [socket.AF_INET6 if ":" in host else socket.AF_INET for host, _ in targets]
    words = [
        f"{int(family)} {protocol} {host} {port}"
        for family, (host, port) in zip(families, targets, strict=True)
    ]
    entry = pwd.getpwnam(user)
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-I", "-c", TRY, *words],
        user=entry.pw_uid,
        group=entry.pw_gid,
        extra_groups=[],
        capture_output=True,
        check=True,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        text=True,
        timeout=60,
    )
    return done.stdout.split()


REFUSED, CONNECTED = "ConnectionRefusedError", "connected"


class TestShield:
    """As root, with nftables."""

    pytestmark = needs_filter

    def test_only_root_and_the_named_users_connect_whatever_the_address(
        self, servers: Servers, block: PortBlock, owner: subprocess.Popen[bytes]
    ) -> None:
        port = servers.listen(block.first + 1)
        everywhere = [("127.0.0.1", port), ("127.77.3.4", port), ("::1", port)]
        assert tries(OTHER, *everywhere) == [CONNECTED] * 3
        assert lets_others_in("127.0.0.1", port)
        assert set_shield(Shield(ports=[block], owner=owner.pid, users=[UID])) == ""
        assert tries(OTHER, *everywhere) == [REFUSED] * 3
        assert not lets_others_in("127.0.0.1", port)
        assert tries(USER, *everywhere) == [CONNECTED] * 3
        assert tries("root", *everywhere) == [CONNECTED] * 3

    def test_ports_beside_the_block_are_open(
        self, servers: Servers, owner: subprocess.Popen[bytes]
    ) -> None:
        with claimed_ports(100) as (both, _):
            block = PortBlock(first=both.first, last=both.first + 49)
            inside, outside = servers.listen(block.last), servers.listen(block.last + 2)
            assert set_shield(Shield(ports=[block], owner=owner.pid)) == ""
            found = tries(OTHER, ("127.0.0.1", inside), ("127.0.0.1", outside))
            assert found == [REFUSED, CONNECTED]

    def test_other_kinds_of_sockets_do_not_get_past(
        self, servers: Servers, block: PortBlock, owner: subprocess.Popen[bytes]
    ) -> None:
        port = servers.listen(block.first + 1)
        assert set_shield(Shield(ports=[block], owner=owner.pid)) == ""
        multipath = 262
        (found,) = tries(OTHER, ("127.0.0.1", port), protocol=multipath)
        assert found != CONNECTED

    def test_several_shields_stand_side_by_side_and_go_one_by_one(
        self, servers: Servers, owner: subprocess.Popen[bytes]
    ) -> None:
        with claimed_ports(50) as (first, _), claimed_ports(50) as (second, _):
            ports = [servers.listen(block.last) for block in (first, second)]
            shields = [
                Shield(ports=[block], owner=owner.pid, name=f"r{block.first}")
                for block in (first, second)
            ]
            assert [set_shield(shield) for shield in shields] == ["", ""]
            targets = [("127.0.0.1", port) for port in ports]
            assert tries(OTHER, *targets) == [REFUSED] * 2
            remove_shield(shields[0])
            assert tries(OTHER, *targets) == [CONNECTED, REFUSED]
            assert set_shield(shields[1]) == "", "again"
            remove_shield(shields[1])
            assert tries(OTHER, *targets) == [CONNECTED] * 2

    def test_shield_of_a_process_that_has_ended_is_removed_with_the_next(
        self, servers: Servers, block: PortBlock, owner: subprocess.Popen[bytes]
    ) -> None:
        port = servers.listen(block.last)
        assert set_shield(Shield(ports=[block], owner=owner.pid)) == ""
        owner.kill()
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie
        assert "has ended" in set_shield(Shield(ports=[block], owner=owner.pid))
        elsewhere = PortBlock(first=block.first - 1, last=block.first - 1)
        mine = Shield(ports=[elsewhere], owner=os.getpid())
        assert set_shield(mine) == ""
        assert tries(OTHER, ("127.0.0.1", port)) == [CONNECTED]
        remove_shield(mine)

    def test_only_named_hosts_connect_from_elsewhere(
        self, servers: Servers, block: PortBlock, owner: subprocess.Popen[bytes]
    ) -> None:
        """Root of another machine has no rights here."""
        port, name = servers.listen(block.last), f"hgf{os.getpid()}"
        with _neighbour(name):
            connect = ["ip", "netns", "exec", name, sys.executable, "-I", "-c", TRY]

            def found() -> list[str]:
                words = [f"{int(socket.AF_INET)} 0 10.79.0.1 {port}"]
                done = subprocess.run(
                    [*connect, *words], check=True, capture_output=True, text=True
                )
                return done.stdout.split()

            assert found() == [CONNECTED]
            assert set_shield(Shield(ports=[block], owner=owner.pid)) == ""
            assert found() == [REFUSED]
            assert tries(OTHER, ("10.79.0.1", port)) == [REFUSED], "from here to there"
            hosts = ["10.79.0.2", "fd00::2"]
            assert set_shield(Shield(ports=[block], owner=owner.pid, hosts=hosts)) == ""
            assert found() == [CONNECTED]

    def test_account_without_rights_is_given_the_reason(self) -> None:
        code = (
            "from headgate.live.cluster.packet_filter import *\n"
            "from headgate.live.cluster.ray_ports import *\n"
            "import os; os.setuid(65534)\n"
            "print(set_shield(Shield(ports=[PortBlock(first=1, last=2)], owner=os.getpid())))"
        )
        done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
        assert done.stdout == b"Headgate does not run as root\n"


class _neighbour:  # noqa: N801  # used as a function
    """A network namespace at 10.79.0.2, connected to this machine at 10.79.0.1."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        name = self._name
        for line in (
            f"netns add {name}",
            f"link add {name} type veth peer name p netns {name}",
            f"addr add 10.79.0.1/30 dev {name}",
            f"link set {name} up",
            f"-n {name} addr add 10.79.0.2/30 dev p",
            f"-n {name} link set p up",
        ):
            subprocess.run(["ip", *line.split()], check=True)

    def __exit__(self, *_: object) -> None:
        subprocess.run(["ip", "link", "del", self._name], check=False)
        subprocess.run(["ip", "netns", "del", self._name], check=False)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[[PortBlock], None]:
    """Let blocks be chosen among the ports of one alone."""

    def narrow(block: PortBlock) -> None:
        monkeypatch.setattr(ray_ports, "FIRST_PORT", block.first)
        monkeypatch.setattr(ray_ports, "LAST_PORT", block.last)

    return narrow


def test_blocks_do_not_overlap_and_are_free_again_when_their_claims_end(
    only: Callable[[PortBlock], None],
) -> None:
    with claimed_ports(100) as (both, _):
        pass
    only(both)
    for _ in range(5):
        with claimed_ports(50) as (first, _), claimed_ports(50) as (second, _):
            assert {first.first, second.first} == {both.first, both.first + 50}
            assert (first.last - first.first, second.last - second.first) == (49, 49)


def test_blocks_are_not_given_in_the_order_in_which_they_became_free() -> None:
    """Where a node has just ended, something may still expect it."""
    found = set()
    for _ in range(20):
        with claimed_ports(50) as (block, _):
            found.add(block)
    assert len(found) > 1


def test_claim_lasts_as_long_as_any_process_has_it(only: Callable[[PortBlock], None]) -> None:
    with claimed_ports(50) as (block, descriptors):
        holder = subprocess.Popen(["sleep", "600"], pass_fds=descriptors)
    only(block)
    with pytest.raises(WorldError, match="no 50 ports in a row"), claimed_ports(50):
        pass
    holder.kill()
    holder.wait()
    with claimed_ports(50) as (again, _):
        assert again == block


def test_block_in_which_a_process_listens_is_left_alone(
    servers: Servers, only: Callable[[PortBlock], None]
) -> None:
    with claimed_ports(50) as (block, _):
        pass
    only(block)
    servers.listen(block.first + 30)
    with pytest.raises(WorldError, match="no 50 ports in a row"), claimed_ports(50):
        pass


def test_connections_of_others_take_no_block_away(
    servers: Servers, only: Callable[[PortBlock], None]
) -> None:
    """Some machines let the kernel give any port to connections."""
    port = servers.listen(11_999)
    with claimed_ports(50) as (block, _):
        pass
    only(block)
    with socket.socket() as connection:
        connection.bind(("127.0.0.1", block.first + 30))
        connection.connect(("127.0.0.1", port))
        with claimed_ports(50) as (again, _):
            assert again == block


def test_cluster_of_an_earlier_release_is_reported_as_open() -> None:
    cluster = LocalCluster(
        address="127.77.0.1:40123", mark="m", temp="gone", logs="logs", token="token",
        seats={HEAD: Seat(address="127.77.0.1")}, sessions={HEAD: os.getpid()},
    )  # fmt: skip
    assert "headgate down, then headgate up" in why_open(cluster)


def test_smaller_blocks_are_given_while_larger_ones_are_not_free(
    only: Callable[[PortBlock], None],
) -> None:
    with claimed_ports(100) as (free, _):
        pass
    only(free)
    with claimed_ports(400) as (whole, _):
        assert whole == free
        with pytest.raises(WorldError, match="no 50 ports in a row"), claimed_ports(400):
            pass


def test_options_keep_all_of_a_node_in_its_block() -> None:
    block = PortBlock(first=12_000, last=12_049)
    options = dict(option.split("=") for option in block.options())
    ports = [block.gcs, block.client_server, *map(int, options.values())]
    assert len(set(ports)) == len(ports)
    assert all(block.first < port <= block.last for port in ports)
    assert int(options["--max-worker-port"]) == block.last
