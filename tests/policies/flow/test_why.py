"""`why` is correct: every field against counting by hand, or against the next rounds."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.policies.flow.bench import CLUSTER, DISK, GB, RACK, Bench, submitted, workloads
from tests.policies.flow.test_solve import optimum

from headgate.foresight.whatif import WhatIf
from headgate.foresight.why import CandidateNode, IfFreed, Why, why
from headgate.model import Demand, Task
from headgate.policies.flow import FlowSharing, PreemptiveFlowSharing, UnfairFlow
from headgate.policies.flow.policy import FlowPolicy
from headgate.ports import Policy
from headgate.protocol.order_reasons import WaitsForTasks
from headgate.protocol.reasons import Shortage, WaitsForLocality
from headgate.state import Snapshot, TaskState
from headgate.testing.digest import digest

POLICIES: tuple[Policy, ...] = (FlowSharing(), PreemptiveFlowSharing(), UnfairFlow())


ALPHAS = {"fs": (3.0, 4.0), "fsp": (1.5, 2.0), "fsu": (1.5, 2.0)}  # the defaults


def price_s(policy: Policy, snapshot: Snapshot, task: int, node: int) -> float:
    """Flow paper, section 3, from the replicas themselves."""
    (alpha1, alpha2), total = ALPHAS[policy.name], 0.0
    for shard in snapshot.reads(task):
        size, holders = snapshot.shards.size_bytes[shard], snapshot.replicas(shard)
        if node in holders:
            total += size / DISK
        elif snapshot.node(node).rack in {snapshot.node(n).rack for n in holders}:
            total += alpha1 * size / RACK
        else:
            total += alpha2 * size / CLUSTER
    return total


def fitting(snapshot: Snapshot, task: int, *, free: bool) -> list[int]:
    """Nodes with a large enough GPU (with `free`: one that no run holds)."""
    need = snapshot.tasks.memory_bytes[task]
    found = []
    for node in snapshot.live_nodes():
        first = snapshot.nodes.first_gpu[node]
        for index, gpu in enumerate(snapshot.node(node).gpus):
            held = snapshot.gpus.task[first + index] >= 0
            if gpu.memory_bytes >= need and not (free and held):
                found.append(node)
                break
    return found


def row_of(snapshot: Snapshot, name: str) -> int:
    job, ordinal = name.split("/")
    return snapshot.tasks_of(snapshot.names.job_rows[job])[int(ordinal)]


def drawn(data: st.DataObject, policies: tuple[Policy, ...] = POLICIES) -> tuple[Bench, Snapshot]:
    """A world in which some runs have ended."""
    bench = data.draw(workloads(data.draw(st.sampled_from(policies))))
    for _ in range(data.draw(st.integers(0, 3))):
        if bench.runs:
            bench.finish(*data.draw(st.sampled_from(sorted(bench.runs))))
    return bench, bench.engine.snapshot()


def explain(bench: Bench, snapshot: Snapshot, task: int) -> Why:
    return why(snapshot, bench.policy, snapshot.tasks.job[task], task, bench.at)


def waiting(snapshot: Snapshot) -> list[int]:
    states = snapshot.tasks.state.array().tolist()
    return [t for t, s in enumerate(states) if s == TaskState.WAITING and snapshot.tasks.gpus[t]]


@settings(max_examples=cases(40))
@given(st.data())
def test_the_cheapest_places_are_those_found_by_trying_all(data: st.DataObject) -> None:
    bench, snapshot = drawn(data)
    before = digest(snapshot)
    for task in waiting(snapshot):
        result = explain(bench, snapshot, task)
        for place, free in ((result.cheapest_now, True), (result.cheapest, False)):
            nodes = fitting(snapshot, task, free=free)
            if place is None:
                assert nodes == []
                continue
            best = min(price_s(bench.policy, snapshot, task, n) for n in nodes)
            node = snapshot.names.node_rows[place.node]
            assert node in nodes
            assert place.cost_s == pytest.approx(best, abs=1e-5)
            assert price_s(bench.policy, snapshot, task, node) == pytest.approx(best, abs=1e-5)
            assert sum(place.read_bytes) == sum(
                snapshot.shards.size_bytes[s] for s in snapshot.reads(task)
            )
            assert (place.held_by is None) == (node in fitting(snapshot, task, free=True))
    assert digest(bench.engine.snapshot()) == before, "asking changes nothing"


@settings(max_examples=cases(30))
@given(st.data())
def test_a_freed_gpu_goes_to_the_predicted_task(data: st.DataObject) -> None:
    """Against the engine: the run ends, the policy decides, and the new run is compared."""
    bench, snapshot = drawn(data)
    for task in waiting(snapshot)[:4]:
        result = explain(bench, snapshot, task)
        freed, place = result.if_freed, result.cheapest
        if freed is None or snapshot.tasks.state[row_of(snapshot, freed.ends)] not in (3, 4):
            continue
        assert place is not None
        assert (freed.ends, freed.node) == (place.held_by, place.node)
        job, ordinal = freed.ends.split("/")
        gpu = bench.runs[job, int(ordinal)].gpus
        then = copy.deepcopy(bench)
        runs = set(then.runs)
        then.finish(job, int(ordinal))
        name = f"{snapshot.job(snapshot.tasks.job[task]).id}/{snapshot.ordinal(task)}"
        assert freed.starts_on == then.where().get(name)
        taken = [
            f"{run.run.job}/{run.run.ordinal}"
            for key, run in then.runs.items()
            if key not in runs and (run.node, run.gpus) == (freed.node, gpu)
        ]
        assert freed.taken_by == next(iter(taken), None)


@settings(max_examples=cases(60))
@given(st.data())
def test_the_price_of_a_gpu_is_the_cost_of_one_less(data: st.DataObject) -> None:
    """Against a second solution of the same round with one such GPU less, for every free one."""
    bench, snapshot = drawn(data, (FlowSharing(), FlowSharing(alpha3=2.0), *POLICIES[1:]))
    policy = bench.policy
    assert isinstance(policy, FlowPolicy)
    paper = WhatIf(snapshot, policy, bench.at)
    for job, ordinal in data.draw(st.permutations(sorted(bench.runs)))[:4]:
        paper.end_run(row_of(snapshot, f"{job}/{ordinal}"), bench.at)
    then = paper.state.freeze()
    round_, posed = policy._cold_problem(then)
    standing, problem = round_.standing, posed.problem
    sent, cost = optimum(problem)
    for node, kind in np.argwhere(standing.free).tolist():
        less = standing.free.copy()
        less[node, kind] -= 1
        sent_without, cost_without = optimum(replace(problem, free=less))
        first, end = then.nodes.first_gpu[node], len(standing.hardware.gpu_class)
        gpu = standing.hardware.gpu_class[first:end].tolist().index(kind)
        price_s = policy.slot_price_s(then, node, gpu)
        if price_s is None:
            assert sent_without == sent - 1
        else:
            assert sent_without == sent
            assert price_s == (cost_without - cost) / 1e6


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(1, 8), st.data())
def test_the_share_equals_allocation_one_by_one(
    sizes: list[int], gpus: int, data: st.DataObject
) -> None:
    bench = Bench(data.draw(st.sampled_from(POLICIES[:2])))
    bench.node("n", "a", *[10] * gpus)
    bench.apply(*[submitted(f"j{i}", size) for i, size in enumerate(sizes)])
    snapshot = bench.engine.snapshot()
    share = [0] * len(sizes)
    for _ in range(gpus):
        least = [i for i in range(len(sizes)) if share[i] < sizes[i]]
        if least:
            share[min(least, key=lambda i: (share[i], i))] += 1
    for job, target in enumerate(share):
        result = why(snapshot, bench.policy, job, None, bench.at)
        assert result.share is not None
        assert result.share.share_gpus == target
        assert result.share.held_gpus == snapshot.gpus_of_jobs()[job]
        assert result.share.waiting_tasks == sizes[job] - snapshot.gpus_of_jobs()[job]
        over = [h.held_gpus - (h.share_gpus or 0) for h in result.holders]
        assert over == sorted(over, reverse=True)
        assert f"j{job}" not in [h.job for h in result.holders]


@pytest.fixture
def rivals() -> Bench:
    """Two nodes of one GPU each; `old` runs on both, `near` and `far` wait, data lies on n0."""
    bench = Bench()
    bench.node("n0", "a", 10)
    bench.node("n1", "b", 10)
    bench.data("d", GB, "n0")
    bench.apply(submitted("old", 4))
    bench.apply(submitted("near", [Task(reads=("d",)), Task(reads=("d",))]))
    bench.apply(submitted("far", 1))
    return bench


def test_a_waiting_task_in_full(rivals: Bench) -> None:
    snapshot = rivals.engine.snapshot()
    result = why(snapshot, rivals.policy, 1, None, 0.0)
    assert (result.task, result.task_state, result.run, result.unfinished) == (
        0,
        "waiting",
        None,
        (),
    )
    assert result.share is not None
    assert (result.share.held_gpus, result.share.share_gpus, result.share.may_win_gpus) == (0, 1, 1)
    assert [(h.job, h.held_gpus, h.share_gpus) for h in result.holders] == [("old", 2, 1)]
    assert result.cheapest_now is None
    assert result.cheapest == CandidateNode(
        node="n0", gpu_model="", gpu_memory_bytes=10 * GB, cost_s=1.0, read_s=1.0,
        read_bytes=(GB, 0, 0), held_by="old/0", held_until=None,
    )  # fmt: skip
    # Without it `near` could not run at all in that round: as it holds nothing, it must.
    assert result.if_freed == IfFreed(
        ends="old/0", node="n0", starts_on="n0", taken_by="near/0", price_s=None
    )
    assert result.start is not None
    assert (result.start.node, result.start.unknown_runs) == ("n0", 2)


def test_a_task_that_runs_or_has_run_or_is_blocked() -> None:
    bench = Bench()
    bench.node("n0", "a", 10, 10)
    bench.data("d", GB, "n0")
    tasks = [
        Task(reads=("d",)),
        Task(),
        Task(after=(0, 1)),
        Task(after=(2,), demand=Demand(cpus_milli=1000)),
    ]
    bench.apply(submitted("j", tasks))
    bench.finish("j", 1)
    snapshot = bench.engine.snapshot()
    result = [why(snapshot, bench.policy, 0, task, bench.at) for task in range(4)]
    assert result[0].run is not None
    assert (result[0].run.node, result[0].run.since, result[0].run.read_bytes) == (
        "n0",
        0.0,
        (GB, 0, 0),
    )
    assert (result[0].explanation.reason, result[0].start, result[0].cheapest) == (None, None, None)
    assert (result[1].task_state, result[1].explanation.reason) == ("finished", None)
    assert (result[2].explanation.reason, result[2].unfinished) == (
        WaitsForTasks(unfinished=1),
        (0,),
    )
    assert result[3].explanation.reason == WaitsForTasks(unfinished=1)


def test_a_task_without_a_gpu_is_explained_by_cpu_slots(rivals: Bench) -> None:
    rivals.apply(
        submitted("cpu", [Task(demand=Demand(cpus_milli=4000), reads=("d",)) for _ in range(3)])
    )
    snapshot = rivals.engine.snapshot()
    last = snapshot.tasks_of(3)[2]
    result = why(snapshot, rivals.policy, 3, last, 0.0)
    assert result.explanation.reason == Shortage(resource="cpus", needed=4000, most_free=0)
    assert result.cheapest_now is None
    assert result.cheapest is not None
    assert (result.cheapest.node, result.cheapest.gpu_memory_bytes) == ("n0", None)


def test_what_a_gpu_is_worth_is_what_waiting_for_it_costs() -> None:
    """`a` holds a GPU and might have another: 200 s is its price of waiting, 1 s that of n0."""
    bench = Bench(FlowSharing(alpha3=2.0))
    bench.node("n0", "a", 10)
    bench.node("n1", "b", 10, 10)
    bench.data("d", GB, "n0")
    bench.apply(submitted("old", 3))
    bench.apply(submitted("a", [Task(reads=("d",))] * 3))
    bench.finish("old", next(o for o in range(3) if bench.where()[f"old/{o}"] == "n1"))
    assert bench.running("a") == [0]
    snapshot = bench.engine.snapshot()
    result = why(snapshot, bench.policy, 1, None, bench.at)
    assert result.share is not None
    assert (result.share.held_gpus, result.share.share_gpus) == (1, 1)
    assert result.if_freed is not None
    assert (result.if_freed.starts_on, result.if_freed.taken_by) == ("n0", "a/1")
    assert result.if_freed.price_s == pytest.approx(199.0)


def test_a_free_gpu_that_is_too_far_away_is_explained_with_both_prices() -> None:
    """Across racks 150 s, waiting 110 s: it waits for n0, though n1 is free."""
    bench = Bench(FlowSharing(alpha2=3.0, alpha3=1.1))
    bench.node("n0", "a", 10)
    bench.node("n1", "b", 10)
    bench.data("d", GB, "n0")
    bench.apply(submitted("j", [Task(reads=("d",))] * 2))
    result = why(bench.engine.snapshot(), bench.policy, 0, None, 0.0)
    assert result.explanation.reason == WaitsForLocality(move_s=150.0, wait_s=110.0)
    assert result.share is not None
    assert (result.share.may_win_gpus, result.share.wait_s) == (1, 110.0)
    assert result.cheapest_now is not None
    assert (result.cheapest_now.node, result.cheapest_now.cost_s) == ("n1", 150.0)
    assert (result.cheapest_now.read_s, result.cheapest_now.read_bytes) == (50.0, (0, 0, GB))
    # Were n0 free, the job would hold nothing and have to run one: on n1, if not on n0.
    assert result.if_freed == IfFreed(
        ends="j/0", node="n0", starts_on="n0", taken_by="j/1", price_s=149.0
    )
