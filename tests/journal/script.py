"""Events that no storm has, on an engine: every field of every type, each with its effect.

Plans are made by hand, so the script depends on no policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headgate.engine import Engine
from headgate.engine.engine import Batch
from headgate.model import (
    Bandwidth,
    Communication,
    Dataset,
    Demand,
    Elastic,
    Gpu,
    Items,
    Job,
    KeepFiles,
    Launch,
    Node,
    Pattern,
    Program,
    ProgramType,
    Queue,
    RayMode,
    RayProgram,
    RunEnvironment,
    RunId,
    Shard,
    SpeedCurve,
    Stage,
    Task,
    Training,
)
from headgate.model.scaling import Scaling, Shape
from headgate.model.topology import ClusterFatTree, ClusterMesh, ClusterTree, GroupLevel, NodeShape
from headgate.planning.times.reservations import RESERVED_AT
from headgate.protocol import (
    NO_OUTSIDE,
    Admitted,
    BandwidthMeasured,
    DatasetAdded,
    DatasetRemoved,
    Decide,
    Event,
    FailureKind,
    GpuOutside,
    GpusWithheld,
    GpuUse,
    Group,
    Hardened,
    JobAssigned,
    JobCancelled,
    JobsArchived,
    JobSubmitted,
    JournalGap,
    KeptFiles,
    KeptPlace,
    LabelsChanged,
    Move,
    Moved,
    MoveRequested,
    NodeDraining,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    NodeReported,
    NodeResumed,
    OrderFailed,
    Outside,
    OverUse,
    Plan,
    PlanFailed,
    PlanReady,
    PlanRejected,
    QueueChanged,
    QueueRemoved,
    ReplicaAdded,
    ReplicaLost,
    Resize,
    ResultsExpired,
    ScalingChanged,
    SetWidth,
    SlotsWithdrawn,
    Start,
    Steps,
    Stop,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    TaskStopped,
    TimerFired,
    TopologyChanged,
    Usage,
)
from headgate.protocol.commands import Timer
from headgate.protocol.order_reasons import GivesWay
from headgate.protocol.queue_reasons import TakenBack
from headgate.protocol.reasons import MovedFor, PreemptedFor
from headgate.protocol.resize import Reclaimed

REJECTED = "it planned the impossible"
QUEUE = Queue(
    name="scripted",
    parent="department",
    weight=2.0,
    max_gpus=64,
    limit=(("cpus", 64_000), ("licence", 9000)),
    guaranteed=(("cpus", 2000), ("gpus", 4000)),
    borrow_limit=(("gpus", 60_000),),
    lend=False,
    admins=("bob",),
    users=("ada", "bob"),
    max_time_s=86_400.0,
    grace_s=20.0,
    min_run_s=600.0,
    per_user=(("cpus", 16_000), ("gpus", 8000)),
    elastic_limit=0.75,
    yield_ratio=0.5,
    labels=("fast",),
    types=("batch",),
    state="open",
    max_jobs_in_flight=99,
    estimate="declared",
)
DEPARTMENT = Queue(name="department", labels=("!spot",))
SHAPE = NodeShape(
    levels=(GroupLevel(name="socket", bytes_per_s=8.0, groups=((0,), (1,))),), gpu_bytes_per_s=16.0
)
LARGE = Shape(
    name="large",
    gpus=(Gpu(memory_bytes=80, model="H200"),) * 2,
    cpus=8,
    memory_bytes=1 << 30,
    custom=(("licence", 2000),),
    speed=2.0,
    labels=("fast",),
    cost_per_h=3.5,
    ready_after_s=40.0,
    most=3,
)
PARTIAL = Task(
    demand=Demand(
        gpus=1,
        gpu_milli=250,
        gpu_memory_bytes=8,
        custom=(("licence", 500),),
        memory_bytes=1 << 20,
        gpu_models=("H200",),
        nodes=("m0", "m1", "m3"),
        exclude=("m9",),
        selector=("fast", "!spot"),
    )
)
SCALING = Scaling(
    shapes=(LARGE,), floor=1, max_nodes=9, max_cost_per_h=50.0, idle_after_s=60.0, utilisation=0.7
)
TREE = ClusterTree(
    level_names=("core", "node"),
    names=("core", "m0", "m1", "m2"),
    parents=(-1, 0, 0, 0),
    levels=(0, 1, 1, 1),
    bytes_per_s=(float("inf"), 10.0, 10.0, 10.0),
    shapes=(SHAPE,),
    shape=(-1, 0, 0, -1),
)
MESH = ClusterMesh(sides=(3,), wrap=(True,), bytes_per_s=(9.0,), nodes=("m0", "m1", "m2"))
FAT_TREE = ClusterFatTree(ports=4, bytes_per_s=(1.0, 2.0, 3.0), nodes=("m0", "m1", "m2"))


class _Script:
    """Gives an engine events and plans, a second apart each."""

    def __init__(
        self, engine: Engine, record: Callable[[Batch], Batch], observe: Callable[[], None]
    ) -> None:
        self._engine, self._record, self._observe = engine, record, observe
        self.at = engine.state.now + 1
        self._decide: Decide | None = None

    def give(self, *events: Event) -> None:
        commands = self._engine.handle(*events, record=self._checked)
        self.at = max(self.at, self._engine.state.now) + 1
        self._decide = next((c for c in commands if isinstance(c, Decide)), self._decide)
        self._observe()

    def _checked(self, batch: Batch) -> Batch:
        for event in batch:
            by_hand = isinstance(event, PlanRejected) and event.message != REJECTED
            assert not by_hand, f"the plan was rejected: {event}"
        return self._record(batch)

    def plan(self, *groups: Group, **more: Any) -> None:
        """Answer a decision on the state of now with a plan, which must be admitted."""
        self.ask()
        self.answer(Plan(steps=Steps.of(groups), **more))

    def ask(self) -> None:
        """Have a decision outstanding on the state of now."""
        while self._decide is not None and self._decide.seen < self._engine.state.version:
            self.answer(Plan())
        if self._decide is None:
            self.give(QueueChanged(at=self.at, queue=DEPARTMENT))
            self.give(QueueChanged(at=self.at, queue=QUEUE))

    def answer(self, plan: Plan) -> None:
        """Answer the outstanding decision."""
        seen, self._decide = self.decision(), None
        self.give(PlanReady(at=self.at, seen=seen, plan=plan))

    def node(self, name: str, **more: Any) -> None:
        fields = {"rack": "m", "gpus": (Gpu(memory_bytes=80, model="H200"),) * 2, **more}
        self.give(NodeJoined(at=self.at, node=Node(id=name, **fields)))

    def job(self, name: str, *tasks: Task, **more: Any) -> None:
        fields = {"name": name, "user": "ada", "queue": "scripted", "tasks": tasks, **more}
        self.give(JobSubmitted(at=self.at, job=Job(id=name, **fields)))

    def starts(self, job: str, *places: tuple[str, tuple[int, ...]]) -> None:
        """Have the first tasks of a job start on these nodes and GPUs, together."""
        steps = (Start(self.task(job, n), self.row(node), g) for n, (node, g) in enumerate(places))
        self.plan(Group(tuple(steps)))
        for n, _ in enumerate(places):
            self.give(TaskStarted(at=self.at, run=self.run(job, n)))

    def task(self, job: str, ordinal: int) -> int:
        state = self._engine.state
        return state.tasks_of(state.names.job_rows[job])[ordinal]

    def run(self, job: str, ordinal: int = 0) -> RunId:
        return RunId(job, ordinal, self._engine.state.tasks.attempts[self.task(job, ordinal)])

    def row(self, node: str) -> int:
        return self._engine.state.names.node_rows[node]

    def job_row(self, job: str) -> int:
        return self._engine.state.names.job_rows[job]

    def orders(self) -> tuple[str, ...]:
        return tuple(self._engine.state.fleet.orders)

    def decision(self) -> int:
        """Return the version of the state on which a decision is outstanding."""
        assert self._decide is not None, "no decision is outstanding"
        return self._decide.seen


def play(
    engine: Engine, record: Callable[[Batch], Batch], observe: Callable[[], None] = lambda: None
) -> None:
    """Play all of it, such as after a storm; record each batch, then call `observe`."""
    script = _Script(engine, record, observe)
    for chapter in (_cluster, _programs, _ends, _moves, _slots, _overs, _elastic, _training,
                    _scaling, _data, _faults):  # fmt: skip
        chapter(script)


def _cluster(t: _Script) -> None:
    """Queues, nodes, topologies, GPUs of other programs, draining."""
    for queue in (DEPARTMENT, QUEUE, Queue(name="elsewhere"), Queue(name="gone", state="closed")):
        t.give(QueueChanged(at=t.at, queue=queue))
    t.give(QueueRemoved(at=t.at, name="gone"))
    estimates = Bandwidth(disk_bytes_per_s=90.0, rack_bytes_per_s=80.0, cluster_bytes_per_s=70.0)
    t.give(BandwidthMeasured(at=t.at, bandwidth=estimates))
    for number in range(4):
        t.node(
            f"m{number}",
            cpus=16,
            memory_bytes=1 << 30,
            custom=(("licence", 3000),),
            incarnation=f"boot-{number}",
            shape=SHAPE,
            speed=1.5,
            labels=("fast", "zone=a"),
        )
    for topology in (TREE, MESH, None, FAT_TREE):
        t.give(TopologyChanged(at=t.at, topology=topology))
    t.give(GpusWithheld(at=t.at, node="m2", incarnation="boot-2", gpus=(1,)))
    t.give(NodeDraining(at=t.at, node="m2", by="root", reason="a new disk"))
    t.give(NodeResumed(at=t.at, node="m2", by="root"))
    t.give(NodeDraining(at=t.at, node="m2", by="root", reason="an old disk"))
    t.give(LabelsChanged(at=t.at, node="m3", labels=("fast", "zone=b"), by="root"))
    use = (GpuUse(1 << 20, 250), GpuUse(None, None))
    outside = Outside(cpus_milli=500, memory_bytes=1 << 20, gpus=(GpuOutside(1, 3, 4711),))
    t.give(NodeReported(at=t.at, node="m0", cpus_milli=1500, memory_bytes=1 << 30, gpus=use))
    for node, used in (("m0", outside), ("m0", NO_OUTSIDE), ("m1", outside), ("m1", NO_OUTSIDE)):
        report = NodeReported(at=t.at, node=node, cpus_milli=0, memory_bytes=0, outside=used)
        t.give(report)


ENVIRONMENT = RunEnvironment(
    package="p1",
    pip=("numpy",),
    venv="/venv",
    setup=("module load cuda",),
    directory="/home/a/proj",
    inode=7,
)


def _programs(t: _Script) -> None:
    """Jobs that declare everything; they stay queued, or wait."""
    keep = KeepFiles(include=("*.pt",), limit_bytes=5)
    stages = tuple(
        Stage(
            first=n,
            count=1,
            program_type=kind,
            run="train:main",
            params={"rate": 0.1, "layers": [1, 2]},
            times=2,
            every=2,
            checkpoint="/shared/ckpt",
            first_index=3,
        )
        for n, kind in enumerate((ProgramType.FUNCTION, ProgramType.COMMAND))
    )
    tasks = (
        PARTIAL,
        Task(demand=Demand(cpus_milli=1500), compute_s=3.0, output_bytes=9, after=(0,), parts=3),
        Task(checkpoint_s=60.0, reads=("data:0",), compute_s=100.0),
        Task(),
    )
    t.job(
        "all",
        *tasks,
        shards=(Shard(id="data:0", size_bytes=11),),
        priority=3,
        retries=5,
        program=Program(
            stages=stages, envs={"LR": "0.1"}, environment=ENVIRONMENT, keep_files=keep
        ),
        runtime_class="train",
        submission_key="key-1",
        public=True,
        number=1001,
        result_replicas=2,
        results_path="/shared/results",
        keep_s=86400.0,
        estimated_s=120.0,
        time_limit_s=3600.0,
        max_running=2,
        limited_tasks=3,
        grace_s=60.0,
        wait_for_node=True,
    )
    _other_programs(t)


def _other_programs(t: _Script) -> None:
    """Ray programs, and gangs that communicate."""
    for mode in RayMode:
        ray = RayProgram(args=("--fast",), mode=mode, cpus_by_gpus=True)
        stage = Stage(first=0, count=2, program_type=ProgramType.RAY, run="program.py")
        program = Program(stages=(stage,), ray=ray, launch=Launch.FIRST)
        t.job(f"ray-{mode}", Task(), Task(), gang=True, distinct_nodes=True, program=program,
              after=("all",))  # fmt: skip
    for pattern in Pattern:
        means = Communication(pattern=pattern, bytes_per_step=7, step_s=0.5, processes=2)
        t.job(f"talks-{pattern}", Task(), Task(), gang=True, communication=means, after=("all",))


def _ends(t: _Script) -> None:
    """Runs that end in each way, one of which is preempted; jobs and tasks that are cancelled."""
    kept = KeptFiles(
        files=2, size_bytes=30, left=1, left_bytes=90, skipped=3, directory="/var/hg/n1/files"
    )
    usage = Usage(
        read_bytes=(1, 2, 3),
        read_s=0.5,
        exit_status=-9,
        kept=kept,
        peak_memory_bytes=1 << 20,
        peak_gpu_bytes=4,
        cpus_milli=700,
    )
    for kind in FailureKind:
        t.job(f"fails-{kind}", Task(), retries=0)
        t.starts(f"fails-{kind}", ("m0", (0,)))
        run = t.run(f"fails-{kind}")
        t.give(TaskFailed(at=t.at, run=run, kind=kind, message="it broke", usage=usage))
        t.give(JobCancelled(at=t.at, job=f"fails-{kind}", by="ada"))
    t.job("parts", Task(parts=2))
    t.starts("parts", ("m0", (0,)))
    run = t.run("parts")
    t.give(TaskFinished(at=t.at, run=run, output_bytes=30, part_bytes=(10, 20), usage=usage))
    copy = Shard(id="parts/0.0", size_bytes=10)
    t.give(ReplicaAdded(at=t.at, shard=copy, node="m1", run=run))
    t.job("gives-way", Task())
    t.starts("gives-way", ("m0", (0,)))
    t.job("goes-first", Task())
    stop = Group((Stop(t.task("gives-way", 0)),), PreemptedFor(job="goes-first"))
    t.plan(stop, again_at=t.at + 1000, memo={RESERVED_AT: {t.job_row("goes-first"): t.at}},
           node_memo={"weight": {t.row("m0"): 0.5}})  # fmt: skip
    t.give(TaskStopped(at=t.at, run=t.run("gives-way"), usage=usage, message="exit status 0"))
    t.starts("gives-way", ("m0", (0,)))
    back = TakenBack(job="goes-first", queue="scripted")
    t.plan(Group((Stop(t.task("gives-way", 0)),), back))
    t.give(TaskStopped(at=t.at, run=t.run("gives-way"), usage=usage, message="exit status 0"))
    t.give(JobCancelled(at=t.at, job="gives-way", by="ada", now=True))
    t.job("some", Task(), Task(), Task(), Task())
    t.starts("some", ("m0", (0,)))
    for ordinal, now in ((3, False), (0, True)):
        t.give(TaskCancelled(at=t.at, job="some", ordinal=ordinal, by="ada", now=now))
    t.give(JobAssigned(at=t.at, job="some", queue="elsewhere", by="root"))
    t.give(TaskStopped(at=t.at, run=t.run("some")))
    t.job("calls", Task(), Task(), items=Items())
    t.give(SlotsWithdrawn(at=t.at, job="calls"))


def _moves(t: _Script) -> None:
    """A run that a plan moves, which has started again; one that moves still, as was requested."""
    t.job("moved", Task())
    t.starts("moved", ("m0", (0,)))
    move = Move(t.task("moved", 0), t.row("m1"), (0,))
    t.plan(Group((move,), MovedFor(job="goes-first")))
    t.give(TaskStopped(at=t.at, run=t.run("moved")))
    t.give(TaskStarted(at=t.at, run=t.run("moved")))
    t.job("leaves", Task())
    t.starts("leaves", ("m0", (0,)))
    place = Admitted(run=t.run("leaves"), node="m1", gpus=(1,))
    t.give(MoveRequested(at=t.at, move=Moved(runs=(place,), reason="requested", job="moved")))


def _slots(t: _Script) -> None:
    """A lease, one slot of which another user gets."""
    t.job("slots", Task(), Task(), items=Items(count=100, retries=4))
    t.starts("slots", ("m3", (0,)), ("m3", (1,)))
    t.job("others", Task(), user="bob")
    reason = Reclaimed(job="others", queue="scripted", user="bob")
    t.plan(resizes=(Resize(t.job_row("slots"), t.row("m3"), 1, reason),))
    t.give(TaskStopped(at=t.at, run=t.run("slots", 1)))


def _elastic(t: _Script) -> None:
    """An elastic job of which surplus runs, is stopped, and runs again; and one that ends."""
    one = Task(demand=Demand(gpus=0, cpus_milli=1000))
    t.job("grows", one, one, one, elastic=Elastic(minimum=1, work_s=60.0))
    t.starts("grows", ("m3", ()))
    t.plan(Group((Start(t.task("grows", 2), t.row("m3"), ()),)))
    t.plan(Group((Stop(t.task("grows", 2)),), GivesWay()))
    t.give(TaskStopped(at=t.at, run=t.run("grows", 2)))
    t.plan(Group((Start(t.task("grows", 1), t.row("m3"), ()),)))
    t.job("shrinks", one, one, one, elastic=Elastic(minimum=2, work_s=60.0))
    t.starts("shrinks", ("m3", ()), ("m3", ()))
    t.give(TaskFinished(at=t.at, run=t.run("shrinks")))


def _training(t: _Script) -> None:
    """A training job that changes its width while it waits and while it runs."""
    one = Task(demand=Demand(gpus=0, cpus_milli=1000), compute_s=60.0)
    curve = SpeedCurve((1, 2, 4), (10.0, 16.0, 24.0))
    training = Training(work=600.0, speeds=curve, restart_s=5.0)
    t.job("trains", one, one, one, one, gang=True, training=training, deadline_s=900.0)
    t.plan(widths=(SetWidth(t.job_row("trains"), 2),))
    t.starts("trains", ("m3", ()), ("m0", ()))
    t.plan(widths=(SetWidth(t.job_row("trains"), 4, PreemptedFor(job="others")),))
    t.give(TaskStopped(at=t.at, run=t.run("trains", 0)))
    t.give(TaskStopped(at=t.at, run=t.run("trains", 1)))


def _overs(t: _Script) -> None:
    """Runs that use more than they hold, one of which ends."""
    t.job("over", PARTIAL, PARTIAL)
    t.starts("over", ("m0", (1,)), ("m0", (1,)))
    over = tuple(OverUse(t.run("over", n), 1 << 21, 41) for n in range(2))
    t.give(NodeReported(at=t.at, node="m0", cpus_milli=0, memory_bytes=1 << 21, over=over))
    t.give(TaskFinished(at=t.at, run=t.run("over")))


def _scaling(t: _Script) -> None:
    """Orders that are fulfilled, failed, given up and pending; nodes that are removed."""
    t.give(ScalingChanged(at=t.at, scaling=None))
    t.give(ScalingChanged(at=t.at, scaling=SCALING))
    t.plan(orders=("large", "large", "large"))
    first, second, third = t.orders()
    t.give(OrderFailed(at=t.at, order=first, message="no capacity"))
    for order in (first, second):
        node = LARGE.node(f"made-{order}", "m")
        t.give(NodeJoined(at=t.at, node=node, order=order))
    t.give(OrderFailed(at=t.at, order=third, message="quota exceeded", given_up=True))
    for order in (first, second):
        t.plan(drains=(t.row(f"made-{order}"),))
        t.give(NodeLost(at=t.at, node=f"made-{order}"))
    t.give(NodeRemoved(at=t.at, order=first))
    t.plan(orders=("large",))


def _data(t: _Script) -> None:
    """Datasets, replicas, a node that returns with some of its shards, the archive."""
    shards = tuple(Shard(id=f"data:{n}", size_bytes=7 + n) for n in range(3))
    t.give(DatasetAdded(at=t.at, dataset=Dataset(name="d", user="ada", shards=shards, public=True)))
    t.give(DatasetAdded(at=t.at, dataset=Dataset(name="e", user="ada", shards=())))
    t.give(*(ReplicaAdded(at=t.at, shard=shard, node="m2") for shard in shards))
    t.give(DatasetRemoved(at=t.at, name="e"))
    t.give(ReplicaLost(at=t.at, shard="data:0", node="m2"))
    t.give(NodeLost(at=t.at, node="m2"))
    back = Node(id="m2", rack="m", gpus=(Gpu(memory_bytes=80),) * 2, incarnation="boot-9")
    t.give(NodeJoined(at=t.at, node=back, kept=True, without=("data:1",), holds=shards[:1]))
    t.give(ResultsExpired(at=t.at, job="parts"))
    t.give(JobsArchived(at=t.at, jobs=("gives-way",)))


def _faults(t: _Script) -> None:
    """A policy that plans what has become impossible, then the impossible; timers; a gap."""
    t.job("late", Task())
    t.ask()
    t.give(NodeLost(at=t.at, node="m3"))
    t.answer(Plan(steps=Steps.of([Start(t.task("late", 0), t.row("m3"), (1,))])))
    t.ask()
    t.give(PlanFailed(at=t.at, seen=t.decision(), message="it broke"))
    t.give(PlanRejected(at=t.at, message=REJECTED))
    t.give(TimerFired(at=t.at, timer=Timer.RETRY))
    t.give(TimerFired(at=t.at + 2000, timer=Timer.ASK_AGAIN))
    t.give(JournalGap(at=t.at, events=3))
    t.job("patient", Task())
    places = (KeptPlace(0, "m0", (0,)),)
    t.plan(hardened=Hardened(job="patient", since=t.at, places=places, policy="fs"))
