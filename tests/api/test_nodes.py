"""The list of nodes: which are in it, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.api.client import Client
from headgate.protocol import NodeDraining, NodeJoined, NodeLost

HOUR_S = 3600.0


def listed(client: Client, **query: bool) -> list[tuple[str, str]]:
    return [(node["id"], node["state"]) for node in client.nodes(**query)]


@pytest.fixture
def lost(controller: Any) -> Any:
    """Return the controller, of which the node n1 has just been lost."""
    controller.handle(NodeLost(at=controller.clock, node="n1"))
    return controller


def test_lost_node_leaves_the_list_after_an_hour(client: Client, lost: Any) -> None:
    lost.clock += HOUR_S - 1
    assert listed(client) == [("n0", "up"), ("n1", "lost")]
    lost.clock += 1
    assert listed(client) == [("n0", "up")]
    assert listed(client, all=True) == [("n0", "up"), ("n1", "lost")]


def test_node_that_returns_is_listed_and_stays_for_an_hour_after_its_next_loss(
    client: Client, lost: Any
) -> None:
    lost.clock += 2 * HOUR_S
    lost.handle(NodeJoined(at=lost.clock, node=lost.snapshot().node(1)))
    lost.clock += 2 * HOUR_S
    assert listed(client) == [("n0", "up"), ("n1", "up")]
    lost.handle(NodeLost(at=lost.clock, node="n1"))
    assert listed(client) == [("n0", "up"), ("n1", "lost")]


def test_lost_node_that_a_user_drains_stays_in_the_list(client: Client, lost: Any) -> None:
    lost.handle(NodeDraining(at=lost.clock, node="n1", by="root", reason="a new disk"))
    lost.clock += 2 * HOUR_S
    assert listed(client) == [("n0", "up"), ("n1", "lost")]
