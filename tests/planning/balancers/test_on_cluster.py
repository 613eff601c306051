"""Balancers as placers: single tasks and units on nodes with room, from round to round."""

from __future__ import annotations

from collections import Counter

import pytest

from headgate.app import POLICIES
from headgate.base.rng import Random
from headgate.machine import admission, apply
from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.balancers import BALANCERS
from headgate.planning.place.choose.balancing import node_speeds
from headgate.planning.place.choose.setting import placer_of
from headgate.planning.place.placement import fit
from headgate.planning.units.unit import waiting_units
from headgate.ports import Policy, make_policy
from headgate.protocol import Plan, PlanAdmitted, PlanReady
from headgate.state import Scratch, State, TaskState

ON_CPU, ON_GPU, ON_HALF = (
    Task(demand=Demand(cpus_milli=1000)),
    Task(demand=Demand(gpus=1)),
    Task(demand=Demand(gpus=1, gpu_milli=500)),
)
EVERY_TASK = pytest.mark.parametrize("task", [ON_CPU, ON_GPU], ids=["CPU", "GPU"])


def cluster(*sizes: int) -> State:
    """Return idle nodes with so many CPUs and GPUs."""
    state = State()
    state.set_queue(Queue(name="q"))
    for number, size in enumerate(sizes):
        gpus = (Gpu(memory_bytes=0),) * size
        state.add_node(Node(id=f"n{number}", rack="r", gpus=gpus, cpus=size))
    return state


def submit(state: State, task: Task, count: int, *, gang: bool = False) -> int:
    number = len(state.jobs.state)
    tasks = (task,) * count
    job = Job(id=f"j{number}", name="j", user="u", queue="q", tasks=tasks, gang=gang)
    row = state.add_job(job)
    activate(state, row)
    return row


def decide(state: State, policy: Policy) -> Plan:
    """Decide and admit a round."""
    seen = state.freeze()
    plan = policy.decide(seen, Random(0))
    assert policy.decide(seen, Random(1)) == plan, "a round that is repeated decides the same"
    ready = PlanReady(at=state.now, seen=seen.version, plan=plan)
    admitted = admission.admit(state, seen, ready)
    assert isinstance(admitted, PlanAdmitted)
    apply(state, admitted)
    return plan


def policy_of(order: str, place: str) -> Policy:
    return make_policy(POLICIES, order, {"place": place})


def nodes_of(plan: Plan) -> list[int]:
    return [start.node for start in plan.starts]


@EVERY_TASK
@pytest.mark.parametrize("order", ["fifo", "easy-backfill", "least-attained-service"])
def test_smooth_weighted_continues_from_round_to_round(order: str, task: Task) -> None:
    policy, state, rounds = policy_of(order, "swrr"), cluster(40, 20, 20), list[int]()
    for count in (3, 1, 4):
        submit(state, task, count)
        rounds += nodes_of(decide(state, policy))
    whole = cluster(40, 20, 20)
    submit(whole, task, 8)
    assert rounds == nodes_of(decide(whole, policy))
    assert Counter(rounds) == {0: 4, 1: 2, 2: 2}
    assert state.node_memos == {}, "its weights are 0 after a cycle"


@pytest.mark.parametrize("order", ["fifo", "easy-backfill"])
def test_tasks_on_parts_of_gpus_are_balanced(order: str) -> None:
    state = cluster(4, 2, 2)
    submit(state, ON_HALF, 4)
    assert Counter(nodes_of(decide(state, policy_of(order, "swrr")))) == {0: 2, 1: 1, 2: 1}


def test_round_robin_continues_from_round_to_round() -> None:
    policy, state = policy_of("fifo", "round-robin"), cluster(4, 4, 4)
    turns = []
    for _ in range(5):
        submit(state, ON_GPU, 1)
        turns += nodes_of(decide(state, policy))
    assert turns == [0, 1, 2, 0, 1]
    assert state.node_memo("round-robin").tolist() == [4, 5, 3]


@pytest.mark.parametrize("name", BALANCERS)
def test_tasks_fill_the_nodes_that_have_room(name: str) -> None:
    """Whether on CPUs, GPUs or halves of GPUs; alone, or, on CPUs, as a unit."""
    policy = policy_of("easy-backfill", name)
    for task, fits, gang in (
        (ON_CPU, 6, False), (ON_CPU, 6, True), (ON_GPU, 6, False), (ON_HALF, 12, False),
    ):  # fmt: skip
        state = cluster(1, 3, 2, 0)
        too_large = submit(state, task, fits + 1, gang=True) if gang else -1
        row = submit(state, task, fits if gang else fits + 2, gang=gang)
        plan = decide(state, policy)
        assert {state.tasks.job[start.task] for start in plan.starts} == {row}, too_large
        share = fits // 6
        assert Counter(nodes_of(plan)) == {0: share, 1: 3 * share, 2: 2 * share}, (task, gang)


def test_resource_pick_kx_prefers_what_is_available() -> None:
    state = cluster(100, 100)
    submit(state, ON_GPU, 90)
    first = Counter(nodes_of(decide(state, policy_of("fifo", "resource-pick-kx"))))
    assert 25 < first[0] < 65
    state = cluster(100, 10)
    submit(state, ON_GPU, 60)
    first = Counter(nodes_of(decide(state, policy_of("fifo", "resource-pick-kx"))))
    assert first[0] > 45


def test_least_cost_picks_the_node_that_was_faster_with_tasks_of_the_kind() -> None:
    state = cluster(2, 2, 2)
    row = submit(state, ON_GPU, 8)
    tasks = state.tasks
    for task, (node, seconds) in enumerate([(0, 8.0), (0, 9.0), (1, 2.0), (2, 5.0)]):
        tasks.state[task], tasks.node[task] = TaskState.FINISHED, node
        tasks.started_at[task], tasks.ended_at[task], tasks.read_s[task] = 10, 11 + seconds, 1
    scratch = Scratch(state.freeze())
    (units,) = waiting_units(scratch.snapshot, row)
    placing = fit(scratch, placer_of(place="least-cost"))
    assert [placing.place(unit) for unit in units] == [True] * 4
    assert [start.node for start in scratch.starts] == [1, 1, 2, 2]
    speeds = node_speeds(scratch.snapshot, [(2, 2)] * 3)
    slow, fast, middle = speeds.seconds(tasks.runtime_class[row], [0, 1, 2], [(2, 2)] * 3)
    assert fast < middle < slow


def test_least_cost_balances_tasks_of_an_unknown_kind() -> None:
    state = cluster(2, 4)
    submit(state, ON_GPU, 3)
    assert nodes_of(decide(state, policy_of("fifo", "least-cost"))) == [0, 1, 1]
