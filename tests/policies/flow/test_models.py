"""Tasks that name models of GPUs: in the flow, near their data, within fair shares by kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.policies.flow.bench import CLUSTER, DISK, GB, RACK, Bench, flow_of, submitted
from tests.policies.flow.test_headgate import Stage, of_kind

from headgate.base.units import format_size
from headgate.model import Demand, Task
from headgate.policies.flow import (
    FlowSharing,
    PreemptiveFlowSharing,
    TimelyFlow,
    UnfairFlow,
)
from headgate.policies.flow.policy import FlowPolicy
from headgate.policies.table import OWN
from headgate.ports import Policy, make_policy
from headgate.protocol.reasons import BelowShare, NoFreeGpu, NothingFits, ShareLimit

MAKERS: dict[str, Callable[[], FlowPolicy]] = {
    "fs": FlowSharing,
    "fsp": PreemptiveFlowSharing,
    "fsu": UnfairFlow,
    "headgate": TimelyFlow,
}
EACH = pytest.mark.parametrize("make", MAKERS.values(), ids=list(MAKERS))
OFFERS = ("gs", "gsp", "gsd", "capacity", "fair")
SHARING = pytest.mark.parametrize("name", ["fs", "fsp", "headgate", *OFFERS[:3]])
ANY = pytest.mark.parametrize("name", [*MAKERS, *OFFERS])

H100, A100, V100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-16GB"
NAMES = {H100: "H100", A100: "A100", V100: "V100"}


def on_models(
    models: tuple[str, ...] = (),
    *,
    gpu_memory_bytes: int = 0,
    reads: tuple[str, ...] = (),
    after: tuple[int, ...] = (),
) -> Task:
    """A task on one GPU of some models."""
    demand = Demand.of(gpus=1, gpu_models=models, gpu_memory_bytes=gpu_memory_bytes)
    return Task(reads=reads, after=after, demand=demand)


def made(name: str) -> Policy:
    """A policy by its name."""
    return make_policy(OWN, name, {})


def h100s(count: int, *reads: str, memory_gb: int = 0) -> list[Task]:
    """Tasks on an H100 each."""
    task = on_models(("H100",), reads=reads, gpu_memory_bytes=memory_gb * GB)
    return [task] * count


def two_racks(policy: Policy) -> Bench:
    """In each of two racks: a node with two H100s, and one with two A100s."""
    bench = Bench(policy)
    for rack in "ab":
        bench.node(f"h-{rack}", rack, 80, 80, model=H100)
        bench.node(f"a-{rack}", rack, 80, 80, model=A100)
    return bench


def by_node(bench: Bench, job: str) -> list[str]:
    """The nodes on which tasks of a job run, sorted."""
    return sorted(node for task, node in bench.where().items() if task.startswith(f"{job}/"))


# ---------------------------------------------------------------------------------- placement


@ANY
def test_a_task_starts_on_its_model_near_its_data(name: str) -> None:
    bench = two_racks(made(name))
    bench.data("here", GB, "h-b")
    bench.data("beside", GB, "a-b")
    bench.apply(submitted("one", h100s(1, "here")), submitted("two", h100s(1, "beside")))
    assert bench.where() == {"one/0": "h-b", "two/0": "h-b"}


@ANY
def test_a_list_of_models_is_any_of_them(name: str) -> None:
    bench = two_racks(made(name))
    bench.node("v", "a", 16, model=V100)
    bench.data("there", GB, "v")
    either, reader = on_models(("V100", "A100")), on_models(("V100",), reads=("there",))
    bench.apply(submitted("job", [reader, *[either] * 6]))
    assert by_node(bench, "job") == ["a-a", "a-a", "a-b", "a-b", "v"]


@ANY
def test_a_task_needs_model_and_memory_on_one_gpu(name: str) -> None:
    bench = Bench(made(name))
    bench.node("small", "r", 40, 40, model=A100)
    bench.node("other", "r", 80, 80, model=H100)
    bench.node("large", "r", 80, model=A100)
    wanted = on_models(("A100",), gpu_memory_bytes=60 * GB)
    bench.apply(submitted("job", [wanted] * 3))
    assert by_node(bench, "job") == ["large"]


@ANY
def test_tasks_of_any_model_leave_the_models_that_others_name(name: str) -> None:
    """Of equal GPUs, at an equal price: later tasks for an H100 find one."""
    bench = two_racks(made(name))
    bench.apply(submitted("picky", [*h100s(1), *[on_models(("H100",), after=(0,))] * 3]))
    bench.apply(submitted("any", 4))
    assert by_node(bench, "any") == ["a-a", "a-a", "a-b", "a-b"]


@EACH
def test_a_model_that_no_task_named_before_divides_the_flow(
    make: Callable[[], FlowPolicy],
) -> None:
    bench = two_racks(make())
    bench.apply(submitted("any", 9))
    before = changes(bench)
    bench.finish("any", 0)
    assert changes(bench) == before + 1
    bench.apply(submitted("picky", h100s(9)))
    assert changes(bench) == 0
    bench.finish("any", 1)
    bench.apply(submitted("more", h100s(3)))
    assert changes(bench) > 0


def changes(bench: Bench) -> int:
    """How often the flow has followed a change."""
    assert isinstance(bench.policy, FlowPolicy)
    return flow_of(bench.policy).changes


# ---------------------------------------------------------------------------------- shares


@SHARING
def test_jobs_share_a_model_and_others_get_the_rest(name: str) -> None:
    bench = two_racks(made(name))
    bench.apply(submitted("one", h100s(4)), submitted("two", h100s(4)), submitted("any", 8))
    assert len(by_node(bench, "one")) == len(by_node(bench, "two")) == 2
    assert {node[0] for node in by_node(bench, "one") + by_node(bench, "two")} == {"h"}
    assert by_node(bench, "any") == ["a-a", "a-a", "a-b", "a-b"]


@SHARING
def test_a_job_that_accepts_two_models_does_not_take_the_share_of_one_that_accepts_one(
    name: str,
) -> None:
    bench = Bench(made(name))
    bench.node("h", "r", 80, 80, model=H100)
    bench.node("a", "r", 80, 80, model=A100)
    either = on_models(("A100", "H100"))
    bench.apply(submitted("either", [either] * 4), submitted("picky", h100s(4)))
    assert len(by_node(bench, "picky")) == len(by_node(bench, "either")) == 2
    assert by_node(bench, "picky") == ["h", "h"]


# ---------------------------------------------------------------------------------- reasons


@ANY
def test_without_a_gpu_of_the_model_the_reason_says_so(name: str) -> None:
    bench = two_racks(made(name))
    bench.apply(submitted("job", [on_models(("L4", "L40S"), gpu_memory_bytes=20 * GB)]))
    bench.apply(submitted("large", h100s(1, memory_gb=90)))
    assert bench.reason("job") == NothingFits(need=f"1 L4 or L40S GPU of {format_size(20 * GB)}")
    assert bench.reason("large") == NothingFits(need=f"1 H100 GPU of {format_size(90 * GB)}")


@ANY
def test_if_the_model_is_busy_the_reason_names_it(name: str) -> None:
    bench = two_racks(made(name))
    bench.apply(submitted("first", h100s(4)))
    bench.apply(submitted("job", h100s(2, memory_gb=60)))
    want = NoFreeGpu(free_gpus=0, needed_gpus=1, total_gpus=4, memory_bytes=60 * GB, model="H100")
    assert bench.reason("job") == want
    bench.apply(submitted("any", 5))  # takes all others
    assert bench.reason("job") == want
    reason = bench.reason("any")
    assert isinstance(reason, NoFreeGpu | ShareLimit | BelowShare)
    assert not isinstance(reason, NoFreeGpu) or not reason.model


@ANY
def test_where_all_gpus_are_of_the_model_reasons_are_those_of_any_task(name: str) -> None:
    def reasons(tasks: list[Task]) -> list[object]:
        bench = Bench(made(name))
        bench.node("h", "r", 80, 80, model=H100)
        bench.apply(submitted("one", tasks), submitted("two", tasks))
        bench.finish(*min(bench.runs))
        return [bench.reason("one"), bench.reason("two"), sorted(bench.runs)]

    assert reasons(h100s(4)) == reasons([on_models()] * 4)


@EACH
def test_a_job_with_tasks_for_two_models_waits_for_the_one_that_is_busy(
    make: Callable[[], FlowPolicy],
) -> None:
    bench = two_racks(make())
    both = [on_models(("A100",)), on_models(("H100",))]
    bench.apply(submitted("first", [both[0]] * 4))
    bench.apply(submitted("job", both))
    assert len(by_node(bench, "job")) == 1
    assert bench.reason("job") == NoFreeGpu(free_gpus=0, needed_gpus=1, total_gpus=4, model="A100")


# ---------------------------------------------------------------------------------- preemption


@pytest.mark.parametrize("name", ["fsp", "gsp"])
def test_below_its_share_a_job_preempts_runs_on_its_model_only(name: str) -> None:
    bench = two_racks(made(name))
    bench.apply(submitted("early", 30))
    on = bench.where()
    bench.at = 5.0
    bench.apply(submitted("picky", h100s(2)))
    stopped = bench.stop()
    assert [on[task][0] for task in stopped] == ["h", "h"]
    assert [node[0] for node in by_node(bench, "picky")] == ["h", "h"]
    assert bench.stops == []


@pytest.mark.parametrize("name", ["fsp", "gsp"])
def test_no_run_is_preempted_for_a_model_that_no_one_else_holds(name: str) -> None:
    bench = two_racks(made(name))
    bench.apply(submitted("early", [on_models(("A100",))] * 8))
    bench.apply(submitted("picky", h100s(9)))
    assert len(by_node(bench, "picky")) == 4
    bench.at = 5.0
    bench.apply(submitted("none", [on_models(("L4",))] * 2))
    assert bench.stops == []


@pytest.mark.parametrize("name", ["fsp", "gsp"])
def test_a_job_below_its_share_seeks_each_model_that_it_names(name: str) -> None:
    bench = two_racks(made(name))
    of_a = on_models(("A100",))
    bench.apply(submitted("a", [of_a] * 9), submitted("h", h100s(9)))
    on = bench.where()
    bench.at = 5.0
    bench.apply(submitted("both", [of_a, of_a, *h100s(2)]))  # its share is 2, of the others 3 each
    stopped = bench.stop()
    assert sorted(task[0] + on[task][0] for task in stopped) == ["aa", "hh"]
    assert [node[0] for node in by_node(bench, "both")] == ["a", "h"]


def test_by_price_a_job_preempts_runs_on_its_model_only() -> None:
    stage = Stage()
    stage.node("h", "r", 80, 80, model=H100)
    stage.node("a", "r", 80, 80, model=A100)
    stage.learn("long", 1000.0, "h", on_models())
    stage.apply(of_kind("long", "early", 20))
    on = stage.where()
    stage.at += 10.0
    stage.apply(submitted("late", h100s(5)))
    stage.wait(stage.at + 300.0, lambda: bool(stage.stops))
    (stopped,) = stage.stop()
    assert on[stopped] == "h"
    assert by_node(stage, "late") == ["h"]


# ---------------------------------------------------------------------------------- oracles

NODES = [("h", "a", H100), ("g", "b", H100), ("a", "a", A100), ("v", "b", V100)]
SHARDS = {"s": GB, "t": GB // 3, "u": 3 * GB // 7}
ACCEPTED = [(), (), ("H100",), ("A100",), ("V100",), ("A100", "H100"), ("V100", "h100"), ("L4",)]

Gpu = tuple[str, str, str, int]
"""Node, rack, model, memory in GB."""


@st.composite
def clusters(draw: st.DrawFn, policy: Policy) -> tuple[Bench, list[Gpu], dict[str, list[str]]]:
    """Two to five GPUs of three models in two racks, and shards with replicas on some nodes."""
    bench, gpus = Bench(policy), list[Gpu]()
    for name, rack, model in NODES:
        sizes = draw(st.lists(st.sampled_from([40, 80]), min_size=name == "h", max_size=2))
        sizes = sizes[: 5 - len(gpus)]
        bench.node(name, rack, *sizes, model=model)
        gpus += [(name, rack, model, size) for size in sizes]
    replicas = {}
    for shard, size in SHARDS.items():
        holders = draw(st.lists(st.sampled_from("hgav"), min_size=1, max_size=2, unique=True))
        bench.data(shard, size, *holders)
        replicas[shard] = holders
    return bench, gpus, replicas


TASKS = st.builds(
    Task,
    reads=st.lists(st.sampled_from(sorted(SHARDS)), max_size=2, unique=True).map(tuple),
    demand=st.builds(
        Demand.of,
        gpus=st.just(1),
        gpu_models=st.sampled_from(ACCEPTED),
        gpu_memory_bytes=st.sampled_from([0, 0, 60 * GB]),
    ),
)


def accepts(task: Task, gpu: Gpu) -> bool:
    """Whether a task may have a GPU."""
    _, _, model, size = gpu
    names = [name.upper() for name in task.demand.gpu_models]
    return task.demand.gpu_memory_bytes <= size * GB and (not names or NAMES[model] in names)


def price_s(
    task: Task, gpu: Gpu, replicas: dict[str, list[str]], alpha1: float, alpha2: float
) -> float:
    """The price of reading on a GPU's node: flow paper, section 3."""
    racks = {name: rack for name, rack, _ in NODES}
    total = 0.0
    for shard in task.reads:
        if gpu[0] in replicas[shard]:
            total += SHARDS[shard] / DISK
        elif gpu[1] in {racks[node] for node in replicas[shard]}:
            total += alpha1 * SHARDS[shard] / RACK
        else:
            total += alpha2 * SHARDS[shard] / CLUSTER
    return total


