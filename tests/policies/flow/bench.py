"""An engine with a flow policy, and a world that the test controls."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import strategies as st

from headgate.engine import Engine
from headgate.model import Bandwidth, Demand, Gpu, Job, Locality, Node, Queue, Shard, Task
from headgate.planning.place.cpu_tasks import place_cpu_tasks
from headgate.policies.flow import FlowSharing
from headgate.policies.flow.policy import FlowPolicy
from headgate.policies.flow.problem import OfferedTasks, full_problem, offered_problem
from headgate.policies.flow.solve import Flow
from headgate.policies.flow.warm import WarmRound
from headgate.ports import Policy
from headgate.protocol import (
    BandwidthMeasured,
    Command,
    Decide,
    Event,
    JobSubmitted,
    LaunchGang,
    LaunchTask,
    NodeJoined,
    Plan,
    PlanReady,
    QueueChanged,
    ReplicaAdded,
    StopTask,
    TaskFinished,
    TaskStopped,
)
from headgate.protocol.reasons import Reason
from headgate.state import Scratch, Snapshot, check

GB = 10**9
DISK, RACK, CLUSTER = 1e9, 1e8, 2e7


class Bench:
    """An engine with a flow policy; the test reports all events of its world."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.engine = Engine()
        self.policy = policy or FlowSharing()
        self.at = 0.0
        self.plans: list[Plan] = []
        self.runs: dict[tuple[str, int], LaunchTask] = {}
        self.stops: list[StopTask] = []  # not executed yet
        bandwidth = Bandwidth(
            disk_bytes_per_s=DISK, rack_bytes_per_s=RACK, cluster_bytes_per_s=CLUSTER
        )
        self.apply(BandwidthMeasured(at=0.0, bandwidth=bandwidth))
        self.queue("default")

    def apply(self, *events: Event) -> None:
        """Apply events, and decide for every Decide until the engine issues none."""
        commands = self.engine.handle(*events)
        check(self.engine.state)
        launched = [c for c in commands if isinstance(c, LaunchTask)]
        launched += [m for c in commands if isinstance(c, LaunchGang) for m in c.members]
        self.runs.update({c.run[:2]: c for c in launched})
        self.stops += [c for c in commands if isinstance(c, StopTask)]
        for decide in [c for c in commands if isinstance(c, Decide)]:
            self.decide(decide)

    def decide(self, decide: Command) -> None:
        assert isinstance(decide, Decide)
        plan = self.policy.decide(self.engine.decision_snapshot(), Random(1))
        if isinstance(self.policy, FlowPolicy):
            check_optimum(self.policy)
        self.plans.append(plan)
        self.apply(PlanReady(at=self.at, seen=decide.seen, plan=plan))
        assert self.engine.stale == 0

    def queue(self, name: str, weight: float = 1.0, max_gpus: int | None = None) -> None:
        queue = Queue(name=name, weight=weight, max_gpus=max_gpus)
        self.apply(QueueChanged(at=self.at, queue=queue))

    def node(self, name: str, rack: str, *memory_gb: int, cpus: int = 4, model: str = "") -> None:
        gpus = tuple(Gpu(memory_bytes=m * GB, model=model) for m in memory_gb)
        self.apply(NodeJoined(at=self.at, node=Node(id=name, rack=rack, gpus=gpus, cpus=cpus)))

    def data(self, shard: str, size_bytes: int, *nodes: str) -> None:
        value = Shard(id=shard, size_bytes=size_bytes)
        self.apply(*[ReplicaAdded(at=self.at, shard=value, node=n) for n in nodes])

    def finish(self, job: str, ordinal: int) -> None:
        self.at += 1.0
        run = self.runs.pop((job, ordinal))
        self.apply(TaskFinished(at=self.at, run=run.run))

    def stop(self, count: int | None = None) -> list[str]:
        """Execute outstanding stops, all or the first `count`; return their tasks."""
        requested, self.stops = self.stops[:count], self.stops[len(self.stops[:count]) :]
        runs = {run.run: key for key, run in self.runs.items()}
        stopped = [runs[c.run] for c in requested]
        for key in stopped:
            del self.runs[key]
        self.apply(*[TaskStopped(at=self.at, run=c.run) for c in requested])
        return [f"{job}/{ordinal}" for job, ordinal in stopped]

    def running(self, job: str) -> list[int]:
        return sorted(ordinal for name, ordinal in self.runs if name == job)

    def where(self) -> dict[str, str]:
        return {f"{job}/{ordinal}": run.node for (job, ordinal), run in self.runs.items()}

    def reason(self, job: str) -> Reason | None:
        row = self.engine.state.names.job_rows[job]
        refusals = self.engine.state.refusals
        return next((r.reason for r in refusals if row in r.jobs), None)


