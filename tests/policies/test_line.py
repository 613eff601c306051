"""The line of multi-GPU units: under a stream of small tasks, each kind starts in bounded time.

And the nodes that are kept for gangs whose tasks have different demands.
"""

from __future__ import annotations

import pytest
from tests.cases import cases
from tests.sim.weather import named, world_of

from headgate.app import POLICIES
from headgate.base.rng import stream
from headgate.engine import Engine, drive
from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.units.fit import beside_first_fit
from headgate.ports import make_policy
from headgate.protocol import Event, JobSubmitted, NodeJoined, Plan, QueueChanged
from headgate.state import JobState, State, TaskState, check
from headgate.testing.storms import Storm

WITH_LINE = ("gs", "gsp", "gsd", "capacity", "fair")
EACH = pytest.mark.parametrize("name", WITH_LINE)
RUN_S = 5.0

UNITS: dict[str, tuple[tuple[int, ...], bool]] = {  # GPUs by task, and whether on distinct nodes
    "several GPUs": ((4,), False),
    "gang": ((2, 2, 2, 2), False),
    "on distinct nodes": ((3, 3, 3), True),
    "unequal gang": ((1, 4, 2), False),
}


SETTINGS: tuple[tuple[str, dict[str, float | str]], ...] = (  # whose unit it is, and the placer
    ("another user", {}),
    ("the same user", {}),
    ("another user", {"place": "closed-minimum", "otherwise": "wait"}),
    ("another user", {"place": "links"}),
)


@EACH
def test_wide_unit_starts_when_the_runs_on_its_nodes_have_ended(name: str) -> None:
    """Of each kind, with another setting each; in `make fuzz` of each kind with each setting."""
    pairs = [
        (kind, SETTINGS[(WITH_LINE.index(name) + number + turn) % len(SETTINGS)])
        for turn in range(len(SETTINGS))
        for number, kind in enumerate(UNITS)
    ]
    for kind, (user, setting) in pairs[: cases(len(UNITS))]:
        with named(f"{kind} of {user} with {setting}"):
            starts_in_turn(name, kind, user, setting)


def starts_in_turn(name: str, kind: str, user: str, setting: dict[str, float | str]) -> None:
    """Assert that a unit starts while small tasks of at most `RUN_S` would take each free GPU."""
    rng, gpus = stream(0, "stream of small tasks"), (Gpu(memory_bytes=1),) * 4
    facts: list[Event] = [QueueChanged(at=0.0, queue=Queue(name="default"))]
    facts += [NodeJoined(at=0.0, node=Node(id=f"n{n}", rack="r", gpus=gpus)) for n in range(3)]
    for at in range(40):
        small = tuple(Task(compute_s=rng.uniform(3.0, RUN_S)) for _ in range(4))
        job = Job(id=f"small-{at}", name="", user="the same user", queue="default", tasks=small)
        facts.append(JobSubmitted(at=float(at), job=job))
    widths, apart = UNITS[kind]
    wide = Job(
        id="wide",
        name="",
        user=user,
        queue="default",
        tasks=tuple(Task(demand=Demand.of(gpus=gpus), compute_s=RUN_S) for gpus in widths),
        gang=len(widths) > 1,
        distinct_nodes=apart,
    )
    facts.append(JobSubmitted(at=10.0, job=wide))
    facts.sort(key=lambda event: event.at)
    weather = Storm(seed=0, calm=True, facts=tuple(facts), decision_latency_s=0.0)
    engine = Engine()
    drive(engine, world_of(weather, make_policy(POLICIES, name, setting)))
    state = engine.state
    assert set(state.jobs.state.array().tolist()) == {JobState.FINISHED}
    started_at = state.jobs.started_at[state.names.job_rows["wide"]]
    waited_turn = started_at - 10.0 if user == "another user" else 0.0
    assert waited_turn <= 3 * RUN_S + 1.0
    assert started_at < 38.0, "before the stream ends"


