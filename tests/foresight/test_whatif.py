"""What-if: a copy equals its snapshot, changes nothing else, and ends runs as the engine does."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from headgate.base.rng import Random, stream
from headgate.engine import Engine
from headgate.foresight.whatif import WhatIf, thaw
from headgate.machine import apply
from headgate.model import Gpu, Job, Node, Queue, RunId, Task
from headgate.policies.flow import PreemptiveFlowSharing, TimelyFlow
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.protocol import (
    Command,
    Decide,
    JobSubmitted,
    LaunchGang,
    LaunchTask,
    NodeJoined,
    PlanAdmitted,
    PlanReady,
    QueueChanged,
    ReplicaAdded,
    TaskFinished,
    TaskStarted,
    Usage,
)
from headgate.state import JobState, TaskState, check
from headgate.testing.digest import digest
from headgate.testing.random_worlds import (
    random_job,
    random_node,
    random_queues,
    random_shards,
    random_state,
)

SEED = st.integers(0, 2**32 - 1)


@given(SEED)
def test_copy_equals_its_snapshot(seed: int) -> None:
    snapshot = random_state(seed).freeze()
    copy = thaw(snapshot)
    check(copy)
    assert digest(copy.freeze()) == digest(snapshot)


def test_copy_contains_nothing_later_than_its_snapshot() -> None:
    state = random_state(7)
    snapshot, before = state.freeze(), digest(random_state(7).freeze())
    state.add_node(Node(id="late", rack="rx", gpus=(Gpu(memory_bytes=1),)))
    state.add_job(random_job(Random(1), "late-1"))
    copy = thaw(snapshot)
    assert "late" not in copy.names.node_rows
    assert "late-1" not in copy.names.job_rows
    assert digest(copy.freeze()) == before


class World:
    """An engine under `fifo` whose launches are started and ended at random."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.at = rng, 0.0
        self.engine, self.policy = Engine(), FirstInFirstOut()
        self.runs: dict[RunId, LaunchTask] = {}
        self.held: Decide | None = None
        shards = random_shards(rng)
        self.give(*(QueueChanged(at=0.0, queue=q) for q in random_queues(rng)))
        self.give(*(NodeJoined(at=0.0, node=random_node(rng, n)) for n in range(4)))
        for shard in shards:
            node = f"n{rng.randrange(4)}"
            self.give(ReplicaAdded(at=0.0, shard=shard, node=node))
        jobs = [random_job(rng, f"j{n}", shards) for n in range(rng.randint(1, 8))]
        self.give(*(JobSubmitted(at=0.0, job=job) for job in jobs))

    def give(self, *events: object) -> None:
        self.note(self.engine.handle(*events))  # type: ignore[arg-type]

    def note(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, LaunchTask):
                self.runs[command.run] = command
            elif isinstance(command, LaunchGang):
                self.runs.update({m.run: m for m in command.members})
            elif isinstance(command, Decide):
                self.held = command

    def decided(self) -> None:
        decide, self.held = self.held, None
        if decide is not None:
            plan = self.policy.decide(self.engine.decision_snapshot(), Random(0))
            self.give(PlanReady(at=self.at, seen=decide.seen, plan=plan))
            self.give(*(TaskStarted(at=self.at, run=run) for run in self.starting()))

    def starting(self) -> list[RunId]:
        state = self.engine.state
        held = {state.run_id(t): state.tasks.state[t] for t in state.holding()}
        return [run for run in self.runs if held.get(run) == TaskState.STARTING]


