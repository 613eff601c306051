"""Training jobs are as wide as what others leave makes worth while, under every policy."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from tests.cases import cases
from tests.small_clusters import NO_LIMITS, ONE_CPU, ONE_GPU, node, rigid, submitted

from headgate.app import POLICIES
from headgate.engine import Engine, drive
from headgate.foresight.explain import explain
from headgate.model import Demand, Job, Queue, SpeedCurve, Task, Training
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.ports import make_policy
from headgate.protocol import (
    Command,
    Event,
    NodeJoined,
    NodeLost,
    PlanAdmitted,
    PlanFailed,
    PlanRejected,
    QueueChanged,
)
from headgate.sim.world import SimulatedWorld
from headgate.state import JobState, State
from headgate.state.check import check
from headgate.state.elastic import UnitCounts, unit_size
from headgate.state.life import HOLDING

CURVE = SpeedCurve((1, 2, 4, 8), (10.0, 18.0, 30.0, 40.0))
RESTART_S = 5.0


def training(
    name: str,
    work: float,
    curve: SpeedCurve = CURVE,
    of: Demand = ONE_GPU,
    deadline_s: float | None = None,
) -> Job:
    whole = Training(work=work, speeds=curve, restart_s=RESTART_S)
    task = Task(demand=of, compute_s=whole.narrowest_s)
    tasks = (task,) * curve.widths[-1]
    return Job(
        id=name, name=name, user=name, queue="q", tasks=tasks, gang=True, training=whole,
        deadline_s=deadline_s,
    )  # fmt: skip


class Watch:
    """The widths with which training jobs run, and when all jobs start and end."""

    def __init__(self, policy: str, facts: Sequence[Event]) -> None:
        self.engine, self.batches = Engine(), 0
        self.widths: dict[str, list[tuple[float, int]]] = {}
        self.started: dict[str, float] = {}
        world = SimulatedWorld(
            [QueueChanged(at=0.0, queue=Queue(name="q")), *facts],
            network=FluidNetwork({}, **NO_LIMITS),
            policy=make_policy(POLICIES, policy),
            seed=3,
        )
        drive(self.engine, world, observe=[self._see])

    def _see(self, batch: Sequence[Event], commands: Sequence[Command]) -> None:
        del commands
        state = self.engine.state
        check(state)
        assert not any(isinstance(event, PlanFailed | PlanRejected) for event in batch), batch
        self.batches += 1
        assert self.batches < 3000, "it never ends"
        for event in batch:
            for start in event.starts if isinstance(event, PlanAdmitted) else ():
                self.started.setdefault(start.run.job, event.at)
        for row in state.names.training:
            rows, name = state.tasks_of(row), state.job(row).id
            held = sum(state.tasks.state[task] in HOLDING for task in rows)
            seen = self.widths.setdefault(name, [])
            if held in (0, unit_size(state, row)) and (not seen or seen[-1][1] != held):
                seen.append((state.now, held))

    @property
    def state(self) -> State:
        return self.engine.state

    def ended_at(self, name: str) -> float:
        row = self.state.names.job_rows[name]
        assert JobState(self.state.jobs.state[row]) is JobState.FINISHED, name
        at: float = self.state.jobs.ended_at[row]
        return at


@pytest.mark.parametrize("policy", POLICIES)
def test_job_alone_starts_as_wide_as_the_cluster(policy: str) -> None:
    watch = Watch(policy, [node_up("a"), node_up("b"), *submitted((1.0, training("t", 4000.0)))])
    assert watch.ended_at("t") == pytest.approx(1.0 + 4000 / 40)
    assert [width for _, width in watch.widths["t"]] == [0, 8, 0]


def node_up(name: str, at: float = 0.0) -> Event:
    return NodeJoined(at=at, node=node(name, 4))


@pytest.mark.parametrize("policy", POLICIES)
def test_widths_beyond_the_fastest_one_are_not_used(policy: str) -> None:
    curve = SpeedCurve((1, 2, 4, 8), (10.0, 18.0, 17.0, 16.0))
    facts = [node_up("a"), node_up("b"), *submitted((1.0, training("t", 1800.0, curve)))]
    assert Watch(policy, facts).ended_at("t") == pytest.approx(1.0 + 100.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_job_gives_way_to_others_and_grows_again(policy: str) -> None:
    """Four GPUs: the gang of three gets its places, and `t` one until that has ended."""
    jobs = submitted((1.0, training("t", 12_000.0)), (100.0, rigid("g", 3, 200.0)))
    watch = Watch(policy, [node_up("a"), *jobs])
    assert watch.started["g"] == pytest.approx(100.0), "its runs are stopped immediately"
    assert [width for _, width in watch.widths["t"]] == [0, 4, 0, 1, 0, 4, 0]
    done = 30 * 99.0 + 10 * (200.0 - RESTART_S)
    end_at = 300.0 + RESTART_S + (12_000 - done) / 30
    assert watch.ended_at("t") == pytest.approx(end_at, abs=2.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_gpus_go_where_they_speed_up_most(policy: str) -> None:
    flat = SpeedCurve((1, 2, 4), (10.0, 11.0, 12.0))
    steep = SpeedCurve((1, 2, 4), (10.0, 19.0, 36.0))
    jobs = submitted((1.0, training("flat", 1e4, flat)), (1.0, training("steep", 1e4, steep)))
    watch = Watch(policy, [NodeJoined(at=0.0, node=node("a", gpus=5)), *jobs])
    assert max(width for _, width in watch.widths["steep"]) == 4
    steep_at = watch.ended_at("steep")
    assert all(width <= 1 for at, width in watch.widths["flat"] if at < steep_at)


@pytest.mark.parametrize("policy", POLICIES)
def test_gpus_go_first_to_jobs_that_would_miss_their_deadlines(policy: str) -> None:
    """`flat` gains less per GPU; only with four it ends in time."""
    flat = SpeedCurve((1, 2, 4), (10.0, 14.0, 18.0))
    steep = SpeedCurve((1, 2, 4), (10.0, 19.0, 36.0))
    jobs = submitted(
        (1.0, training("steep", 1e4, steep)),
        (1.0, training("flat", 9000.0, flat, deadline_s=520.0)),
    )
    watch = Watch(policy, [NodeJoined(at=0.0, node=node("a", gpus=5)), *jobs])
    assert watch.ended_at("flat") <= 521.0
    hopeless = submitted(
        (1.0, training("steep", 1e4, steep)),
        (1.0, training("flat", 9000.0, flat, deadline_s=300.0)),
    )
    watch = Watch(policy, [NodeJoined(at=0.0, node=node("a", gpus=5)), *hopeless])
    steep_at = watch.ended_at("steep")
    assert all(width <= 1 for at, width in watch.widths["flat"] if at < steep_at)


def test_short_rest_of_work_is_not_worth_a_start() -> None:
    jobs = submitted((1.0, rigid("g", 3, 100.0)), (1.0, training("t", 1100.0)))
    watch = Watch("fifo", [node_up("a"), *jobs])
    assert [width for _, width in watch.widths["t"]] == [0, 1, 0]


@pytest.mark.parametrize("policy", POLICIES)
def test_job_on_cpus_alone_is_as_wide_as_these(policy: str) -> None:
    curve = SpeedCurve((1, 2, 4), (1.0, 2.0, 3.0))
    jobs = submitted((1.0, training("t", 300.0, curve, ONE_CPU)))
    watch = Watch(policy, [NodeJoined(at=0.0, node=node("a", gpus=0, cpus=3)), *jobs])
    assert watch.ended_at("t") == pytest.approx(1.0 + 150.0)


@pytest.mark.parametrize("seed", range(cases(6)))
@pytest.mark.parametrize("policy", POLICIES)
def test_every_job_ends_and_nothing_thrashes(policy: str, seed: int) -> None:
    rng = Random(seed)
    facts: list[Event] = [node_up(name) for name in "abc"]
    lost = rng.uniform(50.0, 300.0)
    facts += [NodeLost(at=lost, node="c"), node_up("c", at=lost + 100.0)]
    at, works = 0.0, {}
    for number in range(14):
        at += rng.expovariate(1 / 20.0)
        if rng.random() < 0.6:
            works[f"t{number}"] = work = rng.uniform(500.0, 10_000.0)
            facts += submitted((at, training(f"t{number}", work)))
        else:
            facts += submitted((at, rigid(f"r{number}", rng.choice((1, 2, 4)), 60.0)))
    watch = Watch(policy, facts)
    state = watch.state
    for row in range(len(state.names.jobs)):
        assert JobState(state.jobs.state[row]) is JobState.FINISHED, state.job(row).id
    for name in works:
        row = state.names.job_rows[name]
        runs = state.tasks.attempts[state.jobs.first_task[row]]
        took_s = watch.ended_at(name) - watch.started[name]
        assert runs <= 12 + took_s / 60.0, f"{name} starts {runs} times in {took_s} s"


def test_units_of_a_job_are_counted_and_what_is_held_has_a_reason() -> None:
    jobs = submitted((1.0, rigid("g", 2, 100.0)), (1.0, training("t", 5000.0)))
    found = []

    class Asks(Watch):
        def _see(self, batch: Sequence[Event], commands: Sequence[Command]) -> None:
            super()._see(batch, commands)
            row = self.state.names.job_rows.get("t")
            if row is not None:
                found.append(explain(self.engine.snapshot(), row, self.state.now))

    Asks("fifo", [node_up("a"), *jobs])
    last = found[-1]
    assert last.elastic == UnitCounts(min=1, max=8, running=0, surplus=0, unneeded=4)
    runs = [each for each in found if each.elastic is not None and each.elastic.running == 2]
    assert runs[0].elastic == UnitCounts(min=1, max=8, running=2, surplus=1, unneeded=0)
    assert runs[0].reason is not None
    assert runs[0].reason.cause() == "surplus: 2 of at most 8 units run"
