"""What each user may hold in a queue, under every policy: by counting, in plans and simulations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random

import numpy as np
import pytest
from tests.cases import cases
from tests.policies.test_queue_tree import decide, reasons, tree
from tests.policies.test_take_back import rounds
from tests.small_clusters import NO_LIMITS

from headgate.app import POLICIES
from headgate.base.rng import stream
from headgate.engine import Engine, drive
from headgate.machine import admission, apply
from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.planning.rounds.decide import decided
from headgate.ports import Policy, make_policy
from headgate.protocol import (
    Command,
    Event,
    JobAssigned,
    JobSubmitted,
    NodeJoined,
    Plan,
    PlanAdmitted,
    PlanReady,
    PlanRejected,
    QueueChanged,
    Start,
    Steps,
    TimerFired,
)
from headgate.protocol.events import Timer
from headgate.protocol.queue_reasons import UserLimit
from headgate.sim.world import SimulatedWorld
from headgate.state import State, TaskState, check
from headgate.state.quotas import Quotas

WHOLE = 1000
Held = Counter[tuple[str, str, str]]
"""By queue, user and kind what runs hold in the queue and in those below it."""


def gpus(count: int) -> tuple[tuple[str, int], ...]:
    return (("gpus", WHOLE * count),)


def add(
    state: State, name: str, user: str, queue: str, tasks: int = 9, demand: Demand | None = None
) -> None:
    every = (Task(demand=demand or Demand(gpus=1)),) * tasks
    activate(state, state.add_job(Job(id=name, name=name, user=user, queue=queue, tasks=every)))
    check(state)


def started(state: State, plan: Plan) -> Counter[str]:
    """Return how many tasks of each user start."""
    return Counter(state.job(state.tasks.job[start.task]).user for start in plan.starts)


def run(state: State, policy: str | Policy) -> Plan:
    """Carry out the plan of a policy: a new one of a name, or one that has decided before."""
    seen, made = state.freeze(), policy
    plan = decided(make_policy(POLICIES, made) if isinstance(made, str) else made, seen, stream(1))
    verdict = admission.admit(state, seen, PlanReady(at=0.0, seen=1, plan=plan))
    assert isinstance(verdict, PlanAdmitted), verdict
    apply(state, verdict)
    check(state)
    return plan


def above(state: State, queue: str) -> list[Queue]:
    if not queue:
        return []
    spec = state.queue(state.names.queue_rows[queue])
    return [spec, *above(state, spec.parent)]


def takes(demand: Demand) -> dict[str, int]:
    return {"gpus": demand.gpus_milli, "cpus": demand.cpus_milli}


def held(state: State) -> Held:
    found = Held()
    for task in range(len(state.tasks.state)):
        if state.tasks.grant[task] >= 0:
            job = state.job(state.tasks.job[task])
            for queue in above(state, job.queue):
                for kind, amount in takes(state.demand(task)).items():
                    found[queue.name, job.user, kind] += amount
                    found[queue.name, "", kind] += amount
    return found


def over(state: State, found: Held) -> list[tuple[str, str, str]]:
    """Return the users who hold more than a queue allows each."""
    return [
        (name, user, kind)
        for (name, user, kind), amount in found.items()
        for most in [dict(state.queue(state.names.queue_rows[name]).per_user).get(kind)]
        if user and most is not None and amount > most
    ]


def may_start(state: State, found: Held, task: int) -> bool:
    """Return whether all limits of its queues have room for a task, and a GPU is free."""
    job = state.job(state.tasks.job[task])
    for kind, amount in takes(state.demand(task)).items():
        for queue in above(state, job.queue):
            limits = dict(queue.limit)
            if queue.max_gpus is not None:
                limits["gpus"] = WHOLE * queue.max_gpus
            for user, most in (("", limits.get(kind)), (job.user, dict(queue.per_user).get(kind))):
                if amount and most is not None and found[queue.name, user, kind] + amount > most:
                    return False
    return any(state.nodes.free_gpus[node] for node in state.live_nodes())


# --- plans ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_a_user_at_the_limit_waits_and_others_of_the_queue_do_not(policy: str) -> None:
    state = tree(Queue(name="lab", per_user=gpus(3)))
    add(state, "first", "ann", "lab")
    add(state, "second", "ann", "lab")
    add(state, "third", "bob", "lab")
    plan = decide(policy, state)
    assert started(state, plan) == {"ann": 3, "bob": 3}
    full = UserLimit(queue="lab", user="ann", resource="gpus", used=3000, limit=3000)
    assert full in reasons(state, plan, "first") + reasons(state, plan, "second")
    assert full.cause() == "queue lab: ann has 3 of 3 GPUs per user"
    assert full.way_out() == "starts when tasks of ann in the queue end"
    run(state, policy)
    assert run(state, policy).starts.task.tolist() == []


@pytest.mark.parametrize("policy", POLICIES)
def test_the_limit_of_a_queue_is_for_the_queues_below_it_together(policy: str) -> None:
    lab = Queue(name="lab", per_user=gpus(3))
    state = tree(lab, *(Queue(name=name, parent="lab", per_user=gpus(2)) for name in "xy"))
    for name, user, queue in (("1", "ann", "x"), ("2", "ann", "y"), ("3", "bob", "y")):
        add(state, name, user, queue)
    for _ in range(4):
        run(state, policy)
    found = held(state)
    assert (found["lab", "ann", "gpus"], found["lab", "bob", "gpus"]) == (3000, 2000)
    assert over(state, found) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_other_kinds_are_limited_for_each_user_as_well(policy: str) -> None:
    state = tree(Queue(name="lab", per_user=(("cpus", 8000),)))
    demand = Demand(gpus=1, cpus_milli=4000)
    add(state, "first", "ann", "lab", demand=demand)
    add(state, "second", "bob", "lab", demand=demand)
    add(state, "third", "bob", "default", tasks=3)
    for _ in range(3):
        plan = run(state, policy)
    assert held(state)["lab", "ann", "cpus"] == held(state)["lab", "bob", "cpus"] == 8000
    assert held(state)["default", "bob", "gpus"] == 3000
    full = UserLimit(queue="lab", user="ann", resource="cpus", used=8000, limit=8000)
    assert full.cause() == "queue lab: ann has 8 of 8 CPUs per user"
    assert reasons(state, plan, "first")[0] == full


@pytest.mark.parametrize("policy", POLICIES)
def test_a_changed_limit_stops_nothing_and_counts_immediately(policy: str) -> None:
    state, made = tree(Queue(name="lab")), make_policy(POLICIES, policy)
    add(state, "first", "ann", "lab", tasks=5)
    run(state, made)
    add(state, "second", "ann", "lab", tasks=5)
    apply(state, QueueChanged(at=0.0, queue=Queue(name="lab", per_user=gpus(4))))
    assert len(run(state, made).steps) == 0
    assert held(state)["lab", "ann", "gpus"] == 5000
    apply(state, QueueChanged(at=0.0, queue=Queue(name="lab", per_user=gpus(6))))
    assert started(state, run(state, made)) == {"ann": 1}
    apply(state, JobAssigned(at=0.0, job="second", queue="default", by="ann"))
    assert started(state, run(state, made)) == {"ann": 2}


@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_user_may_not_hold_goes_to_others_and_nothing_is_stopped_for_it(
    policy: str,
) -> None:
    state = tree(Queue(name="lab", per_user=gpus(2)), Queue(name="x", parent="lab"))
    add(state, "first", "ann", "x")
    add(state, "second", "bob", "default", tasks=6)
    assert len(run(state, policy).stops) == 0
    assert held(state)["lab", "ann", "gpus"] == 2000
    assert held(state)["default", "bob", "gpus"] == 6000
    for _ in range(3):
        apply(state, TimerFired(at=state.now + 600.0, timer=Timer.ASK_AGAIN))
        assert len(run(state, policy).steps) == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_queue_takes_back_what_its_users_may_hold_and_no_more(policy: str) -> None:
    state = tree(Queue(name="lab", per_user=gpus(2), guaranteed=gpus(6)))
    add(state, "early", "bob", "default")
    rounds(policy, state, 0.0)
    assert held(state)["default", "bob", "gpus"] == 8000
    add(state, "first", "ann", "lab")
    rounds(policy, state, 1000.0)
    assert held(state)["lab", "", "gpus"] == 2000
    add(state, "second", "eve", "lab")
    rounds(policy, state, 2000.0)
    assert (held(state)["lab", "", "gpus"], held(state)["lab", "eve", "gpus"]) == (4000, 2000)
    assert held(state)["default", "bob", "gpus"] == 4000


@pytest.mark.parametrize("policy", ["fsp", "gsp"])
def test_runs_are_preempted_for_a_user_up_to_the_limit(policy: str) -> None:
    state = tree(Queue(name="lab", per_user=gpus(2)))
    add(state, "early", "bob", "default")
    run(state, policy)
    add(state, "first", "ann", "lab")
    add(state, "second", "ann", "lab")
    stops = 0
    for _ in range(4):
        stops += len(run(state, policy).stops)
    assert stops == 2


def test_a_plan_that_breaks_a_limit_of_a_user_is_rejected() -> None:
    state = tree(Queue(name="lab", per_user=gpus(2)))
    for name, user in (("first", "ann"), ("second", "bob")):
        add(state, name, user, "lab")
    starts = [Start(task, node, (gpu,)) for task, node, gpu in ((0, 0, 0), (1, 0, 1), (2, 0, 2))]
    others = [Start(9, 1, (0,)), Start(10, 1, (1,))]
    seen = state.freeze()

    def admitted(steps: Sequence[Start]) -> PlanAdmitted | PlanRejected:
        plan = Plan(steps=Steps.of([*steps]))
        return admission.admit(state, seen, PlanReady(at=0.0, seen=1, plan=plan))

    assert isinstance(admitted([*starts[:2], *others]), PlanAdmitted)
    rejected = admitted([*starts, *others])
    assert isinstance(rejected, PlanRejected)
    text = "ann would have 3 GPUs in queue lab, more than 2"
    assert rejected.message == f"the plan is infeasible: {text}"


def test_quotas_have_no_rows_of_users_where_nothing_is_limited() -> None:
    state = tree(Queue(name="lab"))
    add(state, "first", "ann", "lab")
    assert Quotas(state).rows.users == []
    apply(state, QueueChanged(at=0.0, queue=Queue(name="lab", per_user=gpus(4))))
    assert Quotas(state).rows.users == [(state.names.queue_rows["lab"], 0)]


# --- simulations ------------------------------------------------------------------------------


def facts(seed: int, *, single: bool) -> Iterator[Event]:
    """Yield nodes, a tree of queues that limit users, and jobs of four users in it.

    The tasks are on one GPU each, or, unless they are `single`, of other demands and in gangs, too.
    """
    draw = Random(seed)
    for number in range(draw.randint(2, 3)):
        devices = (Gpu(memory_bytes=1 << 30),) * draw.choice((2, 4))
        node = Node(id=f"n{number}", rack="r", gpus=devices, cpus=32)
        yield NodeJoined(at=0.0, node=node)
    yield QueueChanged(at=0.0, queue=Queue(name="default"))
    leaves = ["default"]
    most = ((), (), gpus(2), gpus(3), (("cpus", 6000), *gpus(4)))
    for name in "ab":
        each = draw.choice(most)
        limit = draw.choice((None, 4, 6))
        yield QueueChanged(at=0.0, queue=Queue(name=name, per_user=each, max_gpus=limit))
        below = [f"{name}{number}" for number in range(draw.choice((0, 2)))]
        for inner in below:
            own = draw.choice(((), gpus(2)))
            yield QueueChanged(at=0.0, queue=Queue(name=inner, parent=name, per_user=own))
        leaves += below or [name]
    at = 0.0
    for number in range(draw.randint(8, 20)):
        at += draw.choice((0.0, 1.0, 20.0, 100.0))
        kinds = ((1, 0),) if single else ((1, 0), (1, 0), (1, 2000), (2, 0), (0, 2000))
        count, milli = draw.choice(kinds)
        demand = Demand(gpus=count, cpus_milli=milli)
        task = Task(demand=demand, compute_s=draw.choice((30.0, 100.0, 400.0, 2000.0)))
        gang = not single and count == 1 and draw.random() < 0.3
        many = (task,) * (2 if gang else draw.choice((1, 2, 3, 6)))
        queue, user, name = draw.choice(leaves), draw.choice("uvwx"), f"j{number}"
        job = Job(id=name, name="j", user=user, queue=queue, gang=gang, tasks=many)
        yield JobSubmitted(at=at, job=job)


class Watch:
    """What users hold too much, and the tasks that wait though they may start, by instant."""

    def __init__(self, engine: Engine) -> None:
        self._state, self._at, self._last = engine.state, -1.0, list[str]()
        self.idle: list[str] = []
        self.full = 0

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        del commands
        if batch[0].at != self._at:
            self._at = batch[0].at
            self.idle += self._last
        state, found = self._state, held(self._state)
        assert over(state, found) == [], batch[-1].at
        waits = np.flatnonzero(state.tasks.state.array() == TaskState.WAITING).tolist()
        self._last = [state.task_id(task) for task in waits if may_start(state, found, task)]
        free = any(state.nodes.free_gpus[node] for node in state.live_nodes())
        self.full += bool(free and waits and not self._last)


def watched(seed: int, policy: str, *, single: bool) -> Watch:
    """Return what was seen until all jobs have ended."""
    engine, network = Engine(), FluidNetwork({}, **NO_LIMITS)
    made, events = make_policy(POLICIES, policy), [*facts(seed, single=single)]
    watch = Watch(engine)
    simulated = SimulatedWorld(events, network=network, policy=made, seed=seed)
    drive(engine, simulated, observe=(watch,))
    assert not engine.state.jobs.unfinished.array().any(), seed
    return watch


@pytest.mark.parametrize("policy", POLICIES)
def test_no_user_holds_more_at_any_time_and_no_gpu_idles_that_limits_leave(policy: str) -> None:
    full = 0
    for seed in range(cases(8)):
        watch = watched(seed, policy, single=True)
        assert not watch.idle, seed
        full += watch.full
    assert full >= 20


@pytest.mark.parametrize("policy", POLICIES)
def test_no_user_holds_more_with_gangs_and_other_kinds_and_all_jobs_end(policy: str) -> None:
    for seed in range(100, 100 + cases(6)):
        watched(seed, policy, single=False)