@given(SEED)
def test_hypothetical_end_of_a_run_has_the_effects_of_a_real_one(seed: int) -> None:
    world = World(stream(seed, "world"))
    state = world.engine.state
    for _ in range(12):
        world.decided()
        if not world.runs:
            break
        world.at += 1.0
        launch = world.runs.pop(world.rng.choice(sorted(world.runs)))
        row = state.tasks_of(state.names.job_rows[launch.run.job])[launch.run.ordinal]
        snapshot = state.freeze()
        before = digest(snapshot)
        what_if = WhatIf(snapshot, world.policy, world.at)
        what_if.end_run(row, world.at)
        check(what_if.state)
        assert digest(snapshot) == digest(state.freeze()) == before
        output_bytes = state.task(row).output_bytes
        usage = Usage(
            read_s=state.tasks.read_s[row]
        )  # as expected: a hypothetical run has no other usage
        end = TaskFinished(at=world.at, run=launch.run, output_bytes=output_bytes, usage=usage)
        world.give(end)
        what_if.state.learns = True  # hypothetical states do not update estimates
        what_if.state.record_runtime(row)
        assert digest(what_if.state.freeze()) == digest(state.freeze())


@given(SEED)
def test_hypothetical_rounds_keep_all_invariants_and_settle(seed: int) -> None:
    snapshot = random_state(seed).freeze()
    before = digest(snapshot)
    for policy in (FirstInFirstOut(), PreemptiveFlowSharing(slack=0.0)):
        what_if = WhatIf(snapshot, policy, snapshot.now)
        what_if.join(Node(id="more", rack="r0", gpus=(Gpu(memory_bytes=2 << 30),) * 2))
        for _ in range(40):
            plan = what_if.round()
            check(what_if.state)
            stopping = (what_if.state.tasks.state.array() == TaskState.STOPPING).any()
            assert not stopping, "what was being stopped has stopped"
            if not len(plan.steps):
                break
        else:
            raise AssertionError("it never came to rest")
        for job in range(len(what_if.state.jobs.state)):
            assert what_if.state.jobs.state[job] != JobState.STOPPING
    assert digest(snapshot) == before


def two_tasks() -> WhatIf:
    """A node of one GPU, on which none of a job's two tasks runs yet."""
    engine = Engine()
    engine.handle(
        QueueChanged(at=0.0, queue=Queue(name="q")),
        NodeJoined(at=0.0, node=Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1),))),
        JobSubmitted(
            at=2.0, job=Job(id="j", name="j", user="u", queue="q", tasks=(Task(), Task()))
        ),
    )
    return WhatIf(engine.snapshot(), TimelyFlow(), 7.0)


def test_hypothetical_runs_start_when_they_are_launched() -> None:
    """Else the work lost by preempting one would be unknown, and no round would preempt it."""
    what_if = two_tasks()
    assert what_if.round().starts.task.tolist() == [0]
    tasks = what_if.state.tasks
    assert (tasks.state[0], tasks.started_at[0]) == (TaskState.RUNNING, 7.0)
    starting = what_if.state.freeze()
    again = WhatIf(starting, TimelyFlow(), 9.0)
    assert again.state.tasks.started_at[0] == 7.0


def test_requested_round_has_its_time_and_is_requested_once() -> None:
    what_if = two_tasks()
    assert what_if.requested_at() == math.inf
    apply(what_if.state, PlanAdmitted(at=7.0, again_at=12.5))
    assert what_if.requested_at() == 12.5
    what_if.wake()
    assert (what_if.state.now, what_if.requested_at()) == (12.5, math.inf)


def test_rounds_of_a_what_if_are_warm() -> None:
    policy, state = TimelyFlow(), random_state(3)
    what_if = WhatIf(state.freeze(), policy, state.now)
    for _ in range(3):
        what_if.round()
    found = what_if.policy
    assert isinstance(found, TimelyFlow)
    assert found.certified.rounds == 1, "the second round was the first warm one"
    assert found.certified.violations == 0
    assert policy.certified.rounds == 0, "they are those of a copy"


def test_ends_teach_the_policy_only_where_a_what_if_learns() -> None:
    for learns in (False, True):
        state = two_tasks().state
        row = state.tasks.runtime_class[0]
        what_if = WhatIf(state.freeze(), TimelyFlow(), state.now, learns=learns)
        what_if.round()
        what_if.end_run(0, state.now + 9.0, read_s=2.0)
        learnt = what_if.state.runtime_classes
        assert learnt.count[row] == learns
        if learns:
            assert (learnt.compute_s[row], learnt.held_s[row]) == (7.0, 9.0)
