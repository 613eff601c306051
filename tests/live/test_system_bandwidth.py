"""The line between two racks is measured: placements avoid a slow one, also when it changes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.bed import HAS_NETWORK, Bed
from tests.live.system import Gates, System, controlled

from headgate.live.base.config import ControllerConfig

pytestmark = [
    pytest.mark.live,
    pytest.mark.root,
    pytest.mark.skipif(not HAS_NETWORK, reason="needs root and iproute2"),
]
FAST_MBIT_PER_S, UPLINK_MBIT_PER_S, SLOW_MBIT_PER_S = 10_000, 100, 40
SHARD_BYTES = 1 << 18
LARGE_BYTES, SMALL_BYTES = 1 << 22, 1 << 18
PATIENCE_S = 120


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with Bed({"r0": 2, "r1": 2}, gpus=2) as bed:
        _shape(bed, UPLINK_MBIT_PER_S)
        yield bed


@pytest.fixture(scope="module")
def headgate(bed: Bed) -> Iterator[System]:
    """A controller that lives where the head does and probes every second."""
    config = ControllerConfig(
        spares=0,
        policy="fs",
        ray_address=bed.cluster.address,
        token=bed.cluster.token,
        probe_period_s=1.0,
    )
    with controlled(bed, config) as headgate:
        yield headgate


def _shape(bed: Bed, mbit_per_s: float) -> None:
    for rack in ("r0", "r1"):
        bed.shape(rack, mbit_per_s=mbit_per_s)


def _put_on(headgate: System, name: str, file: Path, nodes: list[str]) -> None:
    """Put a file as a dataset of one shard, with replicas on these nodes only."""
    headgate.put(name, file, 1, replicas=len(headgate.nodes))
    for node in headgate.nodes:
        if node.id not in nodes:
            headgate.store(node.id).remove(f"{name}:00000")
    headgate.until(lambda: sorted(headgate.holders(name)[0]) == nodes, f"{name} is on {nodes} only")


def _cluster_share(headgate: System) -> float:
    """Return how fast transfers across racks are, in relation to those within."""
    known = headgate.client.info()["bandwidth"]
    share: float = known["cluster_bytes_per_s"] / known["rack_bytes_per_s"]
    return share


def _probed(headgate: System) -> dict[str, int]:
    """Return the bytes that the nodes that are up have served to probes."""
    nodes = [node for node in headgate.client.nodes() if node["report"] is not None]
    return {node["id"]: node["report"]["served_bytes"].get("probe", 0) for node in nodes}


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


def test_placements_follow_the_bandwidth_between_racks(
    headgate: System, bed: Bed, tmp_path: Path
) -> None:
    for name, size_bytes, nodes in (
        ("large", LARGE_BYTES, ["n0", "n2"]),
        ("small", SMALL_BYTES, ["n3"]),
    ):
        (tmp_path / name).write_bytes(os.urandom(size_bytes))
        _put_on(headgate, name, tmp_path / name, nodes)
    wanted = (tmp_path / "large").read_bytes() + (tmp_path / "small").read_bytes()
    gates = Gates(tmp_path / "gates")
    blockers = headgate.submit(f"{{name: b, tasks: {{count: 8, run: '{gates.command()}'}}}}")
    on = {task["ordinal"]: task["node"] for task in headgate.running(blockers, 8)}
    gates.open(*(ordinal for ordinal, node in on.items() if node != "n2"))
    headgate.until(lambda: len(headgate.tasks_in(blockers, "finished")) == 6, "n2 alone is full")

    def place() -> tuple[str, Any]:
        """Run a task that reads both; return where, and the bytes read by locality."""
        job = headgate.submit(
            "{name: both, data: {a: {from: large}, b: {from: small}},"
            " tasks: {for_each: [a, b], run: 'cat {shards} > {output}'}}"
        )
        ended = headgate.ends(job)
        assert headgate.result(job) == wanted
        return headgate.client.tasks(job)[0]["node"], ended["read_bytes"]

    across = ("n0", {"node": LARGE_BYTES, "rack": 0, "cluster": SMALL_BYTES})
    within = ("n3", {"node": SMALL_BYTES, "rack": LARGE_BYTES, "cluster": 0})
    for mbit_per_s, outcome in (
        (FAST_MBIT_PER_S, across),  # little goes across, so that the large shard stays
        (SLOW_MBIT_PER_S, within),  # nothing goes across any more
        (FAST_MBIT_PER_S, across),
    ):
        _shape(bed, mbit_per_s)
        headgate.until(lambda: place() == outcome, f"placed at {mbit_per_s}", PATIENCE_S)  # noqa: B023
        share = _cluster_share(headgate)
        # between these it depends on the disks where such a task goes
        assert share < 1 / 4 if mbit_per_s == SLOW_MBIT_PER_S else share > 1 / 12, share
    assert headgate.tasks_in(blockers, "running"), "all of it while a job was running"
    assert all(_probed(headgate).values()), "every node has served probes, counted separately"
    gates.open(*on)
    headgate.ends(blockers)


def test_probes_continue_when_a_node_is_lost_and_when_it_returns(
    headgate: System, bed: Bed
) -> None:
    _shape(bed, SLOW_MBIT_PER_S)  # so that hardly a moment passes without a probe
    bed.crash("n1")
    headgate.until(lambda: headgate.up_nodes() == {"n0", "n2", "n3"}, "the node is missed")
    before = _probed(headgate)
    assert set(before) == {"n0", "n2", "n3"}

    def all_serve(least: dict[str, int]) -> bool:
        now = _probed(headgate)
        return set(now) == set(least) and all(now[node] > least[node] for node in least)

    headgate.until(lambda: all_serve(before), "probes of the others continue", PATIENCE_S)
    bed.restart("n1")
    headgate.until(lambda: len(headgate.up_nodes()) == 4, "the node is back")
    headgate.until(lambda: all_serve({**before, "n1": 0}), "it is probed", PATIENCE_S)
    assert "probing failed" not in headgate.logged()