def outcomes(
    jobs: Sequence[Sequence[Task]], gpus: Sequence[Gpu], price: Callable[[Task, Gpu], float]
) -> dict[tuple[int, ...], float]:
    """The least price of all assignments of GPUs to tasks, by the number of tasks of each job."""
    tasks = [(n, task) for n, job in enumerate(jobs) for task in job]
    found: dict[tuple[int, ...], float] = {}

    def assign(left: Sequence[Gpu], open_: set[int], counts: tuple[int, ...], total: float) -> None:
        if not left:
            found[counts] = min(total, found.get(counts, math.inf))
            return
        assign(left[1:], open_, counts, total)
        for n in sorted(open_):
            job, task = tasks[n]
            if accepts(task, left[0]):
                more = tuple(count + (job == j) for j, count in enumerate(counts))
                assign(left[1:], open_ - {n}, more, total + price(task, left[0]))

    assign(gpus, {*range(len(tasks))}, (0,) * len(jobs), 0.0)
    return found


def allocated(attainable: Collection[tuple[int, ...]]) -> tuple[int, ...]:
    """The GPUs of each job if they are given out one by one, each to the job that has fewest.

    Jobs are skipped that cannot use one more without taking one from others.
    """
    won = min(attainable)  # none
    open_ = [*range(len(won))]
    while open_:
        job = min(open_, key=won.__getitem__)
        more = tuple(count + (j == job) for j, count in enumerate(won))
        if more in attainable:
            won = more
        else:
            open_.remove(job)
    return won


