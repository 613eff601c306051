"""Calls of local users without a token reach no port of Headgate's Ray, where one would end it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest
from tests.live.accounts import OTHER, USER, needs_filter, python_for_all
from tests.live.conftest import until
from tests.live.grpc_call import ANSWERED, LOST, REFUSED, call, calls

from headgate.live.cluster.ray_nodes import (
    HEAD,
    LocalCluster,
    alive,
    kill_node,
    local_cluster,
    restart_nodes,
    start_node,
    start_nodes,
    stop_nodes,
    why_open,
)
from headgate.model import Gpu, Node

pytestmark = [pytest.mark.live, *needs_filter]
NODE = Node(id="a", rack="r", gpus=(Gpu(memory_bytes=1 << 30),))

SYNC = "/ray.rpc.syncer.RaySyncer/StartSync"
"""Ends the process that serves it: it takes the call for one of a node."""

OPEN = (
    "/grpc.health.v1.Health/Check",
    "/grpc.channelz.v1.Channelz/GetServers",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
)
"""Are answered without a token."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A head and a node."""
    yield start_nodes(tmp_path, (NODE,))
    stop_nodes(tmp_path)


def _ports(cluster: LocalCluster, name: str) -> dict[str, list[str]]:
    """Return the addresses at which the processes of a node listen, by the name of the process."""
    found: dict[str, list[str]] = {}
    top = psutil.Process(cluster.sessions[name])
    for process in (top, *top.children(recursive=True)):
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                host, port = connection.laddr
                host = "127.0.0.1" if host in ("::", "0.0.0.0") else host
                found.setdefault(process.name(), []).append(f"{host}:{port}")
    return found


def _all_ports(cluster: LocalCluster) -> list[str]:
    return [
        address
        for name in cluster.seats
        for addresses in _ports(cluster, name).values()
        for address in addresses
    ]


def test_no_port_of_ray_accepts_another_user_and_one_call_of_root_ends_it(
    cluster: LocalCluster,
) -> None:
    addresses = _all_ports(cluster)
    assert cluster.address.replace("127.77.0.1", "127.0.0.1") in addresses
    assert len(addresses) >= 7  # GCS; two of each raylet and an agent
    by_node = [cluster.address, f"[::1]:{cluster.address.rpartition(':')[2]}"]
    python = python_for_all()
    for method in (SYNC, *OPEN):
        assert set(calls(python, OTHER, method, addresses + by_node)) == {REFUSED}
    assert alive(cluster) == (HEAD, "a")
    assert why_open(cluster) == ""
    (gcs,) = _ports(cluster, HEAD)["gcs_server"]
    assert [call(method, gcs) for method in OPEN] == [ANSWERED] * 3
    (agent,) = [a for name, a in _ports(cluster, "a").items() if "RuntimeEnv" in name]
    assert _posted(agent[0], "/get_or_create_runtime_env") == HTTPStatus.UNAUTHORIZED
    # The same call where the filter lets it pass: what it keeps away.
    raylets = _ports(cluster, "a")["raylet"]
    assert LOST in [call(SYNC, address) for address in raylets]
    until(lambda: "a" not in _listed(cluster), "the raylet of the node has ended")
    assert call(SYNC, gcs) == LOST


def _posted(address: str, path: str) -> int:
    with closing(HTTPConnection(address)) as connection:
        connection.request("POST", path)
        return connection.getresponse().status


def _listed(cluster: LocalCluster) -> list[str]:
    """Return the nodes whose raylet runs."""
    found = []
    for name, session in cluster.sessions.items():
        try:
            top = psutil.Process(session)
            names = [p.name() for p in top.children() if p.status() != psutil.STATUS_ZOMBIE]
        except psutil.NoSuchProcess:
            continue
        found += [name] if "raylet" in names else []
    return found


def test_every_port_is_of_the_block_of_its_node_and_the_filter_follows_a_restart(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    def outside() -> list[str]:
        now = local_cluster(tmp_path)
        assert now is not None
        return [
            address
            for name, block in now.ports.items()
            for addresses in _ports(now, name).values()
            for address in addresses
            if not block.first < int(address.rpartition(":")[2]) <= block.last
        ]

    assert outside() == []
    kill_node(tmp_path, "a")
    start_node(tmp_path, NODE)
    assert outside() == []
    now = local_cluster(tmp_path)
    assert now is not None
    found = _all_ports(now)
    assert len(found) >= 7
    assert set(calls(python_for_all(), OTHER, SYNC, found)) == {REFUSED}


def test_cluster_that_is_started_again_is_closed_again(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    (gcs,) = _ports(cluster, HEAD)["gcs_server"]
    assert call(SYNC, gcs) == LOST
    restart_nodes(tmp_path, head_starts=1)
    now = local_cluster(tmp_path)
    assert now is not None
    found = _all_ports(now)
    assert len(found) >= 7
    assert set(calls(python_for_all(), OTHER, SYNC, found)) == {REFUSED}
    assert [name for name in _tables().split() if f"-{cluster.sessions[HEAD]}-" in name] == []


def test_filter_goes_with_the_cluster(tmp_path: Path) -> None:
    cluster = start_nodes(tmp_path, (NODE,))
    owner = f"-{cluster.sessions[HEAD]}-"
    assert owner in _tables()
    stop_nodes(tmp_path)
    assert owner not in _tables()


def test_lost_filter_is_set_again(cluster: LocalCluster) -> None:
    (name,) = (n for n in _tables().split() if f"-{cluster.sessions[HEAD]}-" in n)
    subprocess.run(["nft", "delete", "table", "inet", name], check=True)
    assert calls(python_for_all(), OTHER, OPEN[0], [cluster.address]) == [ANSWERED]
    assert why_open(cluster) == ""
    assert calls(python_for_all(), OTHER, OPEN[0], [cluster.address]) == [REFUSED]


def _tables() -> str:
    listed = subprocess.run(["nft", "list", "tables"], check=True, capture_output=True, text=True)
    return listed.stdout


def test_up_without_root_warns_once() -> None:
    state = Path(tempfile.mkdtemp(prefix="hg-up-", dir="/tmp"))
    entry = pwd.getpwnam(USER)
    os.chown(state, entry.pw_uid, entry.pw_gid)

    def run(*words: str) -> str:
        main = "from headgate.cli.main import main; main()"
        done = subprocess.run(
            [python_for_all(), "-c", main, *words],
            user=entry.pw_uid,
            group=entry.pw_gid,
            extra_groups=[],
            capture_output=True,
            check=False,
            cwd="/",
            env={
                "HEADGATE_STATE": str(state / "state"),
                "HOME": str(state),
                "PATH": os.environ["PATH"],
            },
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        warning = "Warning: any user of this machine can end these nodes"
        first = run("up", "--nodes", "1")
        assert warning in first
        assert "Headgate does not run as root" in first
        assert warning not in run("up"), "it is already running"
    finally:
        run("down", "-y")
        shutil.rmtree(state)
