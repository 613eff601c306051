"""Labels of Ray nodes become labels of nodes, and those of shapes labels of the nodes made."""

from __future__ import annotations

from headgate.live.cluster.ray_command import node_command, node_labels
from headgate.live.cluster.ray_ports import PortBlock
from headgate.model import Node


def test_labels_that_users_gave_a_ray_node_are_those_of_the_node() -> None:
    given = {
        "ray.io/node-id": "4f2a",
        "ray.io/accelerator-type": "H100",
        "headgate-node": "n1",
        "headgate-rack": "r0",
        "zone": "a",
        "ml": "",
        "not a label": "x",
    }
    assert node_labels(given) == ("ml", "ray.io/accelerator-type=H100", "zone=a")


def test_a_node_of_a_shape_with_labels_is_started_with_them() -> None:
    node = Node(id="n1", rack="r0", gpus=(), labels=("spot", "zone=a"))
    ports = PortBlock(**dict.fromkeys(PortBlock.__dataclass_fields__, 1))
    command = node_command("127.0.0.1:1", node, "127.0.0.1", "/tmp/x", ports)
    written = command[command.index("--labels") + 1].split(",")
    labels = dict(each.split("=", 1) for each in written)
    assert node_labels(labels) == ("spot", "zone=a")
