"""Queues get back what they are guaranteed, and what others borrow, in crowded clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.cases import cases
from tests.small_clusters import NO_LIMITS

from headgate.app import POLICIES
from headgate.engine import Engine, drive
from headgate.model import Demand, Elastic, Gpu, Job, Node, Queue, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.ports import Policy, make_policy
from headgate.protocol import (
    Command,
    Event,
    JobSubmitted,
    NodeJoined,
    PlanAdmitted,
    QueueChanged,
)
from headgate.sim.world import SimulatedWorld
from headgate.state import State, TaskState
from headgate.state.elastic import unit_size
from headgate.state.moves import unit_of
from headgate.state.quotas import HELD_BACK_S

WHOLE = 1000


def gpus(count: int) -> tuple[tuple[str, int], ...]:
    return (("gpus", WHOLE * count),)


def facts(seed: int, *, elastic: bool = False) -> Iterator[Event]:
    """Yield 2 to 4 nodes, a tree of queues with guarantees, and 8 to 20 jobs in it.

    Some of them are `elastic`, if so required.
    """
    draw = Random(seed)
    sizes = [draw.choice((2, 4)) for _ in range(draw.randint(2, 4))]
    for number, size in enumerate(sizes):
        node = Node(id=f"n{number}", rack="r", gpus=(Gpu(memory_bytes=1 << 30),) * size, cpus=32)
        yield NodeJoined(at=0.0, node=node)
    left = sum(sizes)
    leaves = []
    for name in ("a", "b", "c"):
        own = draw.randint(0, min(left, 4))
        left -= own
        inner = draw.random() < 0.4
        yield QueueChanged(at=0.0, queue=Queue(name=name, guaranteed=gpus(own)))
        if not inner:
            leaves.append(name)
        for below in (f"{name}-1", f"{name}-2") if inner else ():
            part = draw.randint(0, own)
            own -= part
            yield QueueChanged(at=0.0, queue=Queue(name=below, parent=name, guaranteed=gpus(part)))
            leaves.append(below)
    yield QueueChanged(at=0.0, queue=Queue(name="default"))
    at = 0.0
    for number in range(draw.randint(8, 20)):
        at += draw.choice((0.0, 1.0, 20.0, 100.0))
        demand = Demand(gpus=draw.choice((1, 1, 1, 2)))
        task = Task(demand=demand, compute_s=draw.choice((30.0, 100.0, 400.0, 2000.0)))
        many = (task,) * draw.choice((1, 2, 3, 4, 6))
        queue, gang = draw.choice([*leaves, "default"]), draw.random() < 0.3
        name = f"j{number}"
        job = Job(id=name, name="j", user=draw.choice("uv"), queue=queue, gang=gang, tasks=many)
        if elastic and draw.random() < 0.4:
            job = grows(job, draw)
        yield JobSubmitted(at=at, job=job)


def grows(job: Job, draw: Random) -> Job:
    """Return a job as an elastic one of the same tasks at least, and up to eight more."""
    least, more = len(job.tasks), draw.choice((1, 4, 8))
    units = Elastic(minimum=least, work_s=least * job.tasks[0].compute_s)
    return replace(job, gang=False, tasks=job.tasks[:1] * (least + more), elastic=units)


def world(seed: int, policy: Policy, *, elastic: bool) -> SimulatedWorld:
    network = FluidNetwork({}, **NO_LIMITS)
    every = [*facts(seed, elastic=elastic)]
    return SimulatedWorld(every, network=network, policy=policy, seed=seed)


Run = tuple[str, dict[int, int]]
"""The queue of a run, and the GPUs that it holds by node; of a gang all."""


class Tree:
    """The queues of a state, what they are guaranteed and hold, and what is free: by counting."""

    def __init__(self, state: State) -> None:
        specs = [state.queue(row) for row in range(len(state.queues.spec))]
        self.parent = {spec.name: spec.parent for spec in specs}
        self.own = {spec.name: dict(spec.guaranteed).get("gpus", 0) // WHOLE for spec in specs}
        self.used = dict.fromkeys(self.parent, 0)
        self.free = dict.fromkeys(range(len(state.nodes.alive)), 0)
        for gpu, task in enumerate(state.gpus.task.array().tolist()):
            self.free[state.gpus.node[gpu]] += task < 0
        self.runs: list[Run] = []
        for task in range(len(state.tasks.state)):
            members = [each for each in unit_of(state, task) if state.tasks.grant[each] >= 0]
            if members[:1] == [task]:
                held: dict[int, int] = {}
                for each in members:
                    node = state.tasks.node[each]
                    held[node] = held.get(node, 0) + len(state.held_gpus(each))
                queue = state.job(state.tasks.job[task]).queue
                self.runs.append((queue, held))
                self.add(queue, sum(held.values()))

    def above(self, queue: str) -> list[str]:
        return [queue, *self.above(self.parent[queue])] if queue else []

    def guaranteed(self, queue: str) -> int:
        below = sum(self.guaranteed(each) for each, above in self.parent.items() if above == queue)
        return max(self.own[queue], below)

    def add(self, queue: str, gpus: int) -> None:
        for each in self.above(queue):
            self.used[each] += gpus

    def borrows(self, run: Run, claims: Sequence[str]) -> bool:
        """Return whether a queue of `claims` may take a run back."""
        for each in self.above(run[0]):
            if each in claims or self.used[each] <= self.guaranteed(each):
                return False
            if self.parent[each] in [self.parent[claim] for claim in claims]:
                return True
        return False

    def end(self, run: Run, sign: int = 1) -> None:
        """Count a run as ended, or, with -1, as not ended after all."""
        queue, held = run
        self.add(queue, -sign * sum(held.values()))
        for node, gpus in held.items():
            self.free[node] += sign * gpus
        (self.runs.remove if sign > 0 else self.runs.append)(run)


def short(state: State, *, in_order: bool) -> list[str]:
    """Return the jobs that wait within a guarantee, for whom at most two runs would have to end.

    With `in_order`, none that comes after one of its queue that needs more.
    """
    found, tree = [], Tree(state)
    behind: set[str] = set()
    for job in np.flatnonzero(state.jobs.waiting.array()).tolist():
        spec = state.job(job)
        waits = [t for t in state.tasks_of(job) if state.tasks.state[t] == TaskState.WAITING]
        tasks = unit_size(state, job) if state.jobs.gang[job] else 1
        need = spec.tasks[0].demand.gpus
        claims = [
            queue
            for queue in tree.above(spec.queue)
            if tree.used[queue] + need * tasks <= tree.guaranteed(queue)
        ]
        if in_order and (not claims or spec.queue in behind):
            behind.add(spec.queue)
            continue
        if claims and len(waits) >= tasks and _served(tree, claims, need, tasks):
            found.append(spec.id)
    return found


def _served(tree: Tree, claims: Sequence[str], need: int, tasks: int, ended: int = 0) -> bool:
    """Return whether tasks on `need` GPUs each fit once two more runs that borrow have ended."""
    if sum(gpus // need for gpus in tree.free.values()) >= tasks:
        return True
    for run in [*tree.runs] if ended < 2 else ():
        if tree.borrows(run, claims):
            tree.end(run)
            served = _served(tree, claims, need, tasks, ended + 1)
            tree.end(run, -1)
            if served:
                return True
    return False


class Watch:
    """What queues take back, and the jobs that are short at the end of an instant."""

    def __init__(self, engine: Engine, *, in_order: bool) -> None:
        self._state, self._in_order = engine.state, in_order
        self._at, self._last = -1.0, list[tuple[float, str]]()
        self.counts: Counter[str] = Counter()
        self.short: list[tuple[float, str]] = []

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        del commands
        if batch[0].at != self._at:
            self._at = batch[0].at
            self.short += self._last
        for event in batch:
            if isinstance(event, PlanAdmitted):
                for stop in event.stops:
                    self.counts[f"stopped {bool(stop.lender)}"] += 1
        self._last = [(batch[-1].at, job) for job in short(self._state, in_order=self._in_order)]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("elastic", [False, True], ids=["", "beside elastic jobs"])
def test_no_claim_waits_for_what_others_borrow(policy: str, elastic: bool) -> None:
    counts: Counter[str] = Counter()
    for seed in range(cases(8)):
        engine = Engine()
        simulated = world(seed, make_policy(POLICIES, policy), elastic=elastic)
        watch = Watch(engine, in_order=policy in ("fifo", "fsu"))
        drive(engine, simulated, observe=(watch,))
        assert not watch.short, f"seed {seed}"
        counts += watch.counts
    assert counts["stopped True"] >= 5


def comes_and_goes() -> Iterator[Event]:
    """Yield a borrower of two GPUs, and a lender of one, whose jobs of 2 s come every 10 s."""
    gpu = Gpu(memory_bytes=1 << 30)
    yield NodeJoined(at=0.0, node=Node(id="n", rack="r", gpus=(gpu,) * 2, cpus=32))
    yield QueueChanged(at=0.0, queue=Queue(name="lends", guaranteed=gpus(1)))
    yield QueueChanged(at=0.0, queue=Queue(name="borrows"))
    tasks = (Task(demand=Demand(gpus=1), compute_s=100.0),) * 20
    yield JobSubmitted(at=0.0, job=Job(id="b", name="b", user="u", queue="borrows", tasks=tasks))
    short = (Task(demand=Demand(gpus=1), compute_s=2.0),)
    for number in range(1, 61):
        job = Job(id=f"l{number}", name="l", user="v", queue="lends", tasks=short)
        yield JobSubmitted(at=10.0 * number, job=job)


@pytest.mark.parametrize("policy", POLICIES)
def test_demand_that_comes_and_goes_takes_back_at_most_once_a_minute(policy: str) -> None:
    engine, made = Engine(), make_policy(POLICIES, policy)
    network = FluidNetwork({}, **NO_LIMITS)
    simulated = SimulatedWorld([*comes_and_goes()], network=network, policy=made, seed=0)
    taken_at: list[float] = []

    def see(batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        del commands
        for event in batch:
            if isinstance(event, PlanAdmitted):
                taken_at.extend(event.at for stop in event.stops if stop.lender)

    drive(engine, simulated, observe=(see,))
    assert taken_at
    assert (np.diff(taken_at) >= HELD_BACK_S).all()
    waits = engine.state.jobs.started_at.array() - engine.state.jobs.submitted_at.array()
    assert (waits[1:] == 0).all()