def kept(policy: FlowPolicy) -> WarmRound:
    """The warm round of a policy."""
    [warm] = policy._cache._warm
    return warm


def flow_of(policy: FlowPolicy) -> Flow:
    """The flow of the last round of a policy."""
    flow = kept(policy).flow
    assert flow is not None
    return flow


def check_optimum(policy: FlowPolicy) -> None:
    """Check that the last round of a policy is certified, and costs as much as solved cold.

    A round without tasks for the flow has none.
    """
    warm = kept(policy)
    assert warm.standing is not None
    scratch = Scratch(warm.standing.snapshot)
    place_cpu_tasks(scratch)
    round_ = policy._round(warm.standing, warm.work, scratch)
    if warm.flow is None:
        assert not len(round_.standing.task)
        return
    certificate = flow_of(policy).certificate(offered_problem(round_, warm.offered))
    assert certificate.clean, str(certificate)
    assert worth(flow_of(policy)) == worth(Flow(full_problem(round_, OfferedTasks())))


def worth(flow: Flow) -> tuple[int, int]:
    """The number of unplaced tasks of a problem, and the cost of the others.

    The cost -1 of each excess task, internal to the solver, is left out.
    """
    pools = flow._pools
    excess = flow._capacity[pools.excess(np.arange(len(pools.offered)))].sum()
    return flow._outcome.unplaced, flow._outcome.cost + int(excess)


def submitted(
    name: str,
    tasks: int | list[Task],
    *,
    user: str = "",
    queue: str = "default",
    priority: int = 0,
    gang: bool = False,
) -> JobSubmitted:
    """The submission of a job; by default its user has no other job."""
    many = tuple(tasks) if isinstance(tasks, list) else (Task(),) * tasks
    job = Job(
        id=name, name=name, user=user or name, queue=queue, tasks=many, priority=priority, gang=gang
    )
    return JobSubmitted(at=0.0, job=job)


@st.composite
def workloads(draw: st.DrawFn, policy: Policy) -> Bench:
    """A small cluster of mixed GPUs, some data, and jobs of a few users in two queues."""
    bench = Bench(policy)
    bench.queue("capped", draw(st.sampled_from([0.5, 2.0])), draw(st.integers(1, 4)))
    nodes = [f"n{i}" for i in range(draw(st.integers(1, 4)))]
    for name in nodes:
        sizes = draw(st.lists(st.sampled_from([10, 40, 80]), max_size=3))
        bench.node(name, draw(st.sampled_from("ab")), *sizes)
    bench.node("last", "a", 80)
    shards = [f"d{i}" for i in range(4)]
    for shard in shards:
        holders = draw(st.lists(st.sampled_from(nodes), max_size=2, unique=True))
        bench.data(shard, draw(st.sampled_from([1, GB // 10, 3 * GB])), *holders)
    task = st.builds(
        Task,
        reads=st.lists(st.sampled_from(shards), max_size=2).map(tuple),
        demand=st.builds(
            Demand.of,
            gpus=st.sampled_from([1, 1, 1, 0]),
            gpu_memory_bytes=st.sampled_from([0, 0, 20 * GB, 60 * GB]),
        ),
    )
    jobs = draw(st.lists(st.lists(task, min_size=1, max_size=5), min_size=1, max_size=5))
    bench.apply(
        *[
            submitted(
                f"j{i}",
                tasks,
                user=draw(st.sampled_from("xy")),
                queue=draw(st.sampled_from(["default", "capped"])),
                priority=draw(st.integers(0, 1)),
            )
            for i, tasks in enumerate(jobs)
        ]
    )
    return bench


def priced(snapshot: Snapshot, plan: Plan) -> tuple[int, float]:
    """The tasks on GPUs that a plan places, and the price of their reads by the default alphas."""
    b = snapshot.bandwidth
    price = {
        Locality.NODE: 1 / b.disk_bytes_per_s,
        Locality.RACK: 1.5 / b.rack_bytes_per_s,
        Locality.CLUSTER: 2.0 / b.cluster_bytes_per_s,
    }
    placed = [p for p in plan.starts if p.gpus]
    reads = [r for p in placed for r in snapshot.planned_reads(p.task, p.node)]
    return len(placed), sum(r.shard.size_bytes * price[r.locality] for r in reads)
