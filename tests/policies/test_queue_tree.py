"""A tree of queues under every policy: limits at all levels, labels, states, and changes of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from headgate.app import POLICIES
from headgate.base.rng import stream
from headgate.foresight.nodes import node_reason
from headgate.machine import apply
from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.model.scaling import Scaling, Shape
from headgate.planning.scaling.scaler import wanted_now
from headgate.ports import make_policy
from headgate.protocol import (
    Hardened,
    JobAssigned,
    JobSubmitted,
    KeptPlace,
    LabelsChanged,
    Plan,
    QueueChanged,
    QueueRemoved,
    ScalingChanged,
)
from headgate.protocol.node_reasons import Infeasible
from headgate.protocol.queue_reasons import QueueQuota, QueueStopped
from headgate.protocol.reasons import QueueLimit
from headgate.state import JobState, State, check
from headgate.state.quotas import Quotas

GPU = Gpu(memory_bytes=1000)
SHARING = ("headgate", "fs", "fsp", "gs", "gsd", "gsp", "fair", "capacity")


def tree(*queues: Queue, gpus: int = 8) -> State:
    """A node with labels and one without, half of the GPUs each; `queues`, parents first."""
    state = State()
    for queue in (Queue(name="default"), *queues):
        apply(state, QueueChanged(at=0.0, queue=queue))
    for name, labels in (("plain", ()), ("labelled", ("ml",))):
        devices = (GPU,) * (gpus // 2)
        state.add_node(Node(id=name, rack="r", gpus=devices, cpus=16, labels=labels))
    return state


def add(
    state: State,
    name: str,
    queue: str,
    tasks: int = 9,
    demand: Demand | None = None,
    *,
    gang: bool = False,
) -> None:
    every = (Task(demand=demand or Demand(gpus=1)),) * tasks
    row = state.add_job(Job(id=name, name=name, user=name, queue=queue, tasks=every, gang=gang))
    activate(state, row)
    check(state)


def decide(policy: str, state: State) -> Plan:
    return make_policy(POLICIES, policy).decide(state.freeze(), stream(1))


def started(state: State, plan: Plan) -> Counter[str]:
    return Counter(state.job(state.tasks.job[start.task]).id for start in plan.starts)


def nodes(state: State, plan: Plan) -> list[str]:
    return sorted(state.node(start.node).id for start in plan.starts)


def reasons(state: State, plan: Plan, job: str) -> list[Any]:
    row = state.names.job_rows[job]
    return [refusal.reason for refusal in plan.refusals if row in refusal.jobs]


LAB = (
    Queue(name="lab", max_gpus=5),
    Queue(name="a", parent="lab", max_gpus=4),
    Queue(name="b", parent="lab"),
)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_queue_at_any_level_exceeds_its_limit_and_the_reason_names_the_one_that_is_full(
    policy: str,
) -> None:
    state = tree(*LAB)
    add(state, "in_a", "a")
    add(state, "in_b", "b")
    plan = decide(policy, state)
    found = started(state, plan)
    assert found.total() == 5
    assert found["in_a"] <= 4
    full = QueueLimit(queue="lab", used_gpus=5, max_gpus=5)
    assert full in reasons(state, plan, "in_b")


@pytest.mark.parametrize("policy", SHARING)
def test_shares_are_divided_from_the_top_of_the_tree(policy: str) -> None:
    """Two queues of equal weight: one has one job, the other one is divided 3 to 1."""
    state = tree(
        Queue(name="one"),
        Queue(name="two"),
        Queue(name="large", parent="two", weight=3.0),
        Queue(name="small", parent="two"),
    )
    for name, queue in (("j1", "one"), ("j2", "large"), ("j3", "small")):
        add(state, name, queue)
    assert started(state, decide(policy, state)) == {"j1": 4, "j2": 3, "j3": 1}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("limit", "demand", "most"),
    [
        ((("cpus", 3000),), Demand(gpus=1, cpus_milli=1000), 3),
        ((("memory", 5000),), Demand(gpus=1, memory_bytes=2000), 2),
        ((("cpus", 3000),), Demand(gpus=0, cpus_milli=1000), 3),
    ],
)
def test_limits_of_other_kinds_hold_for_all_jobs_below(
    policy: str, limit: tuple[tuple[str, int], ...], demand: Demand, most: int
) -> None:
    state = tree(Queue(name="top", limit=limit), Queue(name="q", parent="top"))
    add(state, "j", "q", demand=demand)
    plan = decide(policy, state)
    assert started(state, plan) == {"j": most}
    found = [each for each in reasons(state, plan, "j") if isinstance(each, QueueQuota)]
    assert {each.queue for each in found} == {"top"}
    assert found[0].used <= found[0].limit == dict(limit)[found[0].resource]


@pytest.mark.parametrize("policy", POLICIES)
def test_jobs_run_on_nodes_with_the_labels_of_their_queue_and_of_those_above(policy: str) -> None:
    state = tree(Queue(name="top", labels=("ml",)), Queue(name="q", parent="top"))
    add(state, "j", "q")
    assert nodes(state, decide(policy, state)) == ["labelled"] * 4
    apply(state, QueueChanged(at=1.0, queue=Queue(name="top", labels=("!ml",))))
    check(state)
    assert nodes(state, decide(policy, state)) == ["plain"] * 4


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_starts_in_a_stopped_queue_or_below_it(policy: str) -> None:
    state = tree(Queue(name="top", state="stopped"), Queue(name="q", parent="top"))
    add(state, "j", "q")
    add(state, "c", "q", demand=Demand(gpus=0, cpus_milli=1000))
    plan = decide(policy, state)
    assert not len(plan.starts)
    assert QueueStopped(queue="top") in reasons(state, plan, "j")
    apply(state, QueueChanged(at=1.0, queue=Queue(name="top")))
    assert started(state, decide(policy, state))["j"] == 8


@pytest.mark.parametrize("policy", ["headgate", "fifo", "fair"])
def test_a_job_that_is_assigned_to_another_queue_runs_on_and_counts_there(policy: str) -> None:
    state = tree(*LAB, Queue(name="other", labels=("ml",)))
    add(state, "j", "a", tasks=20)
    for start in decide(policy, state).starts:
        state.launch(start.task, start.node, start.gpus, 1)
    effects = apply(state, JobAssigned(at=1.0, job="j", queue="other", by="ada"))
    assert effects.decide
    check(state)
    rows = state.names.queue_rows
    assert [Quotas(state).used(rows[name]) for name in ("lab", "other")] == [0, 4000]
    assert sum(state.jobs.running.array()) == 4
    later = decide(policy, state)
    assert {*nodes(state, later)} <= {"labelled"}
    assert apply(state, JobAssigned(at=2.0, job="j", queue="none", by="ada")).stale == 1


def test_queues_with_jobs_or_queues_below_them_are_not_removed() -> None:
    state = tree(*LAB)
    add(state, "j", "a", tasks=1)
    for name in ("a", "lab", "none"):
        assert apply(state, QueueRemoved(at=1.0, name=name)).stale == 1
    assert apply(state, QueueRemoved(at=1.0, name="b")).stale == 0
    check(state)
    apply(state, QueueChanged(at=2.0, queue=Queue(name="b", weight=2.0)))
    assert state.queue(state.names.queue_rows["b"]).weight == 2.0


@pytest.mark.parametrize("policy", ["headgate", "fsp", "fs"])
def test_warm_rounds_obey_labels_of_queues_that_change(policy: str) -> None:
    """The same policy object decides before and after, as it does in a world."""
    state = tree(Queue(name="q"), gpus=4)
    add(state, "j", "q")
    chosen = make_policy(POLICIES, policy)
    chosen.decide(state.freeze(), stream(1))
    apply(state, QueueChanged(at=1.0, queue=Queue(name="q", labels=("ml",))))
    assert nodes(state, chosen.decide(state.freeze(), stream(2))) == ["labelled"] * 2
    apply(state, LabelsChanged(at=2.0, node="plain", labels=("ml",), by="root"))
    expected = ["labelled"] * 2 + ["plain"] * 2
    assert nodes(state, chosen.decide(state.freeze(), stream(3))) == expected


def test_places_are_kept_no_longer_for_a_unit_whose_queue_is_stopped() -> None:
    state = tree(Queue(name="q"))
    add(state, "j", "q", tasks=1)
    places = (KeptPlace(0, "plain", (0,)),)
    state.hardened = Hardened(job="j", since=0.0, places=places, policy="headgate")
    check(state)
    apply(state, QueueChanged(at=1.0, queue=Queue(name="q", weight=2.0)))
    assert state.hardened is not None
    apply(state, QueueChanged(at=2.0, queue=Queue(name="q", state="stopped")))
    assert state.hardened is None


@pytest.mark.parametrize("gang", [False, True])
def test_a_job_that_no_node_with_the_labels_of_its_queue_can_hold_says_which(gang: bool) -> None:
    state = tree(Queue(name="q", labels=("gone",)))
    add(state, "j", "q", tasks=2 if gang else 1, gang=gang)
    reason = node_reason(state.freeze(), state.names.job_rows["j"], now=0.0)
    assert isinstance(reason, Infeasible)
    assert "with labels gone" in reason.cause()
    apply(state, QueueChanged(at=1.0, queue=Queue(name="q")))
    assert node_reason(state.freeze(), state.names.job_rows["j"], now=0.0) is None


@pytest.mark.parametrize("gang", [False, True])
def test_a_node_with_the_labels_of_a_queue_is_ordered_for_its_jobs(gang: bool) -> None:
    state = tree(Queue(name="q", labels=("spot",)))
    shapes = [
        Shape(name="plain", gpus=(GPU,) * 2, cost_per_h=1.0),
        Shape(name="spot", gpus=(GPU,) * 2, cost_per_h=2.0, labels=("spot",)),
    ]
    apply(state, ScalingChanged(at=0.0, scaling=Scaling(shapes=tuple(shapes))))
    add(state, "j", "q", tasks=2 if gang else 1, gang=gang)
    assert wanted_now(state.freeze()).orders == ("spot",)


def test_what_was_checked_on_an_older_tree_breaks_no_law() -> None:
    """Jobs are in queues without queues below them, whatever comes first."""
    state = tree(Queue(name="busy"), *LAB)
    add(state, "j", "busy", tasks=1)
    late = QueueChanged(at=1.0, queue=Queue(name="below", parent="busy"))
    assert apply(state, late).stale == 1
    assert apply(state, JobAssigned(at=1.0, job="j", queue="lab", by="root")).stale == 1
    apply(state, QueueRemoved(at=1.0, name="b"))
    for name, queue in (("divided", "lab"), ("removed", "b")):
        job = Job(id=name, name=name, user="u", queue=queue, tasks=(Task(),))
        apply(state, JobSubmitted(at=2.0, job=job))
        row = state.names.job_rows[name]
        assert state.jobs.state[row] == JobState.CANCELLED
        assert name in state.jobs.message[row]
    check(state)
    assert started(state, decide("headgate", state)) == {"j": 1}
