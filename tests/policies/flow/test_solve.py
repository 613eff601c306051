"""The optimal flow of a problem, against the paper's dense network and exhaustive search."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.flow.ortools_oracle import OrToolsSolver

from headgate.base.arrays import Ints
from headgate.flow import Network
from headgate.model import Bandwidth
from headgate.planning.units.costs import PRICE_LIMIT, prices_per_byte, shard_prices
from headgate.policies.flow.placed import Placed
from headgate.policies.flow.prices import wait_prices
from headgate.policies.flow.problem import FlowProblem, FullProblem
from headgate.policies.flow.solve import CLASS_PRICE, Flow
from headgate.policies.flow.windows import WINDOWS


def ints(values: list[int]) -> Ints:
    return np.array(values, np.int64)


@st.composite
def reads_of(draw: st.DrawFn, tasks: int, nodes: int, shards: int) -> dict[str, Ints]:
    """The reads of each task, their prices, and the nodes of replicas."""
    reads = [
        draw(st.lists(st.integers(0, shards - 1), max_size=3)) if shards else []
        for _ in range(tasks)
    ]
    replicas = [
        draw(st.lists(st.integers(0, nodes - 1), max_size=3, unique=True)) for _ in range(shards)
    ]
    bandwidth = Bandwidth(
        disk_bytes_per_s=draw(st.sampled_from([2e9, 1e8, 1e7])),  # the last: slower than networks
        rack_bytes_per_s=1.25e8,
        cluster_bytes_per_s=draw(st.sampled_from([2.5e7, 1.25e8])),
    )
    per_byte = prices_per_byte(bandwidth, alpha1=1.5, alpha2=draw(st.sampled_from([1.01, 2.0])))
    sizes = draw(
        st.lists(
            st.sampled_from([0, 1, 1000, 3 * 10**8, 10**9]),
            min_size=shards,
            max_size=shards,
        )
    )
    read = list(itertools.chain(*reads))
    near = [replicas[shard] for shard in read]
    return {
        "read_first": ints([0, *itertools.accumulate(map(len, reads))]),
        "read_bytes": ints([sizes[shard] for shard in read]),
        "per_byte": per_byte,
        "replica_first": ints([0, *itertools.accumulate(map(len, near))]),
        "replica_node": ints(list(itertools.chain(*near))),
    }


@st.composite
def problems(draw: st.DrawFn, *, tasks: int = 8, nodes: int = 6, held: int = 6) -> FlowProblem:
    """GPUs of several sizes and windows; tasks of several shards, with and without replicas.

    Some groups may place none of their tasks, or fewer than wait, some more than are offered; some
    must place one, some all, some none.
    """

    def numbers(low: int, high: int, count: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    node_count, task_count = draw(st.integers(1, nodes)), draw(st.integers(0, tasks))
    job_count, shard_count = draw(st.integers(1, 3)), draw(st.integers(0, 5))
    classes, windows = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 3]))
    kinds = classes * windows
    accepted = st.lists(st.booleans(), min_size=classes, max_size=classes)
    task_job = numbers(0, job_count - 1, task_count)
    data = draw(reads_of(task_count, node_count, shard_count))
    waiting = [task_job.count(j) for j in range(job_count)]
    most = [draw(st.integers(0, n + 1)) for n in waiting]
    least = [draw(st.sampled_from([0, min(1, n), n // 2, n])) for n in most]
    held_count = draw(st.integers(0, held))
    held_prices = st.sampled_from([0, 1, 1000, 3 * 10**6, 2 * 10**7])
    return FlowProblem(
        windows=windows,
        node_rack=ints(numbers(0, 2, node_count)),
        free=ints(numbers(0, 2, node_count * kinds)).reshape(node_count, kinds),
        task=np.arange(task_count),
        task_job=ints(task_job),
        task_type=ints(numbers(0, 2, task_count)),
        accepts=np.array(draw(st.lists(accepted, min_size=3, max_size=3)), bool),
        task_window=ints(numbers(0, windows - 1, task_count)),
        **data,
        job=np.arange(job_count),
        most=ints(most),
        least=ints(least),
        wait_price=ints(draw(st.lists(prices(), min_size=job_count, max_size=job_count))),
        may_wait=True,
        held_gpu=np.arange(held_count),
        held_node=ints(numbers(0, node_count - 1, held_count)),
        held_kind=ints(numbers(0, kinds - 1, held_count)),
        held_price=ints(draw(st.lists(held_prices, min_size=held_count, max_size=held_count))),
    )


def prices() -> st.SearchStrategy[int]:
    return st.sampled_from([3, 2 * 10**6, 4 * 10**6, 10**7, 10**8])


def price_on(problem: FlowProblem, task: int, node: int, kind: int) -> int:
    """The price of a task on a GPU, straight from the paper's section 3."""
    total, price = 0, shard_prices(problem.read_bytes, problem.per_byte)
    for read in range(*problem.read_first[task : task + 2].tolist()):
        first, end = problem.replica_first[read : read + 2]
        holders = problem.replica_node[first:end].tolist()
        if node in holders:
            total += int(price[read, 0])
        elif problem.node_rack[node] in [problem.node_rack[n] for n in holders]:
            total += int(price[read, 1])
        else:
            total += int(price[read, 2])
    size, window = divmod(kind, problem.windows)
    below = int(problem.accepts[problem.task_type[task], :size].sum())
    steps = below + (window < problem.windows - 1)
    return min(total, PRICE_LIMIT) + CLASS_PRICE * steps