class Stage:
    """Nodes by the number of their GPUs, and jobs whose tasks all wait or run."""

    def __init__(self, *gpus: int, racks: int = 1) -> None:
        self.state = State()
        self.state.set_queue(Queue(name="default"))
        for number, count in enumerate(gpus):
            devices = (Gpu(memory_bytes=1),) * count
            rack = f"r{number * racks // len(gpus)}"
            self.state.add_node(Node(id=f"n{number}", rack=rack, gpus=devices, cpus=4))

    def job(self, name: str, *tasks: Task, gang: bool = False) -> int:
        job = Job(id=name, name=name, user=name, queue="default", tasks=tasks, gang=gang)
        row = self.state.add_job(job)
        activate(self.state, row)
        return row

    def run(self, task: int, node: int, *gpus: int) -> None:
        self.state.launch(task, node, gpus, attempt=1)
        self.state.move_task(task, TaskState.RUNNING)

    def plan(self, name: str, **setting: float | str) -> Plan:
        check(self.state)
        return make_policy(POLICIES, name, setting).decide(self.state.freeze(), stream(1))


@EACH
def test_nodes_are_kept_for_a_gang_of_different_demands(name: str) -> None:
    stage = Stage(4, 2, 2)
    stage.job("old", Task())
    stage.run(0, 0, 0)
    gang = stage.job("gang", Task(), Task(demand=Demand(gpus=4)), gang=True)
    stage.job("new", *(Task(),) * 9)
    plan = stage.plan(name)
    assert plan.memo["in_line_since"] == {gang: 0.0}
    assert {start.node for start in plan.starts} == {2}, "a whole node, and one GPU of the next"
    assert len(plan.starts) == 2


@EACH
def test_gang_starts_where_first_fit_in_order_of_its_tasks_fails(name: str) -> None:
    stage = Stage(3, 4)  # in order, a task takes a GPU of the first node, and 3 fit only the second
    stage.job("gang", Task(), Task(demand=Demand(gpus=3)), Task(demand=Demand(gpus=3)), gang=True)
    plan = stage.plan(name)
    assert [(start.task, start.node) for start in plan.starts] == [(1, 0), (2, 1), (0, 1)]
    assert not plan.memo.get("in_line_since")


@EACH
def test_gang_of_different_demands_that_the_idle_cluster_does_not_hold_keeps_no_gpus(
    name: str,
) -> None:
    stage = Stage(3, 3)
    stage.job(
        "gang",
        Task(demand=Demand(gpus=2)),
        Task(demand=Demand(gpus=2)),
        Task(demand=Demand(gpus=1)),
        Task(demand=Demand(gpus=2)),
        gang=True,
    )
    stage.job("new", *(Task(),) * 9)
    assert len(stage.plan(name).starts) == 6


@EACH
@pytest.mark.parametrize("otherwise", ["wait", "enlarge"])
def test_nodes_kept_for_a_gang_that_waits_for_a_closed_set_are_one(
    name: str, otherwise: str
) -> None:
    stage = Stage(1, 1, 1, 1, racks=2)
    stage.job("old", Task(), Task())
    stage.run(0, 0, 0)
    stage.run(1, 3, 0)
    gang = stage.job("gang", Task(), Task(), gang=True)
    stage.job("new", *(Task(),) * 9)
    plan = stage.plan(name, place="closed-minimum", otherwise=otherwise)
    assert plan.memo["in_line_since"] == {gang: 0.0}
    assert [start.node for start in plan.starts] == [2], "the nodes of the first rack are kept"


@EACH
def test_gang_of_different_tasks_starts_under_a_placer_that_lets_jobs_wait(
    name: str,
) -> None:
    stage = Stage(3, 3)
    stage.job(
        "gang",
        Task(demand=Demand(gpus=2)),
        Task(demand=Demand(gpus=1)),
        Task(demand=Demand(gpus=3)),
        gang=True,
    )
    plan = stage.plan(name, place="closed-minimum", otherwise="wait")
    assert len(plan.starts) == 3


def test_first_fit_fills_an_idle_node_in_order_and_leaves_the_rest() -> None:
    node = Node(id="n", rack="r", gpus=(Gpu(memory_bytes=2), Gpu(memory_bytes=4)), cpus=2)
    large, small = Task(demand=Demand(gpus=1, gpu_memory_bytes=3)).demand, Task().demand
    half, cpus = (
        Task(demand=Demand(gpus=1, gpu_milli=500)).demand,
        Task(demand=Demand(cpus_milli=1000)).demand,
    )
    assert beside_first_fit(node, [small, large, small], 3) == [small]
    assert beside_first_fit(node, [large, large, small], 3) == [large]
    assert beside_first_fit(node, [small, small, large], 3) == [large], "the large GPU is taken"
    assert beside_first_fit(node, [half, half, small, cpus, cpus, cpus], 9) == [cpus]
    assert beside_first_fit(node, [small, cpus, small], 1) == [cpus, small]
