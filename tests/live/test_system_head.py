"""The head of a local cluster ends or hangs: all nodes are started again, and jobs continue."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.live.system import Gates, Headgate

from headgate.base.errors import WorldError
from headgate.journal import Journal
from headgate.protocol import Event

pytestmark = pytest.mark.live


NODES = 2
SYSTEM = {"nodes": NODES, "gpus": 1, "fresh": True}  # it counts events in the journal


def _head(headgate: Headgate) -> list[psutil.Process]:
    top = psutil.Process(headgate.cluster.sessions["head"])
    return [*top.children(recursive=True), top]


def _kill_head(headgate: Headgate) -> None:
    for process in _head(headgate):
        with suppress(psutil.NoSuchProcess):  # it ends with the others
            process.kill()


def _journaled(headgate: Headgate) -> list[Event]:
    """Return all events of a killed controller, once its threads have closed the journal."""

    def opened() -> Journal | None:
        with suppress(WorldError):
            return Journal.open(headgate.state / "journal.db")
        return None

    journal: Journal = headgate.until(opened, "the journal is free")
    events = [event for _, event in journal.events()]
    journal.close()
    return events


def _work(gates: Gates) -> str:
    return f"""
name: work
tasks: {{count: 4, run: "{gates.command()}", retries: 0}}
reduce: {{run: "cat {{shards}} > {{output}}"}}
"""


def test_head_that_dies_is_started_again_with_all_nodes_and_jobs_continue(
    headgate: Headgate, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.write_bytes(b"data" * 1000)
    headgate.put("data", data, 60, replicas=2)
    done = headgate.submit(
        "{name: done, data: {d: {from: data}}, tasks: {for_each: d, run: 'cat {shard} > {output}'},"
        " reduce: {run: 'cat {shards} > {output}'}}"
    )
    headgate.ends(done)
    gates = Gates(tmp_path / "gates")
    job = headgate.submit(_work(gates))
    running = headgate.running(job, NODES)
    before = headgate.client.info()
    gone, earlier = gates.alive(), headgate.logged().count(" up: policy")
    _kill_head(headgate)
    headgate.until(
        lambda: "the head of the cluster is lost" in headgate.logged(), "it is noticed", 20
    )
    headgate.until(lambda: headgate.logged().count(" up: policy") > earlier, "it is up again", 120)
    headgate.until(lambda: len(headgate.up_nodes()) == NODES, "with all nodes")
    assert headgate.client.info()["pid"] == before["pid"]
    headgate.until(lambda: not set(gone) & set(gates.alive()), "no earlier run continues")
    gates.open(0, 1, 2, 3)
    headgate.ends(job)
    assert headgate.result(job) == b"0\n1\n2\n3\n"
    attempts = {task["ordinal"]: task["attempts"] for task in headgate.client.tasks(job)}
    assert all(attempts[task["ordinal"]] == 2 for task in running), attempts
    assert [len(nodes) for nodes in headgate.holders("data")] == [2] * 60
    assert headgate.result(done) == data.read_bytes()


def test_returning_nodes_are_one_event_each_in_the_journal_and_few_reports_beside(
    headgate: Headgate,
) -> None:
    headgate.kill_controller()
    counted = Counter(type(event).__name__ for event in _journaled(headgate))
    assert counted["NodeLost"] == NODES
    assert counted["NodeJoined"] == 2 * NODES
    assert counted["ReplicaAdded"] == 2 * 60, "only those of the put"
    assert counted["ReplicaLost"] == 0
    assert counted["NodeReported"] > 0
    headgate.up()


def test_up_without_options_starts_the_recorded_nodes(headgate: Headgate) -> None:
    headgate.kill_controller()
    _kill_head(headgate)
    assert headgate.call("up")["nodes"] == NODES
    headgate.ends(headgate.submit("{name: more, run: 'true'}"))


def test_head_that_hangs_is_started_again_with_all_nodes(
    headgate: Headgate, tmp_path: Path
) -> None:
    gates = Gates(tmp_path / "gates")
    job = headgate.submit(_work(gates))
    headgate.running(job, NODES)
    earlier = headgate.logged().count(" up: policy")
    for process in _head(headgate):
        if process.name() == "gcs_server":
            process.suspend()
    headgate.until(lambda: headgate.logged().count(" up: policy") > earlier, "it is up again", 240)
    headgate.until(lambda: len(headgate.up_nodes()) == NODES, "with all nodes")
    gates.open(0, 1, 2, 3)
    headgate.ends(job)
    assert headgate.result(job) == b"0\n1\n2\n3\n"
