"""The topology over REST: in force, drawn with jobs, changed by administrators only."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.api.client import Client
from headgate.api.topology import topology_of, topology_view
from headgate.base.errors import SpecError
from headgate.model import Gpu, Node
from headgate.model.topology import ClusterMesh, FatTree, Mesh, Tree
from headgate.state import State

MESH = "mesh: {shape: [1, 2], bandwidth: 1e9, nodes: [n0, n1]}"
FAT = "fat_tree: {ports: 2, bandwidth: 1e9, nodes: [n0, n1]}"


def jobs_by_place(view: dict[str, Any]) -> dict[tuple[str, int | None], list[str]]:
    return {(leaf["node"], leaf["gpu"]): leaf["jobs"] for leaf in view["leaves"]}


def test_topology_shows_the_jobs_on_each_gpu(client: Client, controller: Any) -> None:
    job = client.submit("{name: a, tasks: {run: x, count: 1}}")
    view = client.topology()
    assert (view["source"], view["kind"]) == ("racks", "tree")
    held = [place for place, jobs in jobs_by_place(view).items() if jobs == [job]]
    assert len(held) == 1
    assert isinstance(topology_of(view), Tree)


@pytest.mark.parametrize(("text", "kind"), [(MESH, Mesh), (FAT, FatTree)])
def test_topology_is_put_in_force_and_reset(client: Client, text: str, kind: type) -> None:
    job = client.submit("{name: a, tasks: {run: x, count: 1}}")
    before = client.job(job)
    assert client.set_topology(text, dry_run=True) == {"dry_run": True}
    assert client.topology()["source"] == "racks"
    client.set_topology(text)
    view = client.topology()
    assert view["source"] == "file"
    assert isinstance(topology_of(view), kind)
    assert [job] in jobs_by_place(view).values()
    assert client.job(job)["state"] == before["state"]  # runs stay
    client.set_topology("")
    assert client.topology()["source"] == "racks"


def test_drawing_leaves_out_nodes_that_a_mesh_has_no_place_for() -> None:
    state = State()
    for name in ("n0", "n1", "new"):
        state.add_node(Node(id=name, rack="r", gpus=(Gpu(memory_bytes=1),)))
    state.topology = ClusterMesh(sides=(2,), wrap=(False,), bytes_per_s=(1e9,), nodes=("n0", "n1"))
    view = topology_view(state.freeze())
    assert [leaf["node"] for leaf in view["leaves"]] == ["n0", "n1"]
    assert topology_of(view).names == ("n0", "n1")


def test_topology_of_other_users_and_wrong_ones_are_rejected(
    client: Client, controller: Any
) -> None:
    with pytest.raises(SpecError, match="is missing"):
        client.set_topology("levels: []")
    controller.admins = set()
    with pytest.raises(SpecError) as rejected:
        client.set_topology(MESH)
    assert rejected.value.code == "forbidden"
