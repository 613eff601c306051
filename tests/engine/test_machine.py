"""The engine under everything a world can throw at it, in any order: its laws hold after each step,
every job can still end, and the same events give the same commands."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headgate.base.rng import Random, stream
from headgate.engine import Engine
from headgate.machine import CRASHES_MOST
from headgate.machine.task_cancel import fault_of
from headgate.model import SHARED, WHOLE, Bandwidth, Dataset, Gpu, Node, Queue, RunId, Shard
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.protocol import (
    BandwidthMeasured,
    Command,
    DatasetAdded,
    DatasetRemoved,
    Decide,
    Event,
    FailureKind,
    JobCancelled,
    JobSubmitted,
    LaunchGang,
    LaunchTask,
    NodeJoined,
    NodeLost,
    Plan,
    PlanFailed,
    PlanReady,
    QueueChanged,
    ReplicaAdded,
    ReplicaLost,
    ResultsExpired,
    Start,
    Steps,
    StopTask,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    TaskStopped,
    TimerFired,
    WakeAt,
)
from headgate.protocol.reasons import PolicyBroke
from headgate.state import JobState, Scratch, Snapshot, TaskState, check
from headgate.state.life import ENDED, HOLDING
from headgate.state.quotas import gpus_alone
from headgate.state.stops import is_cancelled
from headgate.testing.digest import digest
from headgate.testing.random_worlds import (
    GIB,
    QUEUES,
    random_job,
    random_node,
    random_queues,
    random_shards,
)

SEED = st.integers(0, 2**32 - 1)
PICKS = st.lists(st.integers(0, 999), min_size=1, max_size=10)
SHARDS = tuple(Shard(id=f"s{n}", size_bytes=1000 * n) for n in range(4))


def random_plan(rng: Random, snapshot: Snapshot) -> Plan:
    """Place random waiting tasks where they fit; gangs whole; under all ceilings."""
    scratch = Scratch(snapshot)
    nodes = snapshot.live_nodes()
    for job in snapshot.waiting_jobs():
        tasks = snapshot.waiting_of(job).tolist()
        gang = snapshot.job(job).gang
        whole = len(tasks) == snapshot.jobs.task_count[job]
        if rng.random() < 0.3 or not nodes or (gang and not whole):
            continue
        with scratch.trial() as trial:
            used: list[int] = []
            apart = snapshot.job(job).distinct_nodes
            for task in tasks:
                if not scratch.may_hold(job, gpus_alone(WHOLE * snapshot.tasks.gpus[task])):
                    break
                left = [n for n in rng.sample(nodes, len(nodes)) if not (apart and n in used)]
                used += next(([n] for n in left if scratch.place(task, n)), [])
            if not gang or len(used) == len(tasks):
                trial.keep()
    return Plan(steps=scratch.steps())


class EngineMachine(RuleBasedStateMachine):
    """A world that records commands, and reports events late, twice, wrongly or never."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine()
        self.now = 0.0
        self.batches: list[tuple[Event, ...]] = []
        self.commands: list[list[Command]] = []
        self.jobs = 0
        self.nodes = 0
        self.deciding: tuple[Decide, Snapshot] | None = None
        self.timer: WakeAt | None = None
        self.failures_in_a_row = 0
        self.launches: dict[RunId, LaunchTask] = {}  # commanded, and not known to have ended
        self.stops: dict[RunId, StopTask] = {}
        self.limits: dict[str, int] = {}  # most jobs in flight that a queue may have had

    # --- the loop ------------------------------------------------------------------------------

    def give(self, *events: Event) -> list[Command]:
        """Hand over a batch, and take note of the commands as a world would."""
        self.batches.append(events)
        commands = self.engine.handle(*events)
        self.commands.append(list(commands))
        for command in commands:
            self.note(command)
        return commands

    def note(self, command: Command) -> None:
        members = command.members if isinstance(command, LaunchGang) else ()
        match command:
            case Decide():
                assert self.deciding is None, "one Decide at a time"
                assert self.engine.state.waiting_tasks, "a decision though no task waits"
                self.deciding = (command, self.engine.snapshot())
            case WakeAt():
                assert self.timer is None, "one timer at a time"
                self.timer = command
            case StopTask():
                assert command.run in self.launches
                again = self.stops.get(command.run, command)
                assert command.now or again is command, "a run is stopped once, or then `now`"
                self.stops[command.run] = command
            case LaunchTask():
                self.launches[command.run] = command
            case LaunchGang():
                self.launches |= {m.run: m for m in members}
            case _:
                raise AssertionError(command)

    def forget(self, run: RunId) -> None:
        del self.launches[run]
        self.stops.pop(run, None)

    def later(self) -> float:
        self.now += 1.0
        return self.now

    def pick_launch(self, pick: int) -> LaunchTask:
        return list(self.launches.values())[pick % len(self.launches)]

    # --- rules: users and operators --------------------------------------------------------------

    @initialize(seed=SEED)
    def begin(self, seed: int) -> None:
        queues = random_queues(stream(seed, "queues"))
        nodes = [random_node(stream(seed, n), n) for n in range(3)]
        self.nodes = len(nodes)
        self.limits = {q.name: q.max_jobs_in_flight or 10**6 for q in queues}
        self.give(*[QueueChanged(at=0.0, queue=q) for q in queues])
        self.give(*[NodeJoined(at=0.0, node=n) for n in nodes])
        self.submit(seed, 3)

    @rule(seed=SEED, count=st.integers(1, 3))
    def submit(self, seed: int, count: int) -> None:
        rng, at = stream(seed, "job"), self.later()
        names = [f"j{self.jobs + n}" for n in range(count)]
        self.jobs += count
        shards = random_shards(rng)
        self.give(*[JobSubmitted(at=at, job=random_job(rng, name, shards)) for name in names])

    @rule(pick=st.integers(0, 999))
    def cancel(self, pick: int) -> None:
        job = f"j{pick % (self.jobs + 1)}"  # one of them is not there
        self.give(JobCancelled(at=self.later(), job=job, by="ada"))

    @rule(pick=st.integers(0, 999), now=st.booleans())
    def cancel_a_task(self, pick: int, now: bool) -> None:
        """One that can be cancelled alone, if there is any: else the event changes nothing."""
        state, every = self.engine.state, range(len(self.engine.state.tasks.state))
        alone = [
            t for t in every
            if fault_of(state, state.tasks.job[t], state.ordinal(t), now=now) is None
        ]  # fmt: skip
        task = (alone or every)[pick % len(alone or every)]
        job, ordinal = state.job(state.tasks.job[task]).id, state.ordinal(task)
        event = TaskCancelled(at=self.later(), job=job, ordinal=ordinal, by="ada", now=now)
        stale = self.engine.stale
        self.give(event)
        assert is_cancelled(state, task) or not alone
        assert self.engine.stale == stale + (not alone)

    @rule(queue=st.sampled_from(QUEUES), gpus=st.sampled_from((None, 2, 6)),
          jobs=st.sampled_from((None, 1, 3)))  # fmt: skip
    def change_queue(self, queue: str, gpus: int | None, jobs: int | None) -> None:
        row = self.engine.state.names.queue_rows[queue]
        self.limits[queue] = max(jobs or 10**6, self.engine.state.queues.in_flight[row])
        changed = Queue(name=queue, max_gpus=gpus, max_jobs_in_flight=jobs)
        self.give(QueueChanged(at=self.later(), queue=changed))

    @rule(add=st.booleans(), name=st.sampled_from(("x", "y")))
    def change_dataset(self, add: bool, name: str) -> None:
        dataset = Dataset(name=name, user="ada", shards=SHARDS)
        at = self.later()
        self.give(DatasetAdded(at=at, dataset=dataset) if add else DatasetRemoved(at=at, name=name))

    # --- rules: the cluster ----------------------------------------------------------------------

    @rule(seed=SEED, number=st.integers(0, 3))
    def join(self, seed: int, number: int) -> None:
        """Add a new node, one that returns, or one that restarted before its loss was observed."""
        self.drop_runs_of(f"n{number}")
        self.give(NodeJoined(at=self.later(), node=random_node(stream(seed, "node"), number)))

    @rule(number=st.integers(0, 3))
    def lose(self, number: int) -> None:
        self.drop_runs_of(f"n{number}")
        self.give(NodeLost(at=self.later(), node=f"n{number}"))

    def drop_runs_of(self, node: str) -> None:
        for run in [run for run, c in self.launches.items() if c.node == node]:
            self.forget(run)

    @rule(shard=st.sampled_from(SHARDS), node=st.integers(0, 3), here=st.booleans())
    def move_replica(self, shard: Shard, node: int, here: bool) -> None:
        at = self.later()
        if here:
            self.give(ReplicaAdded(at=at, shard=shard, node=f"n{node}"))
        else:
            self.give(ReplicaLost(at=at, shard=shard.id, node=f"n{node}"))

    @rule(pick=st.integers(0, 99))
    def lose_result(self, pick: int) -> None:
        state = self.engine.state
        parts = [s for shards in state.results.values() for s in shards]
        copies = [(s, state.node(n).id) for s in parts for n in state.replicas(s)]
        copies += [(s, SHARED) for s in parts if state.shards.shared[s]]
        if copies:
            shard, where = copies[pick % len(copies)]
            name = state.names.shards[shard]
            self.give(ReplicaLost(at=self.later(), shard=name, node=where))

    @rule(pick=st.integers(0, 99), where=st.sampled_from(("n0", "n1", SHARED)))
    def copy_result(self, pick: int, where: str) -> None:
        state = self.engine.state
        kept = [s for shards in state.results.values() for s in shards if state.replicas(s)]
        if kept:
            row = kept[pick % len(kept)]
            shard = Shard(id=state.names.shards[row], size_bytes=state.shards.size_bytes[row])
            self.give(ReplicaAdded(at=self.later(), shard=shard, node=where))

    @rule(pick=st.integers(0, 99))
    def expire(self, pick: int) -> None:
        jobs = self.engine.state.names.jobs
        if jobs:
            self.give(ResultsExpired(at=self.later(), job=jobs[pick % len(jobs)].id))

    @rule(speed=st.sampled_from((1e6, 1e7)))
    def measure(self, speed: float) -> None:
        bandwidth = Bandwidth(
            disk_bytes_per_s=speed, rack_bytes_per_s=speed, cluster_bytes_per_s=speed / 2
        )
        self.give(BandwidthMeasured(at=self.later(), bandwidth=bandwidth))

    # --- rules: things go well ------------------------------------------------------------------

    @rule(picks=PICKS)
    def continue_run(self, picks: list[int]) -> None:
        """Execute the outstanding commands in random order."""
        for pick in picks:
            ways: list[Callable[[], None]] = []
            if self.deciding:
                ways.append(lambda p=pick: self.plan(p))
                ways.append(self.plan_in_order)
            if self.stops:
                ways.append(lambda p=pick: self.stop(p))
            if self.launches:
                ways.append(lambda p=pick: self.start([p]))
                ways.append(lambda p=pick: self.finish([p], 9 * (p % 2)))
            if self.timer:
                ways.append(self.timer_fires)
            if ways:
                ways[pick % len(ways)]()
                check(self.engine.state)

    # --- rules: runs -----------------------------------------------------------------------------

    @precondition(lambda self: self.launches)
    @rule(picks=st.lists(st.integers(0, 99), min_size=1, max_size=3))
    def start(self, picks: list[int]) -> None:
        at = self.later()
        self.give(*[TaskStarted(at=at, run=self.pick_launch(p).run) for p in picks])

    @precondition(lambda self: self.launches)
    @rule(picks=st.lists(st.integers(0, 99), min_size=1, max_size=3), size=st.sampled_from((0, 9)))
    def finish(self, picks: list[int], size: int) -> None:
        at, ended = self.later(), dict.fromkeys(self.pick_launch(p).run for p in picks)
        for run in ended:
            self.forget(run)
        self.give(*[TaskFinished(at=at, run=run, output_bytes=size) for run in ended])

    @precondition(lambda self: self.launches)
    @rule(pick=st.integers(0, 999), kind=st.sampled_from(FailureKind), after=PICKS)
    def fail(self, pick: int, kind: FailureKind, after: list[int]) -> None:
        self.fail_one(self.pick_launch(pick), kind)
        self.continue_run(after)

    @precondition(lambda self: any(self.is_gang(c) for c in self.launches.values()))
    @rule(pick=st.integers(0, 999), kind=st.sampled_from(FailureKind), after=PICKS)
    def fail_of_a_gang(self, pick: int, kind: FailureKind, after: list[int]) -> None:
        members = [c for c in self.launches.values() if self.is_gang(c)]
        self.fail_one(members[pick % len(members)], kind)
        self.continue_run(after)

    def is_gang(self, launch: LaunchTask) -> bool:
        state = self.engine.state
        return state.job(state.names.job_rows[launch.run.job]).gang

    def fail_one(self, launch: LaunchTask, kind: FailureKind) -> None:
        self.forget(launch.run)
        self.give(TaskFailed(at=self.later(), run=launch.run, kind=kind, message="it broke"))

    @precondition(lambda self: self.stops)
    @rule(pick=st.integers(0, 99))
    def stop(self, pick: int) -> None:
        run = list(self.stops)[pick % len(self.stops)]
        self.forget(run)
        self.give(TaskStopped(at=self.later(), run=run))

    @precondition(lambda self: self.batches)
    @rule(pick=st.integers(0, 999))
    def say_an_old_answer_again(self, pick: int) -> None:
        """Duplicates of answers to commands that are settled change nothing but `stale`."""
        settled = [e for b in self.batches for e in b if self.is_settled(e)]
        if not settled:
            return
        state, stale = self.engine.state, self.engine.stale
        event = settled[pick % len(settled)]
        counts = not isinstance(event, PlanReady | PlanFailed)  # these are dropped before they do
        state.version += counts
        before = digest(state)
        state.version -= counts
        assert self.give(event) == []
        assert digest(state) == before
        assert self.engine.stale == stale + 1

    def is_settled(self, event: Event) -> bool:
        match event:
            case TaskStarted() | TaskFinished() | TaskFailed() | TaskStopped():
                return event.run not in self.launches
            case PlanReady() | PlanFailed():
                return self.deciding is None or event.seen != self.deciding[0].seen
            case TimerFired():
                return self.timer is None
            case _:
                return False

    # --- rules: decisions ------------------------------------------------------------------------

    def decided(self) -> tuple[Decide, Snapshot]:
        assert self.deciding is not None
        decide, snapshot = self.deciding
        self.deciding = None
        return decide, snapshot

    @precondition(lambda self: self.deciding)
    @rule(seed=SEED)
    def plan(self, seed: int) -> None:
        """A right plan, however stale: what of it can still be done is done."""
        decide, snapshot = self.decided()
        plan = random_plan(stream(seed, "plan"), snapshot)
        at = self.later()
        commands = self.give(PlanReady(at=at, seen=decide.seen, plan=plan))
        assert not any(isinstance(c, WakeAt) for c in commands), self.engine.state.refusals
        self.failures_in_a_row = 0

    @precondition(lambda self: self.deciding and self.deciding[0].seen == self.engine.state.version)
    @rule(node=st.integers(0, 3), gpus=st.sampled_from([(), (0,), (9,), (-1,), (0, 0), (0, 1, 2)]))
    def plan_the_impossible(self, node: int, gpus: tuple[int, ...]) -> None:
        decide, snapshot = self.decided()
        blocked = [
            t for t in range(len(snapshot.tasks.state))
            if snapshot.tasks.state[t] != TaskState.WAITING
        ]  # fmt: skip
        task = blocked[0] if blocked else 10**6
        plan = Plan(steps=Steps.of([Start(task, node, gpus)]))
        at = self.later()
        self.broke(PlanReady(at=at, seen=decide.seen, plan=plan))

    @precondition(lambda self: self.deciding)
    @rule()
    def policy_fails(self) -> None:
        self.broke(PlanFailed(at=self.later(), seen=self.decided()[0].seen, message="it broke"))

    def broke(self, event: Event) -> None:
        (wake,) = self.give(event)
        assert isinstance(wake, WakeAt)
        assert wake.at == self.now + min(60.0, 2.0 ** min(self.failures_in_a_row, 6))
        self.failures_in_a_row += 1
        (refusal,) = self.engine.state.refusals
        assert isinstance(refusal.reason, PolicyBroke)

    @precondition(lambda self: self.timer)
    @rule()
    def timer_fires(self) -> None:
        assert self.timer is not None
        timer, self.timer = self.timer, None
        self.now = max(self.now, timer.at)
        self.give(TimerFired(at=self.now, timer=timer.timer))

    @rule()
    def restart_from_a_snapshot(self) -> None:
        """An engine restored from a stored snapshot continues like the original."""
        self.engine = pickle.loads(pickle.dumps(self.engine))

    # --- laws ------------------------------------------------------------------------------------

    @invariant()
    def the_laws_of_the_state_hold(self) -> None:
        check(self.engine.state)

    @invariant()
    def the_engine_holds_exactly_what_the_world_was_asked_for(self) -> None:
        state = self.engine.state
        held = [t for t, s in enumerate(state.tasks.state.array().tolist()) if s in HOLDING]
        assert sorted(map(state.run_id, held)) == sorted(self.launches)
        stopping = [t for t in held if state.tasks.state[t] == TaskState.STOPPING]
        assert sorted(map(state.run_id, stopping)) == sorted(self.stops)
        for task in held:
            launch = self.launches[state.run_id(task)]
            where = state.node(state.tasks.node[task]).id, state.held_gpus(task)
            assert (launch.node, launch.gpus) == where

    @invariant()
    def what_is_outstanding_is_asked_again_exactly(self) -> None:
        again = self.engine.outstanding()
        launches = [m for c in again if isinstance(c, LaunchGang) for m in c.members]
        launches += [c for c in again if isinstance(c, LaunchTask)]
        assert {c.run: (c.node, c.gpus) for c in launches} == {
            run: (c.node, c.gpus) for run, c in self.launches.items()
        }
        assert {c.run: c for c in again if isinstance(c, StopTask)} == self.stops
        assert [c for c in again if isinstance(c, WakeAt)] == ([self.timer] if self.timer else [])
        decides = [c for c in again if isinstance(c, Decide)]
        assert decides == ([self.deciding[0]] if self.deciding else [])

    @invariant()
    def only_jobs_that_have_ended_have_expired(self) -> None:
        state = self.engine.state
        for job in np.flatnonzero(~np.isnan(state.jobs.expired_at.array())).tolist():
            assert state.jobs.state[job] in ENDED
            assert not any(task in state.results for task in state.tasks_of(job))

    @invariant()
    def queues_keep_to_their_jobs_in_flight(self) -> None:
        state = self.engine.state
        for name, row in state.names.queue_rows.items():
            assert state.queues.in_flight[row] <= self.limits.get(name, 10**6)
            limit = state.queue(row).max_jobs_in_flight
            full = limit is not None and state.queues.in_flight[row] >= limit
            assert full or not state.queued_jobs[row], "a job is held back without need"

    # --- the end ---------------------------------------------------------------------------------

    def teardown(self) -> None:
        self.every_job_can_still_end()
        self.the_same_events_give_the_same_commands()

    def every_job_can_still_end(self) -> None:
        gpus = (Gpu(memory_bytes=3 * GIB),) * 8
        big = [Node(id=f"big{n}", rack="r0", gpus=gpus, cpus=9) for n in range(3)]  # gangs of 3
        queues = [Queue(name=name) for name in self.engine.state.names.queue_rows]
        self.give(*[QueueChanged(at=self.later(), queue=q) for q in queues])
        self.limits = {}
        for node in big:
            self.give(NodeJoined(at=self.later(), node=node))
        steps: tuple[tuple[Callable[[], object], Callable[[], None]], ...] = (
            (lambda: self.deciding, self.plan_in_order),
            (lambda: self.stops, lambda: self.stop(0)),
            (lambda: self.launches, lambda: self.finish([0], 5)),
            (lambda: self.timer, self.timer_fires),
        )
        for _ in range(100 + 40 * self.jobs):
            act = next((act for possible, act in steps if possible()), None)
            if act is None:
                break
            act()
            check(self.engine.state)
        state = self.engine.state
        left = [j.id for r, j in enumerate(state.names.jobs) if state.jobs.state[r] not in ENDED]
        assert left == [], [state.history_of("job", state.names.job_rows[j]) for j in left]
        for row, job in enumerate(state.names.jobs):
            if state.jobs.state[row] == JobState.FAILED:
                rows = state.tasks_of(row)
                most = sum if job.gang else max  # failures of a gang count together
                failed = most(state.tasks.failures[t] for t in rows) == job.retries + 1
                crashed = most(state.tasks.crashes[t] for t in rows) == CRASHES_MOST
                assert failed or crashed or "over its time limit" in state.jobs.message[row]

    def plan_in_order(self) -> None:
        decide, snapshot = self.decided()
        plan = FirstInFirstOut().decide(snapshot, stream(0))
        at = self.later()
        commands = self.give(PlanReady(at=at, seen=decide.seen, plan=plan))
        assert not any(isinstance(c, WakeAt) for c in commands), self.engine.state.refusals
        self.failures_in_a_row = 0

    def the_same_events_give_the_same_commands(self) -> None:
        again = Engine()
        assert [again.handle(*b) for b in self.batches] == self.commands
        assert digest(again.state) == digest(self.engine.state)
        assert again.stale == self.engine.stale


TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(max_examples=100, stateful_step_count=50)
