"""A local cluster starts completely or not at all, and ends without leftovers."""

from __future__ import annotations

import json
import os
import subprocess
from importlib import util
from pathlib import Path

import psutil
import pytest

from headgate.base.errors import WorldError
from headgate.live.cluster.ray_nodes import (
    HEAD,
    LocalCluster,
    alive,
    connect,
    kill_node,
    local_cluster,
    start_node,
    start_nodes,
    stop_nodes,
)
from headgate.model import Gpu, Node

pytestmark = pytest.mark.live
NODE = Node(id="a", rack="r", gpus=(Gpu(memory_bytes=1 << 30),), cpus=2)


def _traces(cluster: LocalCluster) -> list[str]:
    """Return the processes with the session, mark or temporary files of a cluster."""
    found = []
    for process in psutil.process_iter():
        try:
            session = os.getsid(process.pid)
            environ = Path(f"/proc/{process.pid}/environ").read_bytes()
            command = " ".join(process.cmdline())
        except (OSError, psutil.Error):
            continue
        ours = session in cluster.sessions.values() or cluster.mark.encode() in environ
        if (ours or cluster.temp in command) and process.status() != psutil.STATUS_ZOMBIE:
            found.append(f"{process.pid} {command[:80]}")
    return found


def test_nodes_start_crash_return_and_end_without_leftovers(tmp_path: Path) -> None:
    cluster = start_nodes(tmp_path, (NODE,))
    try:
        assert local_cluster(tmp_path) == cluster
        assert alive(cluster) == (HEAD, "a")
        with pytest.raises(WorldError, match="already has a cluster"):
            start_nodes(tmp_path, (NODE,))
        assert oct(Path(cluster.token).stat().st_mode & 0o777) == "0o600"
        kill_node(tmp_path, "a")
        assert alive(cluster) == (HEAD,)
        start_node(tmp_path, NODE)
        cluster = local_cluster(tmp_path) or cluster
        assert alive(cluster) == (HEAD, "a")
        # a node of which only the top process is killed leaves others behind: they end as well
        os.kill(cluster.sessions["a"], 9)
        os.waitpid(cluster.sessions["a"], 0)
        assert _traces(cluster)
    finally:
        stop_nodes(tmp_path)
    assert _traces(cluster) == []
    assert not Path(cluster.temp).exists()
    assert local_cluster(tmp_path) is None
    stop_nodes(tmp_path)


def test_node_that_does_not_come_up_is_reported_with_its_log(tmp_path: Path) -> None:
    broken = Node(id="b", rack="no label is like this!", gpus=())
    with pytest.raises(WorldError, match="node 'b' ended while starting") as caught:
        start_nodes(tmp_path, (broken,))
    assert "label" in str(caught.value)
    assert local_cluster(tmp_path) is None
    assert not [p for p in psutil.process_iter() if _is_of(p, tmp_path)]


def test_missing_ray_is_reported(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match=r"no Ray cluster responds at '127\.77\.0\.1:1'"):
        connect("127.77.0.1:1")
    with pytest.raises(WorldError, match="no Ray cluster responds at 'nonsense'"):
        connect("nonsense")


def test_missing_ray_is_reported_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(WorldError, match=r"-m pip install 'headgate\[live\]'$"):
        start_nodes(tmp_path, (NODE,))
    with pytest.raises(WorldError, match="Ray is not installed"):
        connect("127.77.0.1:1")


def test_process_with_a_reused_session_id_is_not_killed(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        record = {
            "address": "127.77.0.1:1",
            "mark": "0123456789abcdef",
            "temp": str(tmp_path / "gone"),
            "logs": str(tmp_path / "logs"),
            "token": str(tmp_path / "token"),
            "seats": {"head": {"address": "127.77.0.1", "enter": []}},
            "sessions": {"head": other.pid},
        }
        (tmp_path / "ray.json").write_text(json.dumps(record))
        stop_nodes(tmp_path)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def _is_of(process: psutil.Process, state: Path) -> bool:
    try:
        return str(state) in Path(f"/proc/{process.pid}/environ").read_text(errors="replace")
    except OSError:
        return False
