"""Runs that use more than they hold: what is believed of them, and that they are stopped first."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.policies.test_take_back import rounds

from headgate.app import POLICIES
from headgate.journal import decode_snapshot, encode_snapshot
from headgate.journal.codec import decode, encode
from headgate.machine import apply
from headgate.machine.job_order import activate
from headgate.model import Demand, Elastic, Gpu, Job, Node, Queue, RunId, Task
from headgate.protocol import NodeLost, NodeReported, Outside, OverUse, TaskFinished, TaskStopped
from headgate.state import State, check, thaw

GIB = 1 << 30
STOPS_OTHERS = ("srtf", "least-attained-service", "fsp", "gsp")  # in orders of their own
WHOLE_GPU = Demand(gpus=1, memory_bytes=4 * GIB)
PART = Demand(gpus=1, gpu_milli=500, memory_bytes=4 * GIB, gpu_memory_bytes=4 * GIB)


def cluster(*queues: Queue) -> State:
    """Two nodes of four GPUs and 64 GiB."""
    state = State()
    for queue in queues:
        state.set_queue(queue)
    for name in ("n0", "n1"):
        gpus = (Gpu(memory_bytes=16 * GIB),) * 4
        state.add_node(Node(id=name, rack="r", gpus=gpus, cpus=16, memory_bytes=64 * GIB))
    return state


def submit(state: State, name: str, queue: str, count: int, **more: Any) -> None:
    tasks = (Task(demand=more.pop("demand", WHOLE_GPU)),) * count
    job = Job(id=name, name=name, user=name, queue=queue, tasks=tasks, **more)
    activate(state, state.add_job(job))
    check(state)


def report(state: State, node: str, *over: OverUse, **more: Any) -> bool:
    """Report a node; return whether that counts."""
    event = NodeReported(
        at=state.now + 1, node=node, cpus_milli=1, memory_bytes=1, over=over, **more
    )
    stale = apply(state, event).stale
    check(state)
    return not stale


def over_of(state: State) -> dict[int, tuple[int, int]]:
    """Return what counts of tasks that use more than they hold, by row."""
    pairs = zip(
        state.tasks.over_bytes.array().tolist(),
        state.tasks.over_gpu_bytes.array().tolist(),
        strict=True,
    )
    return {row: pair for row, pair in enumerate(pairs) if any(pair)}


@pytest.fixture
def state() -> State:
    """Tasks 0 and 1 run on whole GPUs of n0 and n1, task 2 on half a GPU of n0, task 3 waits."""
    made = cluster(Queue(name="q"))
    submit(made, "j", "q", 2)
    submit(made, "part", "q", 2, demand=PART)
    made.launch(0, 0, (0,), attempt=1)
    made.launch(1, 1, (0,), attempt=1)
    made.launch(2, 0, (1,), attempt=1)
    check(made)
    return made


def run(job: str, ordinal: int = 0, attempt: int = 1) -> RunId:
    return RunId(job, ordinal, attempt)


def test_report_holds_until_the_next_one_of_its_node(state: State) -> None:
    assert report(state, "n0", OverUse(run("j"), 6 * GIB), OverUse(run("part"), 0, 5 * GIB))
    assert report(state, "n1", OverUse(run("j", 1), 64 * GIB))
    assert over_of(state) == {0: (6 * GIB, 0), 1: (64 * GIB, 0), 2: (0, 5 * GIB)}
    assert report(state, "n0", OverUse(run("part"), 5 * GIB, 0))
    assert over_of(state) == {1: (64 * GIB, 0), 2: (5 * GIB, 0)}
    again = decode_snapshot(encode_snapshot(state.freeze()))
    assert again.tasks.over_bytes.array().tolist() == [0, 64 * GIB, 5 * GIB, 0]
    assert report(state, "n1")
    assert list(over_of(state)) == [2]


@pytest.mark.parametrize(
    "lie",
    [
        OverUse(run("j"), -1),
        OverUse(run("j"), 0, -1),
        OverUse(run("j"), math.nan),  # type: ignore[arg-type]  # a report may lie
        OverUse(run("j"), 65 * GIB),
        OverUse(run("j"), 4 * GIB),
        OverUse(run("j"), 0, 17 * GIB),
        OverUse(run("j"), 0, 5 * GIB),
        OverUse(run("j")),
        OverUse(run("part"), 0, 17 * GIB),
        OverUse(run("part"), 0, 4 * GIB),
        OverUse(run("j", 1), 5 * GIB),
        OverUse(run("j", attempt=2), 5 * GIB),
        OverUse(run("j", 9), 5 * GIB),
        OverUse(run("part", 1, 0), 5 * GIB),
        OverUse(run("none"), 5 * GIB),
        OverUse(run("part"), 6 * GIB),
    ],
)
def test_lie_leaves_the_last_good_report(state: State, lie: OverUse) -> None:
    outside, good = Outside(memory_bytes=GIB), OverUse(run("part"), 5 * GIB)
    assert report(state, "n0", good, outside=outside)
    before = over_of(state), state.nodes.reported_at[0]
    more = Outside(memory_bytes=2 * GIB)
    assert not report(state, "n0", good, lie, outside=more)
    assert (over_of(state), state.nodes.reported_at[0]) == before
    assert state.nodes.outside.at(0, 1) == GIB


def test_it_ends_with_the_run(state: State) -> None:
    everything = OverUse(run("j"), 6 * GIB), OverUse(run("part"), 6 * GIB)
    event = NodeReported(at=1.0, node="n0", cpus_milli=1, memory_bytes=1, over=everything)
    assert decode(encode(event)) == event
    report(state, "n0", *everything)
    report(state, "n1", OverUse(run("j", 1), 6 * GIB))
    apply(state, TaskFinished(at=state.now, run=run("j"), output_bytes=0))
    assert list(over_of(state)) == [1, 2]
    apply(state, TaskStopped(at=state.now, run=run("part")))
    assert list(over_of(state)) == [1]
    apply(state, NodeLost(at=state.now, node="n1"))
    assert over_of(state) == {}
    check(state)


@pytest.mark.parametrize("gang", [False, True])
@pytest.mark.parametrize("policy", [name for name in POLICIES if name not in STOPS_OTHERS])
def test_queue_takes_back_from_runs_that_use_more_first(policy: str, gang: bool) -> None:
    lends = Queue(name="lends", guaranteed=(("gpus", 2000),))
    state = cluster(lends, Queue(name="borrows"))
    for number in range(4):
        submit(state, f"b{number}", "borrows", 2, gang=gang)
    rounds(policy, state, 0.0)
    assert len(state.holding()) == 8
    over = state.names.job_rows["b1"]
    task = state.jobs.first_task[over]
    node = state.node(state.tasks.node[task]).id
    assert report(state, node, OverUse(run("b1"), 6 * GIB))
    if not gang:
        task += 1
        node = state.node(state.tasks.node[task]).id
        others = (
            [OverUse(run("b1"), 6 * GIB)]
            if node == state.node(state.tasks.node[task - 1]).id
            else []
        )
        assert report(state, node, *others, OverUse(run("b1", 1), 6 * GIB))
    submit(state, "l", "lends", 2, gang=True)
    rounds(policy, state, 10.0)
    assert {state.job(state.tasks.job[stopped]).id for stopped in state.stops} == {"b1"}
    assert over_of(state) == {}


def test_runs_within_a_guarantee_stay() -> None:
    lends = Queue(name="lends", guaranteed=(("gpus", 4000),))
    state = cluster(lends, Queue(name="borrows", guaranteed=(("gpus", 4000),)))
    submit(state, "b", "borrows", 4)
    rounds("headgate", state, 0.0)
    for task in range(4):
        node = state.node(state.tasks.node[task]).id
        there = [t for t in range(4) if state.tasks.node[t] == state.tasks.node[task]]
        assert report(state, node, *(OverUse(run("b", t), 6 * GIB) for t in there))
    submit(state, "l", "lends", 8)
    rounds("headgate", state, 10.0)
    assert not state.stops, "it holds no more than its guarantee"


@pytest.mark.parametrize("policy", ["headgate", "fifo", "easy-backfill", "fair", "new-capacity"])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_surplus_that_uses_more_gives_way_first(policy: str, ratio: float) -> None:
    of_4 = Demand(gpus=0, cpus_milli=4000, memory_bytes=4 * GIB)
    state = cluster(Queue(name="q", yield_ratio=ratio))
    submit(state, "grows", "q", 8, elastic=Elastic(minimum=2, work_s=100.0), demand=of_4)
    rounds(policy, state, 0.0)
    assert len(state.holding()) == 8
    submit(state, "one", "q", 1, demand=of_4)
    undisturbed = thaw(state.freeze())
    rounds(policy, undisturbed, 10.0)
    (last,) = undisturbed.stops
    beside = next(
        t for t in range(2, 8) if t != last and state.tasks.node[t] == state.tasks.node[last]
    )
    node = state.node(state.tasks.node[beside]).id
    assert report(state, node, OverUse(run("grows", beside), 6 * GIB))
    rounds(policy, state, 10.0)
    assert [*state.stops] == [beside]