def started(bench: Bench, count: int) -> tuple[int, ...]:
    """How many tasks of each job run."""
    return tuple(len(bench.running(f"j{n}")) for n in range(count))


JOBS = st.lists(st.lists(TASKS, min_size=1, max_size=3), min_size=1, max_size=3)


@pytest.mark.parametrize("name", ["fsp", "fsu", "headgate"])
@settings(max_examples=cases(50))
@given(data=st.data())
def test_the_first_round_is_the_best_of_all_assignments(name: str, data: st.DataObject) -> None:
    """Of those that give each job its fair share by kind or, without shares, serve most tasks."""
    bench, gpus, replicas = data.draw(clusters(made(name)))
    jobs = data.draw(JOBS)
    bench.apply(*[submitted(f"j{n}", tasks) for n, tasks in enumerate(jobs)])
    alphas = (1.0, 1.0) if name == "headgate" else (1.5, 2.0)

    def price(task: Task, gpu: Gpu) -> float:
        return price_s(task, gpu, replicas, *alphas)

    all_ = outcomes(jobs, gpus, price)
    counts = started(bench, len(jobs))
    if name == "fsu":
        most = max(map(sum, all_))
        assert sum(counts) == most
        least = min(price for each, price in all_.items() if sum(each) == most)
    else:
        assert counts == allocated(all_)
        least = all_[counts]
    there = {gpu[0]: gpu for gpu in gpus}
    paid = [
        price(jobs[int(job[1:])][ordinal], there[run.node])
        for (job, ordinal), run in bench.runs.items()
    ]
    assert sum(paid) == pytest.approx(least, abs=1e-4)  # each class that is larger costs 1 us


@EACH
@settings(max_examples=cases(25))
@given(data=st.data())
def test_warm_rounds_cost_as_much_as_cold_ones_and_fit(
    make: Callable[[], FlowPolicy], data: st.DataObject
) -> None:
    """`Bench` checks cost and certificate in every round; here, also that models are right."""
    bench, gpus, _ = data.draw(clusters(make()))
    models = {node: model for node, _, model, _ in gpus}
    submits = [submitted(f"j{n}", tasks) for n, tasks in enumerate(data.draw(JOBS))]
    tasks = {event.job.id: event.job.tasks for event in submits}
    for _ in range(data.draw(st.integers(2, 8))):
        if submits and data.draw(st.booleans()):
            bench.apply(submits.pop())
        elif bench.runs:
            bench.finish(*data.draw(st.sampled_from(sorted(bench.runs))))
        bench.stop()
        for (job, ordinal), run in bench.runs.items():
            names = [name.upper() for name in tasks[job][ordinal].demand.gpu_models]
            assert not names or NAMES[models[run.node]] in names
