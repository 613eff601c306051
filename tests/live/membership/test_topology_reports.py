"""What Ray's labels and the nodes' agents report of the topology and of GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.live.actors.agent import AgentReport
from headgate.live.cluster.ray_command import node_command
from headgate.live.cluster.ray_nodes import _member
from headgate.live.cluster.ray_ports import PortBlock
from headgate.live.membership.membership import _node
from headgate.live.node.node_status import GpuReport, NodeReport
from headgate.model import Gpu, Node

MACHINE = NodeReport(
    cpus=4, cpu_utilisation=0, memory_bytes=0, memory_free_bytes=0, disk_bytes=0,
    disk_free_bytes=0, gpus=(),
)  # fmt: skip


def entry(**labels: str) -> dict[str, Any]:
    return {
        "Labels": {key.replace("_", "-"): value for key, value in labels.items()},
        "Resources": {"GPU": 2.0, "CPU": 4.0},
        "NodeID": "1",
        "NodeManagerAddress": "h",
    }


@pytest.mark.parametrize(
    ("labels", "rack"),
    [
        ({}, "rack-0"),
        ({"headgate_rack": "r"}, "r"),
        ({"headgate_rack": "r", "headgate_aggregation": "a"}, "a/r"),
        ({"headgate_rack": "r", "headgate_aggregation": "a", "headgate_core": "c"}, "c/a/r"),
    ],
)
def test_labels_name_the_switches_above_a_node(labels: dict[str, str], rack: str) -> None:
    assert _member(entry(**labels)).rack == rack


def test_closeness_of_physical_gpus_is_part_of_the_node() -> None:
    def joined(closeness: tuple[tuple[int, ...], ...], **labels: str) -> Any:
        report = AgentReport(
            node="h", uid=0, machine=MACHINE, host="h", port=1, shards=(), corrupt=(),
            served_bytes={}, closeness=closeness,
        )  # fmt: skip
        return _node(_member(entry(**labels)), report).shape

    near = ((0, 5), (5, 0))
    assert joined(near) is not None
    assert joined(near, headgate_gpu_memory="1") is None  # virtual GPUs
    assert joined(()) is None
    assert joined(((0, 5, 5), (5, 0, 5), (5, 5, 0))) is None  # Ray was given some of them only


def models(*seen: str, **labels: str) -> list[str]:
    """Return the models of a node's two GPUs, of which its driver sees some."""
    gpus = tuple(
        GpuReport(index=n, name=name, memory_bytes=1, memory_used_bytes=0, utilisation=None)
        for n, name in enumerate(seen)
    )
    report = AgentReport(
        node="h", uid=0, machine=replace(MACHINE, gpus=gpus), host="h", port=1, shards=(),
        corrupt=(), served_bytes={},
    )  # fmt: skip
    return [gpu.model for gpu in _node(_member(entry(**labels)), report).gpus]


def test_gpus_are_of_the_model_that_the_driver_reports_unless_a_label_gives_one() -> None:
    assert models("NVIDIA H100 80GB HBM3", "NVIDIA A100") == [
        "NVIDIA H100 80GB HBM3",
        "NVIDIA A100",
    ]
    assert models("NVIDIA H100") == ["NVIDIA H100", "virtual"]
    assert models("NVIDIA H100", headgate_gpu_model="L4") == ["L4", "L4"]


@pytest.mark.parametrize(
    ("given", "labelled"),
    [
        (("RTX 4090", "RTX 4090"), ["RTX-4090", "RTX-4090"]),
        (("Tesla T4", "H100"), ["Tesla-T4", "H100"]),
        (("", "H100"), ["", "H100"]),
        (("", ""), ["virtual", "virtual"]),
    ],
)
def test_virtual_nodes_carry_the_models_they_were_given(
    given: tuple[str, str], labelled: list[str]
) -> None:
    node = Node(id="n", rack="r", gpus=tuple(Gpu(memory_bytes=1, model=each) for each in given))
    command = node_command("h:1", node, "127.0.0.1", "ray", PortBlock(first=1, last=50))
    pairs = [each.split("=") for each in command[command.index("--labels") + 1].split(",")]
    assert models(**{key.replace("-", "_"): value for key, value in pairs}) == labelled
