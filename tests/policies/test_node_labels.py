"""Labels of nodes under every policy: jobs run where their selector says, and labels may change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.app import POLICIES
from headgate.base.rng import stream
from headgate.machine import apply
from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Shard, Task
from headgate.model.labels import as_labels, selects
from headgate.ports import make_policy
from headgate.protocol import LabelsChanged, NodeJoined, NodeLost, Plan
from headgate.state import State, check

GPU = Gpu(memory_bytes=1000)
LABELS = ((), ("ml",), ("ml", "zone=a"), ("spot", "zone=b"))


def cluster(gpus: int = 2) -> State:
    """Four nodes n0 to n3 in two racks, with the labels of `LABELS`."""
    state = State()
    state.set_queue(Queue(name="default"))
    for number, labels in enumerate(LABELS):
        rack = f"r{number // 2}"
        node = Node(id=f"n{number}", rack=rack, gpus=(GPU,) * gpus, cpus=2, labels=labels)
        state.add_node(node)
    return state


def add(
    state: State, name: str, *tasks: Task, selector: tuple[str, ...] = (), **keys: bool
) -> None:
    chosen = tuple(replace(t, demand=replace(t.demand, selector=selector)) for t in tasks)
    row = state.add_job(Job(id=name, name=name, user=name, queue="default", tasks=chosen, **keys))
    activate(state, row)
    check(state)


def decide(policy: str, state: State) -> Plan:
    return make_policy(POLICIES, policy).decide(state.freeze(), stream(1))


def started(state: State, plan: Plan, job: str) -> list[str]:
    row = state.names.job_rows[job]
    mine = [start for start in plan.starts if state.tasks.job[start.task] == row]
    return sorted(state.node(start.node).id for start in mine)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("selector", "nodes"),
    [
        (("ml",), ["n1", "n1", "n2", "n2"]),
        (("zone",), ["n2", "n2", "n3", "n3"]),
        (("zone=a",), ["n2", "n2"]),
        (("!ml", "!spot"), ["n0", "n0"]),
        (("ml", "!zone"), ["n1", "n1"]),
        (("zone=c",), []),
    ],
)
def test_tasks_start_on_all_gpus_whose_node_has_the_labels(
    policy: str, selector: tuple[str, ...], nodes: list[str]
) -> None:
    state = cluster()
    add(state, "a", *(Task(),) * 9, selector=selector)
    assert started(state, decide(policy, state), "a") == nodes


@pytest.mark.parametrize("policy", POLICIES)
def test_gangs_and_tasks_without_gpus_obey_labels(policy: str) -> None:
    state = cluster()
    wide = Task(demand=Demand(gpus=2))
    add(state, "gang", wide, wide, selector=("ml",), gang=True)
    add(state, "cpus", *(Task(demand=Demand(gpus=0, cpus_milli=1000)),) * 3, selector=("spot",))
    plan = decide(policy, state)
    assert started(state, plan, "gang") == ["n1", "n2"]
    assert started(state, plan, "cpus") == ["n3", "n3"]


@pytest.mark.parametrize("policy", ["headgate", "fs", "fsp"])
def test_flow_sends_tasks_near_their_data_among_nodes_with_the_labels(policy: str) -> None:
    state = cluster()
    for name, node in (("d1", 1), ("d3", 3)):
        state.add_replica(state.shard(Shard(id=name, size_bytes=10**12)), node)
    near = Task(reads=("d1",))
    away = Task(reads=("d3",))  # the nearest node with the label is in the same rack
    add(state, "a", near, away, selector=("ml",))
    plan = decide(policy, state)
    row = state.names.job_rows["a"]
    nodes = {start.task: state.node(start.node).id for start in plan.starts}
    first = state.jobs.first_task[row]
    assert nodes == {first: "n1", first + 1: "n2"}


@pytest.mark.parametrize("policy", ["headgate", "fs", "fair"])
def test_shares_count_only_gpus_that_a_job_accepts(policy: str) -> None:
    """The job that needs a label has the 2 GPUs with it, the other one all of the rest."""
    state = cluster()
    add(state, "any", *(Task(),) * 9)
    add(state, "labelled", *(Task(),) * 9, selector=("spot",))
    plan = decide(policy, state)
    assert started(state, plan, "labelled") == ["n3", "n3"]
    assert len(started(state, plan, "any")) == 6


@pytest.mark.parametrize("policy", POLICIES)
def test_labels_that_change_move_no_run_and_count_for_the_next_ones(policy: str) -> None:
    state = cluster()
    add(state, "a", *(Task(),) * 9, selector=("spot",))
    for start in decide(policy, state).starts:
        state.launch(start.task, start.node, start.gpus, 1)
    assert apply(state, LabelsChanged(at=1.0, node="n3", labels=(), by="root")).decide
    check(state)
    assert sum(state.jobs.running.array()) == 2
    assert started(state, decide(policy, state), "a") == []
    apply(state, LabelsChanged(at=2.0, node="n0", labels=("spot",), by="root"))
    assert started(state, decide(policy, state), "a") == ["n0", "n0"]
    assert not apply(state, LabelsChanged(at=3.0, node="n0", labels=("spot",), by="root")).decide


def test_labels_that_were_set_count_whenever_the_node_joins() -> None:
    state = cluster()
    apply(state, LabelsChanged(at=1.0, node="n0", labels=("ml",), by="root"))
    apply(state, LabelsChanged(at=1.0, node="later", labels=("new",), by="root"))
    apply(state, NodeLost(at=2.0, node="n0"))
    for name in ("n0", "later"):
        node = Node(id=name, rack="r", gpus=(GPU,), labels=("own",))
        apply(state, NodeJoined(at=3.0, node=node))
    check(state)
    assert state.node(state.names.node_rows["n0"]).labels == ("ml",)
    assert state.node(state.names.node_rows["later"]).labels == ("new",)


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        ((), (), True),
        (("a",), ("a=1",), True),
        (("a=1",), ("a",), False),
        (("!a=1",), ("a=2",), True),
        (("!a",), ("a=2",), False),
        (("a", "b"), ("a",), False),
    ],
)
def test_a_selector_asks_for_names_or_values(
    selector: tuple[str, ...], labels: tuple[str, ...], expected: bool
) -> None:
    assert selects(selector, labels) is expected


def test_a_node_has_one_value_of_a_name() -> None:
    assert as_labels(["b", "a=1", "a=2", "b"]) == ("a=2", "b")
