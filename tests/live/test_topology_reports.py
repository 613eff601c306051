"""What Ray's labels and the nodes' agents report of the topology."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.live.agent import AgentReport
from headgate.live.membership import _node
from headgate.live.probe import NodeReport
from headgate.live.ray_nodes import _member

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
