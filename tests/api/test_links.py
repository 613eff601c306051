"""Contention between running jobs, through the API."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.api.client import Client
from headgate.model.topology import ClusterTree
from headgate.protocol import TopologyChanged

GANG = """\
name: {name}
num_nodes: 2
run: train
resources: {{gpus: 1}}
communication: {{pattern: all-reduce-ring, bytes_per_step: 10, step_s: 1.0}}
"""
UNDECLARED = "{name: quiet, num_nodes: 2, run: train, resources: {gpus: 1}}"
TREE = ClusterTree(
    level_names=("core", "rack", "node"),
    names=("core", "r0", "r1", "n0", "n1"),
    parents=(-1, 0, 0, 1, 2),
    levels=(0, 1, 1, 2, 2),
    bytes_per_s=(float("inf"), 10.0, 10.0, 100.0, 100.0),
)


@pytest.fixture
def two_gangs(controller: Any) -> None:
    """Two gangs on the same two nodes, in different racks."""
    controller.handle(TopologyChanged(at=controller.clock, topology=TREE))
    for name in ("a", "b"):
        controller.submit(GANG.format(name=name), user="ann", key=None)


@pytest.mark.usefixtures("two_gangs")
def test_links_show_load_capacity_and_the_jobs_that_share_them(client: Client) -> None:
    found = client.links()
    golden = (3 + 5**0.5) / 2  # seconds of a step of each
    assert {link["link"] for link in found["links"][:4]} == {
        "r0 -> core", "core -> r0", "r1 -> core", "core -> r1",
    }  # fmt: skip
    busiest = found["links"][0]
    assert busiest["capacity_bytes_per_s"] == 10
    assert busiest["load_bytes_per_s"] == pytest.approx(2 * 10 / golden)
    assert busiest["use"] == pytest.approx(2 / golden)
    assert [job["job"] for job in busiest["jobs"]] == ["job-1", "job-2"]
    alone = [link for link in found["links"] if ":" in link["link"]]
    assert alone, "each GPU's own link is there, too"
    assert all(len(link["jobs"]) == 1 for link in alone)


@pytest.mark.usefixtures("two_gangs")
def test_jobs_show_their_slowdown_and_whom_they_meet(client: Client) -> None:
    first, second = client.links()["jobs"]
    assert first["slowdown"] == pytest.approx(((3 + 5**0.5) / 2) / 2)
    assert (first["best_step_s"], first["diameter"]) == (2.0, 6)
    assert (first["shared_with"], second["shared_with"]) == (["job-2"], ["job-1"])


def test_gangs_that_declare_no_communication_are_named_apart(
    client: Client, controller: Any
) -> None:
    controller.submit(UNDECLARED, user="ann", key=None)
    assert client.links() == {"jobs": [], "links": [], "undeclared": ["job-1"]}
