"""A cluster that scales: a task that fits nowhere gets its node, and idle nodes go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.live.shared import Clusters
from tests.live.system import Headgate

from headgate.live.cluster.ray_nodes import local_cluster

pytestmark = pytest.mark.live

SCALING = """
shapes: [{name: large, resources: {cpus: 8}, ready_after: 20s}]
idle_after: 4s
utilisation: 1
provider: {kind: local-ray}
"""
BIG = "{name: big, run: 'echo ran on $HEADGATE_NODE', resources: {gpus: 0, cpus: 6}}"


@pytest.fixture(scope="module")
def headgate(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headgate]:
    file = tmp_path_factory.mktemp("scaling") / "scaling.yaml"
    file.write_text(SCALING)
    with clusters.lend(__name__, nodes=2, gpus=1, up=(f"--scaling={file}",)) as headgate:
        yield headgate


def scaling(headgate: Headgate) -> Any:
    return headgate.client.scaling()


def all_gone(headgate: Headgate) -> None:
    headgate.until(lambda: headgate.up_nodes() == {"n0", "n1"}, "the idle node has gone")
    headgate.until(lambda: not scaling(headgate)["removing"], "nothing of it is left")
    cluster = local_cluster(headgate.state)
    assert cluster is not None
    assert (set(cluster.nodes), cluster.ordered) == ({"n0", "n1"}, [])


def test_task_that_fits_nowhere_gets_its_node_and_the_idle_node_goes(headgate: Headgate) -> None:
    job = headgate.submit(BIG)
    why = headgate.until(
        lambda: r if (r := headgate.client.why(job)["reason"]) and "ordered" in str(r) else None,
        "it is known what is on its way",
    )
    assert why["code"] == "Infeasible"
    headgate.ends(job)
    (task,) = headgate.client.tasks(job)
    assert task["node"].startswith("large-")
    all_gone(headgate)


def test_controller_that_is_killed_while_a_node_is_ordered_makes_no_second_one(
    headgate: Headgate,
) -> None:
    job = headgate.submit(BIG)
    headgate.until(lambda: scaling(headgate)["orders"], "a node is on its way")
    headgate.kill_controller()
    headgate.up()
    headgate.ends(job)
    large = [node["id"] for node in headgate.client.nodes() if node["id"].startswith("large-")]
    assert sorted(large) == ["large-1", "large-2"], "the first has gone, the second is the order's"
    all_gone(headgate)


def test_job_that_no_shape_holds_is_rejected(headgate: Headgate) -> None:
    (problem,) = headgate.call("submit", _file(headgate, "gpus: 0, cpus: 20"), code=105)["problems"]
    assert "the nearest is large" in problem["hint"]


def _file(headgate: Headgate, resources: str) -> str:
    file = headgate.base / "job.yaml"
    file.write_text(f"{{name: huge, run: x, resources: {{{resources}}}}}")
    return str(file)