def fits(problem: FlowProblem, task: int, kind: int) -> bool:
    """Return whether a task fits a kind of GPU: its class and its window."""
    size, window = divmod(kind, problem.windows)
    accepted = bool(problem.accepts[problem.task_type[task], size])
    return accepted and window >= int(problem.task_window[task])


def rows_of(problem: FlowProblem, placed: Placed) -> list[tuple[int, int, int]]:
    """Return task, node and kind of each placed task."""
    window = placed.window - (WINDOWS - problem.windows)
    kind = placed.gpu_class * problem.windows + window
    return list(zip(placed.task.tolist(), placed.node.tolist(), kind.tolist(), strict=True))


def slots(problem: FlowProblem) -> list[tuple[int, int, int]]:
    """(node, kind, price of the wait) of every GPU, free or held."""
    later = zip(problem.held_node, problem.held_kind, problem.held_price, strict=True)
    free = [
        (node, kind, 0)
        for (node, kind), count in np.ndenumerate(problem.free)
        for _ in range(int(count))
    ]
    return free + [(int(node), int(kind), int(price)) for node, kind, price in later]


def dense(problem: FlowProblem) -> Network:
    """The paper's network, section 4: an arc from every task to every GPU that it fits."""
    jobs, tasks, gpus = len(problem.most), len(problem.task_job), slots(problem)
    source, job, wait = 0, 1, 1 + jobs
    task, gpu = 1 + 2 * jobs, 1 + 2 * jobs + tasks
    sink = gpu + len(gpus)
    arcs = []
    for j in range(jobs):
        may_wait = int(problem.most[j] - problem.least[j])
        arcs.append((source, job + j, int(problem.most[j]), 0))
        arcs.append((job + j, wait + j, may_wait, int(problem.wait_price[j])))
        arcs.append((wait + j, sink, may_wait, int(problem.wait_price[j])))
    for t in range(tasks):
        arcs.append((job + int(problem.task_job[t]), task + t, 1, 0))
        for g, (node, kind, later) in enumerate(gpus):
            if fits(problem, t, kind):
                arcs.append((task + t, gpu + g, 1, later + price_on(problem, t, node, kind)))
    arcs += [(gpu + g, sink, 1, 0) for g in range(len(gpus))]
    tail, head, capacity, cost = np.array(arcs, np.int64).reshape(-1, 4).T
    supply = np.zeros(sink + 1, np.int64)
    supply[source], supply[sink] = problem.most.sum(), -problem.most.sum()
    return Network(tail=tail, head=head, capacity=capacity, cost=cost, supply=supply)


def solved(problem: FlowProblem) -> Flow:
    return Flow(FullProblem(problem=problem, up=problem.slots))


