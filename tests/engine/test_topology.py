"""A topology that changes while runs are under way."""

from __future__ import annotations

from tests.engine.conftest import Bench, kinds

from headgate.model import Task
from headgate.model.topology import ClusterMesh
from headgate.protocol import TopologyChanged

MESH = ClusterMesh(sides=(2,), wrap=(False,), bytes_per_s=(1e9,), nodes=("b", "a"))


def test_changed_topology_leaves_a_running_gang_untouched_and_requests_a_decision(
    bench: Bench,
) -> None:
    for name in "ab":
        bench.node(name)
    bench.job("g", [Task(), Task()], gang=True)
    launches = bench.plan(("g", 0, "a", (0,)), ("g", 1, "b", (0,)))
    for launch in launches:
        bench.started(launch)
    bench.job("later")  # waits: every GPU is held
    bench.up_to_date()
    bench.plan()
    assert kinds(bench.give(TopologyChanged(at=bench.at, topology=MESH))) == ["Decide"]
    assert bench.tasks("g") == ["running", "running"]
    bench.plan()
    assert bench.give(TopologyChanged(at=bench.at, topology=MESH)) == []  # the same again
    for launch in launches:
        bench.finished(launch)
    assert bench.job_state("g") == "finished"
    assert bench.engine.snapshot().topology == MESH
