"""A job of which a run uses more than it holds, on the command line."""

from __future__ import annotations

from typing import Any

from headgate.protocol import NodeReported, OverUse
from headgate.state import State

GIB = 1 << 30


def test_get_and_nodes_show_what_a_run_uses_beyond_what_it_holds(up: Any, controller: Any) -> None:
    job = "{run: train, resources: {gpus: 0.5, gpu_memory: 1Gi}}"
    controller.submit(job, user="ann", key=None)
    state: State = controller.engine.state
    node, run = state.node(state.tasks.node[0]).id, state.run_id(0)

    def uses(*over: OverUse) -> None:
        at = controller.clock
        report = NodeReported(at=at, node=node, cpus_milli=0, memory_bytes=0, over=over)
        controller.handle(report)

    uses(OverUse(run, 0, 3 * GIB))
    assert f"Uses more: task 0 on {node} uses 3 GiB of memory of a GPU, holds 1 GiB\n" in (
        up("get", "job-1").out
    )
    over = {"memory": None, "gpu_memory": {"used_bytes": 3 * GIB, "held_bytes": GIB}}
    (task,) = up("get", "job-1", "-o", "json").json["task_list"]
    assert task["over"] == over
    nodes = up("nodes", "-o", "json").json["nodes"]
    found = {each["id"]: each["over"] for each in nodes if each["over"]}
    assert found == {node: [{"task": "job-1/0", **over}]}
    assert f"job-1/0 on {node} uses 3 GiB" in " ".join(up("top", "--once").out.split())
    uses()
    assert "Uses more" not in up("get", "job-1").out