def optimum(problem: FlowProblem) -> tuple[int, int]:
    """What the paper's network sends (places, or lets wait), and for how much."""
    solution = OrToolsSolver().solve(dense(problem))
    return solution.sent, solution.cost


def worth(problem: FlowProblem, placed: Placed) -> tuple[int, int]:
    """How many are placed or wait, and for how much; the soonest GPUs of a node are taken."""
    won = np.bincount(problem.task_job[placed.task], minlength=len(problem.most))
    assert (won <= problem.most).all()
    waits = np.minimum(problem.most - won, problem.most - problem.least)
    cost = 2 * int((waits * problem.wait_price).sum())
    cells = []
    for task, node, kind in rows_of(problem, placed):
        assert fits(problem, task, kind)
        cost += price_on(problem, task, node, kind)
        cells.append((node, kind))
    for cell in dict.fromkeys(cells):
        there = sorted(later for node, kind, later in slots(problem) if (node, kind) == cell)
        assert cells.count(cell) <= len(there)
        cost += sum(there[: cells.count(cell)])
    return len(placed.task) + int(waits.sum()), cost


@settings(max_examples=cases(150))
@given(problems())
def test_the_laminar_optimum_is_the_dense_one(problem: FlowProblem) -> None:
    placed = solved(problem).placed(problem.task)
    assert placed.task.tolist() == sorted(set(placed.task.tolist()))
    assert worth(problem, placed) == optimum(problem)


@settings(max_examples=cases(80))
@given(problems())
def test_prices_certify_the_flow_and_add_up(problem: FlowProblem) -> None:
    found = solved(problem)
    certificate = found.certificate(problem)
    assert certificate.clean, str(certificate)
    placed = found.placed(problem.task)
    rows = rows_of(problem, placed)
    assert placed.price.tolist() == [price_on(problem, *row) for row in rows]


@settings(max_examples=cases(60))
@given(problems(tasks=4, nodes=3, held=2))
def test_tiny_problems_equal_the_best_of_all_assignments(problem: FlowProblem) -> None:
    gpus, tasks = slots(problem)[:6], range(len(problem.task_job))
    if len(slots(problem)) > len(gpus):
        return
    best = (0, 0)
    for choice in itertools.product(range(-1, len(gpus)), repeat=len(tasks)):
        taken = [g for g in choice if g >= 0]
        if len(set(taken)) < len(taken):
            continue
        runs = [(t, *gpus[g]) for t, g in zip(tasks, choice, strict=True) if g >= 0]
        if not all(fits(problem, t, kind) for t, _, kind, _ in runs):
            continue
        jobs = ints([int(problem.task_job[t]) for t, *_ in runs])
        won = np.bincount(jobs, minlength=len(problem.most))
        if (won > problem.most).any():
            continue
        waits = np.minimum(problem.most - won, problem.most - problem.least)
        sent = len(taken) + int(waits.sum())
        cost = 2 * int((waits * problem.wait_price).sum())
        cost += sum(price_on(problem, t, node, kind) + later for t, node, kind, later in runs)
        best = max(best, (sent, -cost))
    sent, cost = worth(problem, solved(problem).placed(problem.task))
    assert (sent, -cost) == best


@settings(max_examples=cases(60))
@given(problems())
def test_flow_is_no_worse_than_first_fit_in_windows_after_a_flow_without(
    problem: FlowProblem,
) -> None:
    unlimited = np.arange(problem.free.shape[1]) % problem.windows == problem.windows - 1
    held = unlimited[problem.held_kind]
    columns = ("held_gpu", "held_node", "held_kind", "held_price")
    without = replace(
        problem,
        free=np.where(unlimited, problem.free, 0),
        **{name: getattr(problem, name)[held] for name in columns},
    )
    placed = solved(without).placed(problem.task)
    rows, room = rows_of(problem, placed), problem.free * ~unlimited
    left = problem.most - np.bincount(problem.task_job[placed.task], minlength=len(problem.most))
    for task in np.setdiff1d(problem.task, placed.task).tolist():
        some = [(n, k) for n, k in np.argwhere(room).tolist() if fits(problem, task, k)]
        if some and left[problem.task_job[task]]:
            room[some[0]] -= 1
            left[problem.task_job[task]] -= 1
            rows.append((task, *some[0]))
    task, node, kind = np.array(rows, np.int64).reshape(-1, 3).T
    size, window = np.divmod(kind, problem.windows)
    window += WINDOWS - problem.windows
    both = Placed(task=task, node=node, gpu_class=size, window=window, price=0 * task)
    after, best = worth(problem, both), optimum(problem)
    assert (best[0], -best[1]) >= (after[0], -after[1])


