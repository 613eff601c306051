"""Nodes that are ordered, drained and resumed: events, commands, and what may start where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.engine import Engine
from headgate.foresight.explain import explain
from headgate.journal import decode_snapshot, encode_snapshot
from headgate.model import Demand, Node, Task
from headgate.model.scaling import Scaling, Shape
from headgate.planning.rounds.decide import decide
from headgate.protocol import (
    AddNode,
    Decide,
    NodeDraining,
    NodeJoined,
    NodeRemoved,
    NodeResumed,
    OrderFailed,
    Plan,
    PlanReady,
    PlanRejected,
    RemoveNode,
    ScalingChanged,
)
from headgate.protocol.node_reasons import Infeasible, NodesDraining
from headgate.state import TaskState, check, thaw
from headgate.testing.digest import digest

Bench = Any  # of conftest.py
LARGE = Shape(name="large", cpus=8, memory_bytes=64, ready_after_s=40.0)
SCALING = Scaling(shapes=(LARGE,), utilisation=1.0, idle_after_s=100.0)
BIG = Task(demand=Demand(cpus_milli=6000))


class NoPolicy:
    """Places nothing."""

    name = "none"

    def refuses(self, job: object) -> None:
        del job

    def decide(self, snapshot: object, rng: object) -> Plan:
        del snapshot, rng
        return Plan()


def scale(bench: Bench) -> list[Any]:
    """Answer the outstanding decision with what the scaler wants, and return the commands."""
    bench.up_to_date()
    plan = decide(NoPolicy(), 0, bench.decide, bench.engine.decision_snapshot())
    event = PlanReady(at=bench.at, seen=bench.decide.seen, plan=plan)
    bench.decide = None
    commands: list[Any] = bench.give(event)
    return [c for c in commands if isinstance(c, AddNode | RemoveNode)]


def join(bench: Bench, order: str, shape: Shape = LARGE) -> list[Any]:
    node = shape.node(order, "r")
    commands: list[Any] = bench.give(NodeJoined(at=bench.at, node=node, order=order))
    return commands


def scaled(bench: Bench) -> Bench:
    bench.node("a", 0, cpus=2)
    bench.give(ScalingChanged(at=bench.at, scaling=SCALING))
    return bench


def test_parked_task_gets_one_order_which_its_node_fulfils(bench: Bench) -> None:
    scaled(bench).job("j", [BIG])
    assert scale(bench) == [AddNode(order="large-1", shape=LARGE)]
    bench.job("other", [Task(demand=Demand(cpus_milli=1000))])
    assert scale(bench) == [], "its node is on its way"
    join(bench, "large-1")
    assert bench.engine.state.fleet.orders == {}
    assert bench.engine.state.fleet.made == {"large-1": ("large-1", "large")}
    bench.run("j", 0, "large-1", ())
    bench.job("third", [Task(demand=Demand(cpus_milli=1000))])
    assert scale(bench) == []


def test_orders_survive_a_restart_and_are_repeated_with_the_same_key(bench: Bench) -> None:
    scaled(bench).job("j", [BIG])
    scale(bench)
    state = bench.engine.state
    again = thaw(decode_snapshot(encode_snapshot(state.freeze())), hypothetical=False)
    assert again.fleet == state.fleet
    assert digest(again.freeze()) == digest(state.freeze())
    commands = Engine(again).outstanding()
    assert AddNode(order="large-1", shape=LARGE) in commands


def test_failed_order_stays_on_its_way_until_the_provider_gives_up(bench: Bench) -> None:
    scaled(bench).job("j", [BIG])
    scale(bench)
    bench.give(OrderFailed(at=bench.at, order="large-1", message="quota exceeded"))
    assert bench.engine.state.fleet.orders["large-1"].failures == 1
    assert scale(bench) == []
    reason = explain(bench.engine.state, 0, bench.at).reason
    assert isinstance(reason, Infeasible)
    assert reason.failure == "quota exceeded"
    bench.give(OrderFailed(at=bench.at, order="large-1", message="no", given_up=True))
    assert scale(bench) == [AddNode(order="large-2", shape=LARGE)], "a key is used once"
    bench.give(OrderFailed(at=bench.at, order="large-1", message="late"))
    assert bench.engine.stale == 1


def test_reason_names_what_is_missing_and_the_node_on_its_way(bench: Bench) -> None:
    scaled(bench).job("j", [BIG])
    scale(bench)
    ordered_at = bench.engine.state.fleet.orders["large-1"].at
    reason = explain(bench.engine.state, 0, ordered_at + 10.0).reason
    assert str(reason) == (
        "Infeasible(needs 6 CPUs on one node, nodes have at most 2 CPUs; "
        "node large with 8 CPUs and 64 B ordered, ready in about 30 s)"
    )


def test_reason_without_an_order_names_the_limit(bench: Bench) -> None:
    bench.node("a", 0, cpus=2)
    bench.give(ScalingChanged(at=bench.at, scaling=replace(SCALING, max_nodes=1)))
    bench.job("j", [BIG])
    assert scale(bench) == []
    reason = explain(bench.engine.state, 0, bench.at).reason
    assert isinstance(reason, Infeasible)
    assert reason.way_out() == "no node is ordered: max_nodes is 1"


def test_idle_ordered_node_is_drained_and_removed_after_its_timeout(bench: Bench) -> None:
    scaled(bench).job("j", [BIG])
    scale(bench)
    join(bench, "large-1")
    launch = bench.run("j", 0, "large-1", ())
    bench.at = 500.0
    bench.finished(launch)
    assert scale(bench) == []
    assert bench.engine.state.timers, "it decides again when the timeout is over"
    bench.at = 700.0
    bench.job("k", [Task(demand=Demand(gpus=1))])  # requests a decision
    assert scale(bench) == [RemoveNode(order="large-1", node="large-1")]
    state = bench.engine.state
    assert state.nodes.draining[state.names.node_rows["large-1"]]
    bench.lose("large-1")
    assert bench.engine.outstanding()[-1:] != [], "the provider is still to confirm"
    assert RemoveNode(order="large-1", node="large-1") in bench.engine.outstanding()
    bench.give(NodeRemoved(at=bench.at, order="large-1"))
    assert (state.fleet.made, state.fleet.removing, state.fleet.drains) == ({}, {}, {})


def test_node_that_a_plan_uses_meanwhile_is_not_drained(bench: Bench) -> None:
    scaled(bench).job("j", [BIG])
    scale(bench)
    join(bench, "large-1")
    bench.up_to_date()
    row = bench.engine.state.names.node_rows["large-1"]
    event = replace(bench.plan_event(("j", 0, "large-1", ())))
    event = replace(event, plan=replace(event.plan, drains=(row,)))
    commands = bench.give(event)
    assert not any(isinstance(command, RemoveNode) for command in commands)
    assert bench.engine.state.tasks.state[0] == TaskState.STARTING


def test_lost_ordered_node_is_removed_at_the_provider_and_ordered_again(bench: Bench) -> None:
    scaled(bench).job("j", [BIG])
    scale(bench)
    join(bench, "large-1")
    assert RemoveNode(order="large-1", node="large-1") in bench.lose("large-1")
    assert scale(bench) == [AddNode(order="large-2", shape=LARGE)]
    # it joins once more while it is being removed: it starts nothing
    again = join(bench, "large-1")
    assert RemoveNode(order="large-1", node="large-1") in again
    assert bench.engine.state.nodes.draining[bench.engine.state.names.node_rows["large-1"]]


def test_second_delivery_of_an_order_is_a_node_of_nobodys_order(bench: Bench) -> None:
    scaled(bench).job("j", [BIG])
    scale(bench)
    join(bench, "large-1")
    node = LARGE.node("twin", "r")
    bench.give(NodeJoined(at=bench.at, node=node, order="large-1"))
    assert list(bench.engine.state.fleet.made) == ["large-1"]


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (Plan(orders=("huge",)), "no shape 'huge'"),
        (Plan(drains=(7,)), "node 7, which is to be drained, is not up"),
        (Plan(drains=(0,)), "node a, which is to be drained, was not ordered"),
    ],
)
def test_plan_with_impossible_orders_or_drains_is_rejected(
    bench: Bench, plan: Plan, why: str
) -> None:
    scaled(bench).job("j", [BIG])
    bench.up_to_date()
    seen: list[Any] = []
    bench.engine.handle(
        PlanReady(at=bench.at, seen=bench.decide.seen, plan=plan),
        record=lambda batch: (seen.extend(batch), batch)[1],
    )
    (outcome,) = [event for event in seen if isinstance(event, PlanRejected)]
    assert why in outcome.message


# --- drains by users -----------------------------------------------------------------------------


def drain(bench: Bench, node: str) -> list[Any]:
    event = NodeDraining(at=bench.at, node=node, by="root", reason="a new disk")
    commands: list[Any] = bench.give(event)
    return commands


def test_draining_node_keeps_its_runs_and_starts_none(bench: Bench) -> None:
    bench.node("a", 2, cpus=4)
    bench.job(
        "j",
        [
            Task(demand=Demand(gpus=1)),
            Task(demand=Demand(gpus=1)),
            Task(demand=Demand(cpus_milli=1000)),
            Task(demand=Demand()),
        ],
    )
    first, on_cpu = bench.plan(("j", 0, "a", (0,)), ("j", 2, "a", ()))
    drain(bench, "a")
    state = bench.engine.state
    assert state.gpu_count() == 1, "the GPU of its run"
    for task, gpus in ((1, (1,)), (3, ())):
        assert state.ledger.infeasibility(state.tasks.demand[task], 0, gpus)
    bench.finished(first)
    bench.finished(on_cpu)
    assert state.gpu_count() == 0
    reason = explain(state, 0, bench.at).reason
    assert reason == NodesDraining(nodes=("a",), why="a new disk")
    bench.give(NodeResumed(at=bench.at, node="a", by="root"))
    assert state.gpu_count() == 2
    assert explain(state, 0, bench.at).reason != reason
    bench.run("j", 1, "a", (1,))


def test_resumed_node_counts_what_its_runs_hold(bench: Bench) -> None:
    bench.node("a", 1, cpus=4)
    bench.job("j", [Task(demand=Demand(gpus=1)), Task(demand=Demand(cpus_milli=3000))])
    bench.plan(("j", 0, "a", (0,)), ("j", 1, "a", ()))
    drain(bench, "a")
    bench.give(NodeResumed(at=bench.at, node="a", by="root"))
    check(bench.engine.state)
    assert bench.engine.state.nodes.free.at(0, 0) == 1000


def test_drain_outlasts_a_loss_of_the_node(bench: Bench) -> None:
    bench.node("a", 1)
    drain(bench, "a")
    bench.lose("a")
    bench.node("a", 2)
    assert bench.engine.state.gpu_count() == 0
    bench.give(NodeResumed(at=bench.at, node="a", by="root"))
    assert bench.engine.state.gpu_count() == 2


def test_second_drain_and_resume_of_another_node_are_stale(bench: Bench) -> None:
    bench.node("a", 1)
    drain(bench, "a")
    drain(bench, "a")
    drain(bench, "none")
    bench.give(NodeResumed(at=bench.at, node="none", by="root"))
    assert bench.engine.stale == 3


def test_cluster_without_waiting_tasks_decides_only_if_it_scales(bench: Bench) -> None:
    node = Node(id="a", rack="r", gpus=(), cpus=4)
    assert not any(isinstance(c, Decide) for c in bench.give(NodeJoined(at=bench.at, node=node)))
    commands = bench.give(ScalingChanged(at=bench.at, scaling=SCALING))
    assert any(isinstance(command, Decide) for command in commands)
