"""What processes outside Headgate use of nodes, as the nodes and waiting jobs are shown."""

from __future__ import annotations

from typing import Any

from headgate.protocol import NO_OUTSIDE, GpuOutside, NodeReported, Outside

GIB = 1 << 30


def report(controller: Any, node: str, outside: Outside) -> None:
    controller.handle(
        NodeReported(at=controller.clock, node=node, cpus_milli=0, memory_bytes=0, outside=outside)
    )


def test_nodes_name_what_is_used_outside(up: Any, controller: Any) -> None:
    every = [node["id"] for node in up("nodes", "-o", "json").json["nodes"]]
    for name in every:
        gpus = tuple(GpuOutside(gpu, 3 * GIB, 4711) for gpu in (0, 1))
        report(controller, name, Outside(cpus_milli=500, gpus=gpus))
    found = up("nodes", "-o", "json").json["nodes"]
    (first,) = [node for node in found if node["id"] == every[0]]
    assert first["outside"] == {"cpus": 0.5, "memory_bytes": 0}
    assert first["granted"]["cpus"] == 0
    assert [gpu["outside_memory_bytes"] for gpu in first["gpus"]] == [3 * GIB] * 2
    assert [gpu["granted_memory_bytes"] for gpu in first["gpus"]] == [0, 0]
    shown = " ".join(up("nodes").out.split())
    used = "0.5 CPUs, 3 GiB of GPU 0 (pid 4711) and 3 GiB of GPU 1 (pid 4711)"
    assert f"{every[0]}: {used} in use outside Headgate" in shown
    for name in every:
        report(controller, name, NO_OUTSIDE)
    assert "outside" not in up("nodes").out


def test_process_on_a_gpu_is_named(up: Any, controller: Any) -> None:
    (name, *_) = [node["id"] for node in up("nodes", "-o", "json").json["nodes"]]
    report(controller, name, Outside(gpus=(GpuOutside(1, GIB, 7),)))
    view = up("nodes", "-o", "json").json["nodes"][0]["gpus"][1]
    assert (view["outside_memory_bytes"], view["outside_pid"]) == (GIB, 7)
