"""A node that Ray has lost is restarted; an executor that dies repeatedly fails its task."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest
from tests.live.system import Gates, Headgate

pytestmark = pytest.mark.live


SYSTEM = {"nodes": 3, "gpus": 1}


def _raylet(headgate: Headgate, node: str) -> psutil.Process:
    top = psutil.Process(headgate.cluster.sessions[node])
    (raylet,) = [p for p in top.children(recursive=True) if p.name() == "raylet"]
    return raylet


def test_node_returns_after_its_raylet_was_suspended(headgate: Headgate, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(b"data" * 1000)
    headgate.put("data", data, 6, replicas=2)
    gates = Gates(tmp_path / "gates")
    job = headgate.submit(f'{{name: work, tasks: {{count: 3, run: "{gates.command()}"}}}}')
    headgate.running(job, 3)
    raylet = _raylet(headgate, "n1")
    raylet.send_signal(signal.SIGSTOP)
    headgate.until(lambda: "n1" not in headgate.up_nodes(), "the node is lost")
    raylet.send_signal(signal.SIGCONT)
    headgate.until(lambda: len(headgate.up_nodes()) == 3, "it is back", patience_s=150)
    headgate.until(
        lambda: all(len(nodes) == 2 for nodes in headgate.holders("data")), "with its replicas"
    )
    gates.open(0, 1, 2)
    headgate.ends(job)
    assert "node n1 is started, attempt 1" in headgate.logged()
    started = psutil.Process(headgate.cluster.sessions["n1"])
    assert [f.path for f in started.open_files() if "journal" in f.path] == []
    sockets = {connection.laddr for connection in started.net_connections("unix")}
    assert str(headgate.state / "headgate.sock") not in sockets, "it has none of the controller's"


def test_node_whose_processes_were_killed_returns_and_one_ended_on_purpose_does_not(
    headgate: Headgate,
) -> None:
    headgate.kill_node("n2")
    top = psutil.Process(headgate.cluster.sessions["n0"])
    for process in (top, *top.children(recursive=True)):
        process.kill()
    headgate.until(lambda: headgate.up_nodes() == {"n1"}, "both are lost")
    headgate.until(lambda: headgate.up_nodes() == {"n0", "n1"}, "one is back", patience_s=150)
    headgate.restart_node("n2")
    headgate.until(lambda: len(headgate.up_nodes()) == 3, "the other was started again")


def test_task_whose_executor_dies_three_times_on_nodes_that_stay_up_fails(
    headgate: Headgate,
) -> None:
    job = headgate.submit("{name: fatal, run: 'sleep 1000'}")
    for attempt in (1, 2, 3):
        headgate.until(
            lambda attempt=attempt: (
                headgate.tasks_in(job, "running")
                and headgate.client.tasks(job)[0]["attempts"] == attempt
            ),
            f"attempt {attempt} runs",
        )
        headgate.until(
            lambda: len(headgate.actors("TaskExecutor")) == 1, "no other executor is left"
        )
        headgate.actors("TaskExecutor")[0].send_signal(signal.SIGKILL)
    view = headgate.ends(job, "failed")
    assert "was lost, on nodes that stayed up, 3 times" in str(view)
    assert len(headgate.up_nodes()) == 3
