"""No policy places runs on what processes outside Headgate use, and why a job waits for that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.app import POLICIES
from headgate.engine import Engine
from headgate.foresight.explain import explain
from headgate.foresight.why import why
from headgate.journal import decode_snapshot, encode_snapshot
from headgate.journal.codec import decode, encode
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.rounds.decide import decide
from headgate.ports import Policy, make_policy
from headgate.protocol import (
    NO_OUTSIDE,
    Command,
    Decide,
    Event,
    GpuOutside,
    JobSubmitted,
    LaunchGang,
    LaunchTask,
    NodeDraining,
    NodeJoined,
    NodeLost,
    NodeReported,
    NodeResumed,
    Outside,
    PlanReady,
    QueueChanged,
    Reason,
    TaskFinished,
    TaskStarted,
)
from headgate.protocol.node_reasons import NodeBusyOutside
from headgate.state import check
from headgate.state.thaw import thaw
from headgate.testing.digest import digest

GIB = 1 << 30
SEED = 5
NODE = Node(
    id="n0", rack="r", gpus=(Gpu(memory_bytes=80 * GIB),) * 2, cpus=8, memory_bytes=64 * GIB
)
PID = 4711
GPU = Outside(gpus=(GpuOutside(1, 41 * GIB, PID),))


class Cluster:
    """An engine under a policy, which decides whenever it is asked to."""

    def __init__(self, policy: str, *nodes: str) -> None:
        self.policy: Policy = make_policy(POLICIES, policy)
        self.engine, self.at, self.launched = Engine(), 0.0, list[LaunchTask]()
        self.give(QueueChanged(at=0.0, queue=Queue(name="q")))
        for name in nodes:
            self.give(NodeJoined(at=0.0, node=replace(NODE, id=name)))

    def give(self, *events: Event) -> None:
        commands: list[Command] = self.engine.handle(*events)
        while commands:
            check(self.engine.state)
            more: list[Command] = []
            for command in commands:
                if isinstance(command, Decide):
                    plan = decide(self.policy, SEED, command, self.engine.snapshot())
                    event = PlanReady(at=self.at, seen=command.seen, plan=plan)
                    more += self.engine.handle(event)
                elif isinstance(command, LaunchTask):
                    self.launched.append(command)
                elif isinstance(command, LaunchGang):
                    self.launched += command.members
            commands = more
        self.at += 1.0

    def use(self, node: str, outside: Outside) -> None:
        event = NodeReported(at=self.at, node=node, cpus_milli=0, memory_bytes=0, outside=outside)
        assert decode(encode(event)) == event
        self.give(event)

    def submit(self, name: str, *demands: Demand, **more: Any) -> None:
        tasks = tuple(Task(demand=demand, compute_s=10.0) for demand in demands)
        fields = {"name": name, "user": "ada", "queue": "q", **more}
        self.give(JobSubmitted(at=self.at, job=Job(id=name, tasks=tasks, **fields)))

    def places(self) -> list[tuple[str, str, tuple[int, ...]]]:
        return [(each.run.job, each.node, each.gpus) for each in self.launched]

    def reason(self, job: str) -> Reason | None:
        view = self.engine.snapshot()
        row = view.names.job_rows[job]
        reason = explain(view, row, self.at).reason
        assert why(view, self.policy, row, None, self.at).explanation.reason == reason
        return reason


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("demand", "outside", "expected"),
    [
        (
            Demand(gpus=2, cpus_milli=1000),
            GPU,
            NodeBusyOutside(node="n0", resource="gpu_memory", used=41 * GIB, gpu=1, pid=PID),
        ),
        (
            Demand(cpus_milli=1000, memory_bytes=30 * GIB),
            Outside(memory_bytes=40 * GIB),
            NodeBusyOutside(node="n0", resource="memory", used=40 * GIB),
        ),
        (
            Demand(cpus_milli=4000),
            Outside(cpus_milli=5500),
            NodeBusyOutside(node="n0", resource="cpus", used=5500),
        ),
        (
            Demand(gpus=1, gpu_milli=250, gpu_memory_bytes=40 * GIB, cpus_milli=1000),
            Outside(gpus=tuple(GpuOutside(gpu, 41 * GIB, PID + gpu) for gpu in (0, 1))),
            NodeBusyOutside(node="n0", resource="gpu_memory", used=41 * GIB, gpu=0, pid=PID),
        ),
    ],
    ids=["whole", "memory", "cpus", "part"],
)
def test_job_waits_while_others_use_what_it_needs_and_starts_when_that_ends(
    policy: str, demand: Demand, outside: Outside, expected: NodeBusyOutside
) -> None:
    cluster = Cluster(policy, "n0")
    cluster.use("n0", outside)
    cluster.submit("j", demand)
    assert cluster.launched == []
    assert cluster.reason("j") == expected
    cluster.use("n0", NO_OUTSIDE)
    assert len(cluster.launched) == 1
    assert cluster.reason("j") is None


@pytest.mark.parametrize("policy", POLICIES)
def test_other_nodes_and_gpus_are_used_meanwhile(policy: str) -> None:
    cluster = Cluster(policy, "n0", "n1")
    cluster.use("n0", GPU)
    for number in range(4):
        cluster.submit(f"j{number}", Demand(gpus=1, cpus_milli=1000))
    taken = {(node, gpus) for _, node, gpus in cluster.places()}
    assert taken == {("n0", (0,)), ("n1", (0,)), ("n1", (1,))}
    reason = cluster.reason("j3")
    assert isinstance(reason, NodeBusyOutside)
    assert (reason.node, reason.gpu, reason.others) == ("n0", 1, 0)


def test_gang_is_held_up_by_use_of_some_of_its_nodes() -> None:
    cluster = Cluster("fifo", "n0", "n1", "n2")
    for node in ("n0", "n2"):
        cluster.use(node, Outside(memory_bytes=60 * GIB))
    demand = Demand(gpus=1, memory_bytes=10 * GIB)
    cluster.submit("gang", *[demand] * 3, gang=True, distinct_nodes=True)
    expected = NodeBusyOutside(node="n0", resource="memory", used=60 * GIB, others=1)
    assert cluster.reason("gang") == expected
    cluster.use("n0", NO_OUTSIDE)
    assert cluster.reason("gang") == replace(expected, node="n2", others=0)
    cluster.use("n2", Outside(memory_bytes=50 * GIB))
    assert len(cluster.launched) == 3


def test_runs_continue_and_what_they_leave_is_not_free() -> None:
    cluster = Cluster("fifo", "n0")
    whole = Demand(gpus=2, cpus_milli=1000, memory_bytes=40 * GIB)
    cluster.submit("first", whole)
    cluster.submit("second", whole)
    (launch,) = cluster.launched
    cluster.use("n0", Outside(memory_bytes=30 * GIB, gpus=(GpuOutside(0, 9 * GIB, PID),)))
    assert cluster.engine.state.nodes.free.kind(1).tolist() == [(64 - 40 - 30) * GIB]
    assert isinstance(cluster.reason("second"), NodeBusyOutside), (
        "the end of the first is not enough"
    )
    cluster.give(TaskStarted(at=cluster.at, run=launch.run))
    cluster.give(TaskFinished(at=cluster.at, run=launch.run))
    assert cluster.launched == [launch]
    assert isinstance(cluster.reason("second"), NodeBusyOutside)
    cluster.submit("small", Demand(gpus=1, cpus_milli=1000, memory_bytes=34 * GIB))
    cluster.use("n0", Outside(memory_bytes=24 * GIB))
    assert [job for job, *_ in cluster.places()] == ["first", "second"]


def test_hypothetical_end_of_others_is_not_assumed() -> None:
    cluster = Cluster("headgate", "n0")
    cluster.use("n0", GPU)
    cluster.submit("j", Demand(gpus=2))
    view = cluster.engine.snapshot()
    found = why(view, cluster.policy, 0, None, cluster.at)
    assert found.cheapest_now is None
    assert digest(cluster.engine.snapshot()) == digest(view)


@pytest.mark.parametrize(
    "impossible",
    [
        Outside(cpus_milli=-1),
        Outside(cpus_milli=8001),
        Outside(memory_bytes=-1),
        Outside(memory_bytes=65 * GIB),
        Outside(gpus=(GpuOutside(2, GIB, PID),)),
        Outside(gpus=(GpuOutside(0, 81 * GIB, PID),)),
        Outside(gpus=(GpuOutside(0, -1, PID),)),
    ],
)
def test_impossible_report_changes_nothing(impossible: Outside) -> None:
    cluster = Cluster("fifo", "n0")
    cluster.use("n0", GPU)
    before, stale = cluster.engine.snapshot(), cluster.engine.stale
    cluster.use("n0", impossible)
    after = cluster.engine.snapshot()
    assert cluster.engine.stale == stale + 1
    changes = after.changes(before)
    assert changes is not None
    assert (len(changes.nodes), after.gpus.outside_bytes[1]) == (0, 41 * GIB)
    assert after.nodes.reported_at[0] == before.nodes.reported_at[0]


def test_use_is_gone_with_its_node_and_stays_while_it_drains() -> None:
    cluster = Cluster("fifo", "n0")
    used = Outside(2000, 10 * GIB, GPU.gpus)
    cluster.use("n0", used)
    free = cluster.engine.state.nodes.free[0]
    cluster.give(NodeDraining(at=cluster.at, node="n0", by="root"))
    cluster.use("n0", NO_OUTSIDE)
    cluster.use("n0", used)
    cluster.give(NodeResumed(at=cluster.at, node="n0", by="root"))
    assert cluster.engine.state.nodes.free[0] == free == (6000, 54 * GIB)
    assert cluster.engine.state.nodes.free_gpus[0] == 1
    cluster.give(NodeLost(at=cluster.at, node="n0"))
    cluster.give(NodeJoined(at=cluster.at, node=NODE))
    assert cluster.engine.state.nodes.free[0] == (8000, 64 * GIB)
    assert cluster.engine.state.nodes.free_gpus[0] == 2


def test_use_survives_a_stored_snapshot_and_is_none_in_an_older_one() -> None:
    cluster = Cluster("fifo", "n0")
    cluster.use("n0", Outside(2000, 10 * GIB, GPU.gpus))
    snapshot = cluster.engine.snapshot()
    state = thaw(decode_snapshot(encode_snapshot(snapshot)), hypothetical=False)
    check(state)
    assert digest(state.freeze()) == digest(snapshot)
    assert (state.nodes.outside[0], state.gpus.outside_pid[1]) == ((2000, 10 * GIB), PID)


def test_report_that_says_the_same_again_causes_no_round() -> None:
    cluster = Cluster("fifo", "n0")
    cluster.use("n0", GPU)
    cluster.submit("j", Demand(gpus=2))
    event = NodeReported(at=cluster.at, node="n0", cpus_milli=9, memory_bytes=9, outside=GPU)
    assert cluster.engine.handle(event) == []
