"""Strict order of arrival, by hand: which jobs start, which are blocked, and their reasons."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.place.submission_check import fits_no_node
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.protocol import Plan, Reason
from headgate.protocol.reasons import (
    GPU_SHARE,
    BehindHead,
    Fragmented,
    GangShort,
    GpuMemory,
    NoFreeGpu,
    NothingFits,
    QueueLimit,
    Shortage,
)
from headgate.state import State, TaskState, check


def node(name: str, *memory: int, cpus: int = 4) -> Node:
    return Node(id=name, rack="r", gpus=tuple(Gpu(memory_bytes=m) for m in memory), cpus=cpus)


def job(
    name: str,
    *gpus: int,
    memory: int = 0,
    cpus: tuple[int, ...] = (),
    gang: bool = False,
    apart: bool = False,
    queue: str = "open",
) -> Job:
    tasks = [Task(demand=Demand.of(gpus=n, gpu_memory_bytes=memory)) for n in gpus]
    tasks += [Task(demand=Demand.of(gpus=0, cpus=n)) for n in cpus]
    return Job(
        id=name,
        name=name,
        user="ada",
        queue=queue,
        tasks=tuple(tasks),
        gang=gang or apart,
        distinct_nodes=apart,
    )


def world(nodes: list[Node], jobs: list[Job], **max_gpus: int) -> State:
    state = State()
    for name in ("open", *max_gpus):
        state.set_queue(Queue(name=name, max_gpus=max_gpus.get(name)))
    for each in nodes:
        state.add_node(each)
    for each in jobs:
        row = state.add_job(each)
        activate(state, row)
    check(state)
    return state


def decide(state: State) -> tuple[list[str], dict[str, Reason]]:
    """Return the placements as `task@node:GPUs`, and the reason of each waiting job."""
    snapshot = state.freeze()
    plan: Plan = FirstInFirstOut().decide(snapshot, Random(0))
    placed = []
    for p in plan.starts:
        name = f"{state.job(state.tasks.job[p.task]).id}/{state.ordinal(p.task)}"
        placed.append(f"{name}@{state.node(p.node).id}:{','.join(map(str, p.gpus))}")
    reasons: dict[str, Reason] = {}
    rows = [state.tasks.job[p.task] for p in plan.starts]
    for row in snapshot.waiting_jobs():
        if rows.count(row) < len(snapshot.waiting_of(row)):
            named = [r.reason for r in plan.refusals if row in r.jobs]
            others = [r.reason for r in plan.refusals if not r.jobs]
            reasons[state.job(row).id] = (named + others)[0]
    return placed, reasons


def test_nodes_are_filled_one_after_the_other_in_the_order_in_which_they_joined() -> None:
    state = world([node("a", 1), node("b", 1, 1)], [job("j", 1), job("k", 1), job("l", 1)])
    assert decide(state) == (["j/0@a:0", "k/0@b:0", "l/0@b:1"], {})


def test_first_job_that_does_not_fit_blocks_later_jobs_that_would() -> None:
    state = world([node("a", 1, 1)], [job("first", 1), job("wide", 2), job("small", 1)])
    placed, reasons = decide(state)
    assert placed == ["first/0@a:0"]
    assert reasons == {
        "wide": NoFreeGpu(free_gpus=1, needed_gpus=2, total_gpus=2),
        "small": BehindHead(head="wide"),
    }


def test_a_task_waits_beside_part_of_a_gpu_that_is_withheld() -> None:
    share = replace(job("first", 1), tasks=(Task(demand=Demand(gpus=1, gpu_milli=200)),))
    state = world([node("n", 8)], [share, replace(share, id="second", name="second")])
    state.launch(0, 0, (0,), attempt=1)
    state.ledger.withhold(0, [0])
    plan = FirstInFirstOut().decide(state.freeze(), Random(0))
    assert not plan.starts
    (refusal, *_) = plan.refusals
    assert refusal.reason == Shortage(resource=GPU_SHARE, needed=200, most_free=0)


def test_job_without_a_gang_starts_the_tasks_that_fit() -> None:
    state = world([node("a", 1, 1)], [job("many", 1, 1, 1), job("next", 1)])
    placed, reasons = decide(state)
    assert placed == ["many/0@a:0", "many/1@a:1"]
    assert reasons["next"] == BehindHead(head="many")


def test_gang_that_does_not_fit_starts_no_task_and_blocks_later_jobs() -> None:
    state = world([node("a", 1, 1)], [job("gang", 1, 1, 1, gang=True), job("next", 1)])
    placed, reasons = decide(state)
    assert placed == []
    short = GangShort(placeable_tasks=2, tasks=3, free_gpus=2, needed_gpus=3)
    assert reasons == {"gang": short, "next": BehindHead(head="gang")}


def test_gang_of_distinct_nodes_starts_on_a_node_each_and_leaves_the_rest_to_later_jobs() -> None:
    nodes = [node("a", 1, 1), node("cpu"), node("b", 1), node("c", 1, 1)]
    state = world(nodes, [job("first", 1), job("train", 1, 1, 1, apart=True), job("next", 1, 1)])
    placed = ["first/0@a:0", "train/0@a:1", "train/1@b:0", "train/2@c:0", "next/0@c:1"]
    short = NoFreeGpu(free_gpus=0, needed_gpus=1, total_gpus=5)
    assert decide(state) == (placed, {"next": short})


def test_gang_of_distinct_nodes_waits_although_one_node_has_room_for_all() -> None:
    state = world([node("a", 1, 1, 1)], [job("train", 1, 1, apart=True), job("next", 1)])
    short = Fragmented(
        free_gpus=3, most_on_one_node=3, needed_gpus=1, tasks=2, placeable_tasks=1,
        distinct_nodes=True,
    )  # fmt: skip
    assert decide(state) == ([], {"train": short, "next": BehindHead(head="train")})


def test_gang_waits_until_its_stopping_members_have_ended() -> None:
    state = world([node("a", 1, 1, 1)], [job("gang", 1, 1, gang=True), job("next", 1)])
    state.launch(0, 0, (0,), attempt=1)
    state.move_task(0, TaskState.RUNNING)
    state.move_task(0, TaskState.STOPPING)
    placed, reasons = decide(state)
    assert placed == []
    short = GangShort(placeable_tasks=1, tasks=2, free_gpus=2, needed_gpus=2, stopping_tasks=1)
    assert str(short) == (
        "GangShort(1 of 2 tasks are being stopped; starts when all its tasks fit together)"
    )
    assert reasons == {"gang": short, "next": BehindHead(head="gang")}


def test_reason_of_a_gang_counts_gpus_that_earlier_jobs_leave_free() -> None:
    state = world([node("a", 1, 1, 1)], [job("first", 1, 1), job("gang", 1, 1, gang=True)])
    short = GangShort(placeable_tasks=1, tasks=2, free_gpus=1, needed_gpus=2)
    assert decide(state)[1] == {"gang": short}


def test_smallest_sufficient_gpu_is_taken() -> None:
    state = world([node("a", 3, 1)], [job("small", 1, memory=1), job("large", 1, memory=3)])
    assert decide(state)[0] == ["small/0@a:1", "large/0@a:0"]


def test_job_that_needs_a_larger_gpu_than_is_free_waits_with_that_reason() -> None:
    state = world([node("a", 1, 3)], [job("first", 1, memory=3), job("large", 1, memory=3)])
    assert decide(state)[1] == {"large": GpuMemory(needed_bytes=3, largest_free_bytes=1)}
    state = world([node("a", 1)], [job("large", 1, memory=3)])
    assert decide(state)[1] == {"large": NothingFits(need="a GPU of 3 B")}


def test_jobs_of_a_queue_at_its_ceiling_do_not_block_other_queues() -> None:
    jobs = [job("p", 1, 1, queue="poor"), job("q", 1, queue="poor"), job("r", 1)]
    placed, reasons = decide(world([node("a", 1, 1, 1)], jobs, poor=1))
    assert placed == ["p/0@a:0", "r/0@a:1"]
    assert reasons == {
        "p": QueueLimit(queue="poor", used_gpus=1, max_gpus=1),
        "q": BehindHead(head="p"),
    }


def test_gang_above_the_ceiling_of_its_queue_takes_no_gpus_from_later_jobs() -> None:
    jobs = [job("gang", 1, 1, 1, gang=True, queue="poor"), job("next", 1, 1)]
    placed, reasons = decide(world([node("a", 1), node("b", 1), node("c", 1)], jobs, poor=2))
    assert placed == ["next/0@a:0", "next/1@b:0"]
    assert reasons == {"gang": QueueLimit(queue="poor", used_gpus=0, max_gpus=2)}


def test_tasks_without_a_gpu_are_blocked_like_all_others() -> None:
    state = world([node("a", 1)], [job("merge", cpus=(1,)), job("wide", 2), job("late", cpus=(1,))])
    placed, reasons = decide(state)
    assert placed == ["merge/0@a:"]
    assert reasons["late"] == BehindHead(head="wide")


def test_task_without_a_free_cpu_waits_with_that_reason() -> None:
    placed, reasons = decide(world([node("a", cpus=2)], [job("merge", cpus=(2, 1))]))
    assert placed == ["merge/0@a:"]
    assert reasons == {"merge": Shortage(resource="cpus", needed=1000, most_free=0)}


def test_each_cpu_task_of_a_gang_goes_to_the_first_node_where_it_fits() -> None:
    state = world([node("a", cpus=1), node("b", cpus=3)], [job("gang", cpus=(3, 1), gang=True)])
    assert decide(state)[0] == ["gang/0@b:", "gang/1@a:"]


GANG = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=5
)
NODES = st.lists(
    st.tuples(st.lists(st.integers(1, 3), max_size=4), st.integers(0, 4)), min_size=1, max_size=4
)


@settings(max_examples=300)
@given(tasks=GANG, nodes=NODES)
def test_gang_that_passes_the_submission_check_starts_on_idle_nodes(
    tasks: list[tuple[int, int, int]], nodes: list[tuple[list[int], int]]
) -> None:
    up = [node(f"n{i}", *memory, cpus=cpus) for i, (memory, cpus) in enumerate(nodes)]
    gang = Job(
        id="g", name="g", user="ada", queue="open", gang=True,
        tasks=tuple(
            Task(demand=Demand.of(gpus=g, gpu_memory_bytes=m * bool(g), cpus=c))
            for g, m, c in tasks
        ),
    )  # fmt: skip
    placed, _ = decide(world(up, [gang]))
    assert len(placed) == (0 if fits_no_node(gang, up) else len(tasks))
