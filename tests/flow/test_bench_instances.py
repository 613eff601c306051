"""The instances of the flow core's benchmark: their contents, files and encodings."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from tests.flow.ortools_oracle import Optimum, OrToolsSolver

from flow_bench.instances import LOADS, SIZES, generate
from flow_bench.network import arcs
from flow_bench.problem import Problem, problem_of
from flow_bench.shares import max_min
from flow_bench.structure import Structure, Tasks, load, save
from headgate.base.arrays import Ints
from headgate.base.errors import SpecError
from headgate.flow import Network


def arrays(structure: Structure) -> dict[str, Ints]:
    """Return every array of a structure, by its name in the file."""
    found = {f"{key}": getattr(structure, key) for key in ("rack", "free", "unscheduled_capacity")}
    for prefix, tasks in (("", structure.tasks), ("arrival_", structure.arrivals)):
        for field in dataclasses.fields(Tasks):
            found[f"{prefix}{field.name}"] = getattr(tasks, field.name)
    return found


# -------------------------------------------------------------------------------- instances


@pytest.mark.parametrize("size", ["S", "M"])
@pytest.mark.parametrize("load_name", LOADS)
def test_an_instance_has_the_size_and_load_of_its_name(
    size: str, load_name: str, tmp_path: Path
) -> None:
    made = generate(size, load_name, 5)
    shape, per_gpu = SIZES[size], LOADS[load_name]
    gpus = int(made.free.sum())
    waiting = np.bincount(made.tasks.job, minlength=shape.jobs)
    assert made.nodes == shape.nodes
    assert waiting.min() >= 1
    assert len(made.tasks) == max(
        shape.jobs, shape.jobs * shape.tasks_of_job if per_gpu is None else int(per_gpu * gpus)
    )
    assert int((waiting - made.unscheduled_capacity).sum()) == min(gpus, len(made.tasks))
    for tasks in (made.tasks, made.arrivals):
        task = np.repeat(np.arange(len(tasks)), np.diff(tasks.option_offsets))
        at_node = tasks.option_vertex < made.nodes
        # Waiting costs more than moving, moving more than reading in the rack, that more than on
        # the node.
        assert (tasks.unscheduled_cost > tasks.cluster_cost).all()
        assert (tasks.option_cost < tasks.cluster_cost[task]).all()
        assert (made.free[tasks.option_vertex[at_node]] > 0).all()
        by_rack = {
            (t, v): cost
            for t, v, cost in zip(task, tasks.option_vertex, tasks.option_cost, strict=True)
        }
        for (t, v), cost in by_rack.items():
            if v < made.nodes:
                assert cost < by_rack[t, made.nodes + made.rack[v]]
        blocks = np.bincount(task[~at_node], minlength=len(tasks))
        assert blocks.min() >= 1
        assert blocks.max() <= 6  # three blocks, two racks each
    path = tmp_path / "made.npz"
    save(made, path)
    for key, array in arrays(load(path)).items():
        np.testing.assert_array_equal(array, arrays(made)[key])


def test_an_instance_depends_on_its_seed_alone() -> None:
    one, again, other = (arrays(generate("S", "base", seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(one[key], again[key]) for key in one)
    assert not np.array_equal(one["option_cost"], other["option_cost"])
    assert not np.array_equal(one["option_cost"], one["arrival_option_cost"])


def test_shares_are_max_min_fair() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        demand, gpus = rng.integers(0, 9, rng.integers(1, 7)), int(rng.integers(0, 30))
        share = max_min(demand, gpus)
        assert share.sum() == min(gpus, demand.sum())
        assert (share <= demand).all()
        assert (share >= 0).all()
        hungry = share < demand
        # No job has two more than another one that wants more.
        assert not hungry.any() or share.max() <= share[hungry].min() + 1


# -------------------------------------------------------------------------------- encodings


def random_structure(rng: np.random.Generator) -> Structure:
    """Return a few nodes and tasks with random options and frequent ties of cost."""
    nodes, jobs, count = (int(rng.integers(1, most)) for most in (9, 4, 13))
    rack = rng.integers(0, min(nodes, 4), nodes)
    racks = int(rack.max()) + 1
    options = [np.flatnonzero(rng.random(nodes + racks) < 0.3) for _ in range(count)]
    vertex = np.concatenate(options)
    tasks = Tasks(
        job=rng.integers(0, jobs, count),
        unscheduled_cost=rng.integers(0, 9, count),
        cluster_cost=rng.integers(0, 9, count),
        option_offsets=np.cumsum([0, *map(len, options)]),
        option_vertex=vertex,
        option_cost=rng.integers(0, 9, len(vertex)),
    )
    return Structure(
        rack=rack,
        free=rng.integers(0, 3, nodes),
        unscheduled_capacity=rng.integers(0, 5, jobs),
        tasks=tasks,
        arrivals=tasks,
    )


def aggregated(problem: Problem) -> Optimum:
    net = arcs(*problem.build())
    return OrToolsSolver().solve(
        Network(
            tail=net.tail.astype(np.int64),
            head=net.head.astype(np.int64),
            capacity=net.capacity,
            cost=net.cost,
            supply=net.supply,
        )
    )


def dense(problem: Problem) -> Optimum:
    """Return the optimum with an arc from every task to every node it accepts."""
    structure, tasks, wants = problem.structure, problem.structure.tasks, problem.wants
    count, nodes = len(tasks), structure.nodes
    sink = count + nodes + structure.jobs
    rows = []
    for task in range(count):
        options = slice(tasks.option_offsets[task], tasks.option_offsets[task + 1])
        cost_at = dict(zip(tasks.option_vertex[options], tasks.option_cost[options], strict=True))
        for node in range(nodes):
            if wants.accepts[task] >> problem.classes.of_node[node] & 1:
                costs = [cost_at.get(v) for v in (node, nodes + structure.rack[node])]
                least = min(c for c in (*costs, tasks.cluster_cost[task]) if c is not None)
                rows.append((task, count + node, 1, least))
        rows.append((task, count + nodes + tasks.job[task], 1, tasks.unscheduled_cost[task]))
    rows += [(count + node, sink, structure.free[node], 0) for node in range(nodes)]
    rows += [
        (count + nodes + job, sink, problem.unscheduled_capacity[job], 0)
        for job in range(structure.jobs)
    ]
    tail, head, capacity, cost = np.array(rows, np.int64).T
    supply = np.zeros(sink + 1, np.int64)
    supply[:count], supply[sink] = 1, -count
    return OrToolsSolver().solve(
        Network(tail=tail, head=head, capacity=capacity, cost=cost, supply=supply)
    )


@pytest.mark.parametrize("classes", [1, 2, 4])
def test_the_laminar_form_has_the_optimum_of_the_dense_network(classes: int) -> None:
    for seed in range(200):
        problem = problem_of(random_structure(np.random.default_rng([seed, 7])), classes, seed)
        # As drawn, and with shares that tasks may have no room for.
        tight = dataclasses.replace(
            problem, unscheduled_capacity=problem.structure.unscheduled_capacity
        )
        for one in (problem, tight):
            mine, theirs = aggregated(one), dense(one)
            assert (mine.sent, mine.cost) == (theirs.sent, theirs.cost), f"seed {seed}"


@pytest.mark.parametrize("load_name", LOADS)
@pytest.mark.parametrize("classes", [1, 3, 4, 8])
def test_shares_and_pools_have_room_for_every_task(load_name: str, classes: int) -> None:
    for seed in range(5):
        problem = problem_of(generate("S", load_name, seed), classes, seed)
        assert aggregated(problem).sent == len(problem.structure.tasks)


def test_classes_depend_on_the_seed_and_half_of_the_needs_are_memory() -> None:
    made = generate("M", "base", 1)
    one, again, other = (problem_of(made, 4, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.wants.accepts, again.wants.accepts)
    assert not np.array_equal(one.classes.of_node, other.classes.of_node)
    assert set(one.classes.of_node) == {0, 1, 2, 3}
    assert set(one.wants.accepts) == set(range(1, 16))
    from_a_class_upward = np.isin(one.wants.accepts, [0b1111, 0b1110, 0b1100, 0b1000])
    assert 0.5 < from_a_class_upward.mean() < 0.75


# -------------------------------------------------------------------------------- bad files

BAD_ARRAYS = {
    "is missing": ("option_cost", None),
    "is no list of whole numbers but float64": ("cluster_cost", np.zeros(3)),
    "of shape (2, 2)": ("free", np.zeros((2, 2), int)),
    "beyond those of 64 bits": ("unscheduled_cost", np.array([1 << 63], np.uint64)),
    "there are no nodes": ("rack", np.zeros(0, int)),
    "node 0 is in rack 99, not 0 to 14": ("rack", np.full(15, 99)),
    "has 14 numbers for 15 nodes": ("free", np.ones(14, int)),
    "node 0 has -1 free GPUs": ("free", np.full(15, -1)),
    "job 0 has the negative capacity -3": ("unscheduled_capacity", np.full(6, -3)),
    "task 0 is of job 6: 6 jobs": ("job", np.full(120, 6)),
    "there are no tasks": ("job", np.zeros(0, int)),
    "has 4 numbers for 120 tasks": ("unscheduled_cost", np.zeros(4, int)),
    "are not 121 offsets that never fall": ("option_offsets", np.arange(121, 0, -1)),
    "run from 0 to 120, not from 0 to": ("option_offsets", np.arange(121)),
    "numbers for 1 options": ("option_vertex", np.zeros(1, int)),
    "option 0 leads to 18, but nodes and racks end at 17": ("option_vertex", np.full(957, 18)),
}


@pytest.mark.parametrize("problem", BAD_ARRAYS)
@pytest.mark.parametrize("prefix", ["", "arrival_"])
def test_bad_arrays_are_rejected_with_a_message(problem: str, prefix: str, tmp_path: Path) -> None:
    key, array = BAD_ARRAYS[problem]
    made = arrays(generate("S", "base", 1))
    key = key if key in ("rack", "free", "unscheduled_capacity") else f"{prefix}{key}"
    if array is None:
        del made[key]
    else:
        made[key] = array
    np.savez(tmp_path / "bad.npz", **made)
    with pytest.raises(SpecError) as caught:
        load(tmp_path / "bad.npz")
    assert problem in str(caught.value)
