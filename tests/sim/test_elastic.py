"""Elastic jobs: their minimum starts like any gang, their surplus lives on what others leave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest
from tests.cases import cases
from tests.small_clusters import NO_LIMITS, ONE_CPU, ONE_GPU, node, rigid, submitted

from headgate.app import POLICIES
from headgate.engine import Engine, drive
from headgate.model import Demand, Elastic, Job, Queue, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.ports import make_policy
from headgate.protocol import (
    Command,
    Event,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    PlanFailed,
    PlanRejected,
    QueueChanged,
)
from headgate.sim.world import SimulatedWorld
from headgate.state import JobState, State, TaskState
from headgate.state.check import check
from headgate.state.elastic import surplus_of, unit_size


def elastic(
    name: str, least: int, most: int, work_s: float, *, of: Demand = ONE_GPU, user: str = ""
) -> Job:
    task = Task(demand=of, compute_s=work_s / least)
    units = Elastic(minimum=least, work_s=work_s)
    return Job(
        id=name, name=name, user=user or name, queue="q", tasks=(task,) * most, elastic=units
    )


class Watch:
    """What jobs hold after each instant at which nothing is being stopped or about to start."""

    def __init__(self, policy: str, facts: Sequence[Event], *queues: Queue) -> None:
        self.engine, self.batches = Engine(), 0
        self.held: dict[float, dict[str, int]] = {}
        changes = [QueueChanged(at=0.0, queue=each) for each in queues or (Queue(name="q"),)]
        world = SimulatedWorld(
            [*changes, *facts],
            network=FluidNetwork({}, **NO_LIMITS),
            policy=make_policy(POLICIES, policy),
            seed=3,
        )
        drive(self.engine, world, observe=[self._see])

    def _see(self, batch: Sequence[Event], commands: Sequence[Command]) -> None:
        check(self.engine.state)
        assert not any(isinstance(event, PlanFailed | PlanRejected) for event in batch), batch
        self.batches += 1
        assert self.batches < 5000, "rounds follow each other without end"
        state = self.engine.state
        self.held[state.now] = {
            state.job(row).id: state.jobs.running[row] + state.jobs.running_cpu[row]
            for row in range(len(state.jobs.state))
            if state.jobs.state[row] == JobState.ACTIVE
        }
        if not commands and min(state.timers.values(), default=state.now + 1) > state.now:
            self.at_rest(state)

    def at_rest(self, state: State) -> None:
        """Check a state in which no decision is outstanding."""

    def ended_at(self, job: str) -> float:
        state = self.engine.state
        row = state.names.job_rows[job]
        assert state.jobs.state[row] == JobState.FINISHED
        return float(state.jobs.ended_at[row])

    def started_at(self, job: str) -> float:
        state = self.engine.state
        return float(state.jobs.started_at[state.names.job_rows[job]])


@pytest.mark.parametrize("policy", [*POLICIES])
def test_first_job_gets_the_whole_queue_and_half_of_it_once_a_second_arrives(policy: str) -> None:
    """Spec 5, section 8: 50, then 25 each."""
    first = elastic("first", 20, 50, 500.0, of=ONE_CPU)
    second = elastic("second", 20, 50, 500.0, of=ONE_CPU)
    watch = Watch(
        policy, [NodeJoined(at=0.0, node=node("n", cpus=50)), *submitted((0, first), (4, second))]
    )
    assert watch.held[0.0] == {"first": 50}
    assert watch.held[4.0] == {"first": 25, "second": 25}
    # 200 of the first one's work are done by 4 s, 300 then by 25 units, and so on.
    assert watch.ended_at("first") == pytest.approx(4.0 + 300.0 / 25)
    assert watch.held[16.0] == {"second": 50}
    assert watch.ended_at("second") == pytest.approx(16.0 + (500.0 - 12 * 25) / 50)


@pytest.mark.parametrize("policy", [*POLICIES])
def test_surplus_leaves_for_whatever_is_submitted_before_the_minimum_of_others(policy: str) -> None:
    facts = [NodeJoined(at=0.0, node=node(name, 4)) for name in ("a", "b")]
    jobs = submitted(
        (0, elastic("grows", 2, 8, 80.0)),
        (5, rigid("gang", 4, 10.0)),
        (6, rigid("one", 1, 10.0)),
        (7, elastic("late", 1, 8, 30.0)),
    )
    watch = Watch(policy, [*facts, *jobs])
    assert watch.held[0.0] == {"grows": 8}
    assert [watch.started_at(name) for name in ("gang", "one", "late")] == [5.0, 6.0, 7.0]
    assert watch.held[7.0] == {"grows": 2, "gang": 4, "one": 1, "late": 1}
    held = watch.held[15.0]
    assert sorted((held["grows"], held["late"])) == [3, 4]
    equal = {"grows": 5, "late": 3}  # two and one, and half of the other five each
    assert watch.held[16.0] == (equal if policy == "new-capacity" else {"grows": 4, "late": 4})


@pytest.mark.parametrize("policy", ["headgate", "fifo", "easy-backfill", "gs", "srtf"])
def test_a_unit_that_is_lost_comes_back_alone_and_the_others_continue(policy: str) -> None:
    facts = [NodeJoined(at=0.0, node=node(name, 2)) for name in ("a", "b")]
    job = elastic("pool", 3, 3, 30.0)
    lost = [NodeLost(at=4.0, node="b"), NodeJoined(at=6.0, node=node("b", 2))]
    watch = Watch(policy, [*facts, *lost, *submitted((0, job))])
    assert watch.held[4.0] == {"pool": 2}
    assert watch.held[6.0] == {"pool": 3}
    assert watch.ended_at("pool") == pytest.approx(6.0 + (30.0 - 4 * 3 - 2 * 2) / 3)


def test_surplus_takes_the_place_of_units_that_are_lost() -> None:
    facts = [NodeJoined(at=0.0, node=node(name, 2)) for name in ("a", "b")]
    job = elastic("pool", 2, 4, 40.0)
    watch = Watch("fifo", [*facts, NodeLost(at=5.0, node="a"), *submitted((0, job))])
    assert watch.held[5.0] == {"pool": 2}
    assert watch.ended_at("pool") == pytest.approx(15.0)


def in_queue(job: Job, queue: str) -> Job:
    return replace(job, queue=queue)


@pytest.mark.parametrize("policy", [*POLICIES])
def test_surplus_fills_a_queue_up_to_its_elastic_limit(policy: str) -> None:
    nodes = [NodeJoined(at=0.0, node=node("n", 8))]
    job = elastic("grows", 2, 8, 80.0)
    guaranteed = Queue(name="q", guaranteed=(("gpus", 8000),), elastic_limit=0.5)
    watch = Watch(policy, [*nodes, *submitted((0, job))], guaranteed)
    assert watch.held[0.0] == {"grows": 4}
    limited = Queue(name="q", max_gpus=6, elastic_limit=0.5)
    watch = Watch(policy, [*nodes, *submitted((0, job))], limited)
    assert watch.held[0.0] == {"grows": 3}


def test_minimum_is_no_surplus_and_starts_beyond_the_elastic_limit() -> None:
    nodes = [NodeJoined(at=0.0, node=node("n", 8))]
    queue = Queue(name="q", max_gpus=8, elastic_limit=0.25)
    watch = Watch("headgate", [*nodes, *submitted((0, elastic("wide", 5, 8, 50.0)))], queue)
    assert watch.held[0.0] == {"wide": 5}


@pytest.mark.parametrize("policy", ["headgate", "fifo", "easy-backfill", "fair", "new-capacity"])
def test_queue_yields_no_more_of_its_surplus_than_its_ratio(policy: str) -> None:
    nodes = [NodeJoined(at=0.0, node=node("n", 8))]
    jobs = [(0, elastic("grows", 2, 8, 160.0)), *((5, rigid(f"r{n}", 1, 10.0)) for n in range(6))]
    watch = Watch(policy, [*nodes, *submitted(*jobs)], Queue(name="q", yield_ratio=0.5))
    assert watch.held[5.0]["grows"] == 2 + 3


@pytest.mark.parametrize("policy", ["headgate", "fifo", "easy-backfill", "fair", "new-capacity"])
def test_queue_takes_back_what_others_surplus_holds_whatever_their_ratio(policy: str) -> None:
    nodes = [NodeJoined(at=0.0, node=node("n", 8))]
    queues = Queue(name="q", yield_ratio=0.0), Queue(name="lends", guaranteed=(("gpus", 6000),))
    gang = in_queue(rigid("gang", 6, 10.0), "lends")
    jobs = submitted((0, elastic("grows", 2, 8, 160.0)), (5, gang))
    watch = Watch(policy, [*nodes, *jobs], *queues)
    assert watch.started_at("gang") == 5.0
    assert watch.held[5.0] == {"grows": 2, "gang": 6}
    assert watch.engine.state.jobs.lost_gpu_s[0] == 0.0


def crowd(seed: int) -> Iterator[Event]:
    """Yield nodes, one of which is lost for a while, and elastic and other jobs for all of them."""
    draw = Random(seed)
    nodes = [node(f"n{n}", draw.choice((0, 2, 4)), draw.choice((4, 8))) for n in range(4)]
    yield from (NodeJoined(at=0.0, node=each) for each in (*nodes, node("last", 4, 8)))
    if draw.random() < 0.5:
        yield NodeLost(at=40.0, node="n0")
        yield NodeJoined(at=70.0, node=nodes[0])
    at = 0.0
    for number in range(draw.randint(5, 14)):
        at += draw.choice((0.0, 1.0, 10.0, 30.0))
        name, gpus = f"j{number}", draw.random() < 0.7
        if draw.random() < 0.5:
            least = draw.randint(1, 3)
            most = least + draw.choice((0, 1, 4, 12))
            work_s = draw.choice((20.0, 100.0, 300.0))
            demand = Demand(gpus=draw.choice((1, 1, 2))) if gpus else ONE_CPU
            job = elastic(name, least, most, work_s, of=demand, user=draw.choice("uv"))
        else:
            job = rigid(name, draw.choice((1, 1, 2, 4)), draw.choice((10.0, 60.0)))
        yield JobSubmitted(at=at, job=job)


class AtRest(Watch):
    """Checks that no resource idles that surplus could use."""

    def at_rest(self, state: State) -> None:
        if state.waiting_tasks or TaskState.STOPPING in state.tasks.state.array():
            return  # what is free may be kept for what waits
        for row in range(len(state.jobs.state)):
            first = state.tasks_of(row)[: unit_size(state, row)]
            whole = all(state.tasks.state[task] == TaskState.RUNNING for task in first)
            if state.jobs.state[row] != JobState.ACTIVE or not whole:
                continue
            for task in surplus_of(state, row):
                if state.tasks.state[task] == TaskState.HELD:
                    demand = state.tasks.demand[task]
                    nodes = state.live_nodes()
                    fits = [n for n in nodes if state.ledger.best_gpus(demand, n) is not None]
                    assert not fits, f"{state.job(row).id} could have more at {state.now}"


@pytest.mark.parametrize("policy", [*POLICIES])
def test_in_any_crowd_all_jobs_end_and_nothing_idles_that_surplus_could_use(policy: str) -> None:
    for seed in range(cases(12)):
        equal = policy == "new-capacity"  # to the letter: rests too small for a unit idle
        watch = (Watch if equal else AtRest)(policy, [*crowd(seed)])
        state = watch.engine.state
        ended = [JobState(each).name for each in state.jobs.state.array().tolist()]
        assert set(ended) == {"FINISHED"}, (seed, ended)


class FifoHead(AtRest):
    """Checks that the first waiting unit would not fit, were there no surplus."""

    def at_rest(self, state: State) -> None:
        super().at_rest(state)
        if not state.waiting_tasks or TaskState.STOPPING in state.tasks.state.array():
            return
        row = next(r for r in range(len(state.jobs.state)) if len(state.waiting_of(r)))
        waits = state.waiting_of(row).tolist()
        tasks = waits if state.jobs.gang[row] else waits[:1]
        ledger = state.ledger.tentative(state)
        for job in range(len(state.jobs.state)):
            for task in surplus_of(state, job):
                if state.tasks.grant[task] >= 0:
                    held = state.tasks.node[task], state.held_gpus(task)
                    ledger.free(task, state.tasks.demand[task], *held)
        placed = 0
        for task in tasks:
            demand = state.tasks.demand[task]
            for place in state.live_nodes():
                gpus = ledger.best_gpus(demand, place)
                if gpus is not None:
                    ledger.take(task, demand, place, gpus)
                    placed += 1
                    break
        assert placed < len(tasks), f"{state.job(row).id} waits for surplus at {state.now}"


def test_first_job_in_line_never_waits_for_surplus() -> None:
    for seed in range(cases(60)):
        FifoHead("fifo", [*crowd(seed)])
