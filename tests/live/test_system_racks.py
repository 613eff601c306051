"""On a network with a slow link between racks, jobs avoid that link."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.bed import HAS_NETWORK, Bed
from tests.live.system import Gates, System, controlled

from headgate.live.base.config import ControllerConfig

pytestmark = [
    pytest.mark.live,
    pytest.mark.root,
    pytest.mark.skipif(not HAS_NETWORK, reason="needs root and iproute2"),
]
UPLINK_MBIT_PER_S = 100
SHARD_BYTES = 1 << 18


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with Bed({"r0": 2, "r1": 2}) as bed:
        for rack in ("r0", "r1"):
            bed.shape(rack, mbit_per_s=UPLINK_MBIT_PER_S)
        yield bed


@pytest.fixture(scope="module")
def headgate(bed: Bed) -> Iterator[System]:
    """A controller that lives where the head does: only from there all nodes can be reached."""
    config = ControllerConfig(
        policy="fs", ray_address=bed.cluster.address, token=bed.cluster.token, spares=0
    )
    with controlled(bed, config) as headgate:
        yield headgate


def _bandwidth(headgate: System) -> tuple[float, float]:
    """Return the estimated bandwidth within racks and across, in bytes per second."""
    known = headgate.client.info()["bandwidth"]
    return known["rack_bytes_per_s"], known["cluster_bytes_per_s"]


def _served(headgate: System) -> dict[str, int]:
    """Return the bytes that the nodes' shard services have sent to runs, by locality."""
    found = {"rack": 0, "cluster": 0}
    for node in headgate.client.nodes():
        for reader in found:
            found[reader] += node["report"]["served_bytes"].get(reader, 0)
    return found


def _ready(headgate: System) -> None:
    """Wait until transfers have been measured with all nodes there."""
    most = UPLINK_MBIT_PER_S * 1.1e6 / 8

    def measured() -> bool:
        rack, cluster = _bandwidth(headgate)
        return cluster < most and rack > 2 * cluster

    headgate.until(measured, "the uplink is measured")


def test_slow_link_between_racks_is_measured_and_avoided(headgate: System, tmp_path: Path) -> None:
    _ready(headgate)
    data = tmp_path / "data"
    data.write_bytes(os.urandom(8 * SHARD_BYTES))
    headgate.put("wide", data, 8)
    before = _served(headgate)
    job = headgate.submit("""
name: wide
data: {d: {from: wide}}
tasks: {for_each: d, run: "cp {shard} {output}"}
reduce: {run: "cat {shards} > {output}"}
""")
    ended = headgate.ends(job)
    assert headgate.result(job) == data.read_bytes()
    held = [node for (node,) in headgate.holders("wide")]
    tasks = headgate.client.tasks(job)
    assert [task["node"] for task in tasks[:-1]] == held
    # the tasks read on their nodes; the reduce task had two results there, two in its rack
    assert ended["read_bytes"] == {
        "node": 10 * SHARD_BYTES,
        "rack": 2 * SHARD_BYTES,
        "cluster": 4 * SHARD_BYTES,
    }
    wanted = {name: before[name] + ended["read_bytes"][name] for name in before}
    headgate.until(lambda: _served(headgate) == wanted, "the nodes have counted the same")
    headgate.client.remove_dataset("wide")


def test_neighbour_of_a_full_node_is_chosen(headgate: System, bed: Bed, tmp_path: Path) -> None:
    _ready(headgate)
    gates = Gates(tmp_path / "gates")
    for name, shards in (("full", 8), ("four", 4)):
        data = tmp_path / name
        data.write_bytes(os.urandom(shards * SHARD_BYTES))
        headgate.put(name, data, shards)
    full = headgate.submit(f"""
name: full
data: {{d: {{from: full}}}}
tasks: {{for_each: d, run: "{gates.command()}"}}
""")
    node_of = {task["ordinal"]: task["node"] for task in headgate.running(full, 8)}
    gates.open(*(ordinal for ordinal, node in node_of.items() if node != "n0"))
    headgate.until(lambda: len(headgate.tasks_in(full, "finished")) == 6, "the rest is free")
    job = headgate.submit(
        "{name: four, data: {d: {from: four}}, tasks: {for_each: d, run: 'cksum {shard}'}}"
    )
    ended = headgate.ends(job)
    rack_of = {node.id: node.rack for node in bed.nodes}
    for (held,), task in zip(headgate.holders("four"), headgate.client.tasks(job), strict=True):
        assert task["node"] == ("n1" if held == "n0" else held)
        assert rack_of[task["node"]] == rack_of[held]
    assert ended["read_bytes"] == {
        "node": 3 * SHARD_BYTES,
        "rack": SHARD_BYTES,
        "cluster": 0,
    }
    gates.open(*range(8))
    headgate.ends(full)