@settings(max_examples=cases(80))
@given(problems())
def test_the_price_of_a_slot_is_the_cost_of_one_less(problem: FlowProblem) -> None:
    """And the flow is as it was before the question."""
    found = solved(problem)
    sent, cost = optimum(problem)
    for node, kind in np.argwhere(problem.free).tolist():
        size, window = divmod(kind, problem.windows)
        if window < problem.windows - 1:
            continue
        less = problem.free.copy()
        less[node, kind] -= 1
        without_sent, without_cost = optimum(replace(problem, free=less))
        price = without_cost - cost if without_sent == sent else None
        assert found.price_of_slot(node, size) == price
    assert worth(problem, found.placed(problem.task)) == (sent, cost)


@given(problems())
def test_a_job_that_must_place_a_task_does_where_anything_fits(problem: FlowProblem) -> None:
    """Liveness: no price of waiting holds back the last job that has nothing running."""
    placed = solved(problem).placed(problem.task)
    won = np.bincount(problem.task_job[placed.task], minlength=len(problem.most))
    left = problem.slots
    for _, node, kind in rows_of(problem, placed):
        left[node, kind] -= 1
    for job in np.flatnonzero(won < problem.least).tolist():
        waits = np.setdiff1d(np.flatnonzero(problem.task_job == job), placed.task)
        for task in waits.tolist():
            usable = [kind for kind in range(left.shape[1]) if fits(problem, task, kind)]
            assert left[:, usable].sum() == 0


def test_prices_follow_the_papers_worked_example() -> None:
    """Shard a (1 GB) on A, shard c (2 GB) on C; D is in C's rack, A in the other one."""
    bandwidth = Bandwidth(disk_bytes_per_s=1e15, rack_bytes_per_s=1e8, cluster_bytes_per_s=2e7)
    problem = FlowProblem(
        windows=1,
        node_rack=ints([0, 1, 1]),
        free=ints([1, 0, 1])[:, None],
        task=ints([0]),
        task_job=ints([0]),
        task_type=ints([0]),
        accepts=np.ones((1, 1), bool),
        task_window=ints([0]),
        read_first=ints([0, 2]),
        read_bytes=ints([10**9, 2 * 10**9]),
        per_byte=prices_per_byte(bandwidth, alpha1=1, alpha2=1),
        replica_first=ints([0, 1, 2]),
        replica_node=ints([0, 1]),
        job=ints([0]),
        most=ints([1]),
        least=ints([1]),
        wait_price=ints([1]),
        may_wait=True,
        held_gpu=ints([]),
        held_node=ints([]),
        held_kind=ints([]),
        held_price=ints([]),
    )
    at_a, at_d = 100_000_000 + 1, 20_000_000 + 50_000_000  # Sc/Bs, Sc/Br + Sa/Bs
    assert price_on(problem, 0, 0, 0) == at_a
    assert price_on(problem, 0, 2, 0) == at_d
    placed = solved(problem).placed(problem.task)
    assert placed.price.tolist() == [at_d]
    assert placed.node.tolist() == [2]


def test_huge_and_tiny_sizes_stay_exact() -> None:
    bandwidth = Bandwidth(disk_bytes_per_s=1.0, rack_bytes_per_s=1e-3, cluster_bytes_per_s=1e-6)
    per_byte = prices_per_byte(bandwidth, alpha1=2, alpha2=3)
    assert shard_prices(ints([0, 2**62]), per_byte).tolist() == [[0] * 3, [PRICE_LIMIT] * 3]
    waits = wait_prices(np.array([0.0, 1e30]), bandwidth, alpha3=2, least=4)
    assert waits.tolist() == [4, PRICE_LIMIT]
