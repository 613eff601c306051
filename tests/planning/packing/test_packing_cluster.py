"""Nodes and GPUs of fractions, vectors and small tasks, by what others in flight miss."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.cases import cases

from headgate.app import POLICIES
from headgate.base.rng import Random, stream
from headgate.machine.job_order import activate
from headgate.model import WHOLE, Bandwidth, Demand, Gpu, Job, Node, Queue, Shard, Task
from headgate.planning.packing.cluster import ClusterPacking, Sizes, mix_of
from headgate.planning.place.choose.compact import Compact
from headgate.planning.place.choose.packed import Packed
from headgate.planning.place.placing import Placing
from headgate.planning.place.timetable import Timetable
from headgate.planning.units.unit import waiting_units
from headgate.ports import make_policy
from headgate.protocol import Start
from headgate.state import JobState, Scratch, State, TaskState

GIB = 1 << 30


def _state(
    gpus: Sequence[int], *, cpus: Sequence[int] | int = 64, memory: Sequence[int] = (80,)
) -> State:
    """Return idle nodes with these many GPUs, of `memory` GiB in turn."""
    state = State()
    state.set_queue(Queue(name="q"))
    for n, count in enumerate(gpus):
        each = cpus if isinstance(cpus, int) else cpus[n]
        gpu = Gpu(memory_bytes=memory[n % len(memory)] * GIB)
        state.add_node(Node(id=f"n{n}", rack="r", gpus=(gpu,) * count, cpus=each))
    return state


def _submit(state: State, *tasks: Task, gang: bool = False, shards: tuple[Shard, ...] = ()) -> int:
    """Add a job that waits; return its row."""
    number = len(state.jobs.state)
    job = Job(
        id=f"j{number}", name="j", user="u", queue="q", tasks=tasks, gang=gang, shards=shards,
        estimated_s=600.0,
    )  # fmt: skip
    row = state.add_job(job)
    activate(state, row)
    return row


def _run(state: State, node: int, gpus: tuple[int, ...], task: Task) -> None:
    row = state.tasks_of(_submit(state, task)).start
    state.launch(row, node, gpus, attempt=1)
    state.move_task(row, TaskState.RUNNING)
    state.tasks.started_at[row] = state.now


def _starts(state: State, policy: str = "headgate", place: str = "headgate") -> dict[int, Start]:
    """Return the starts of a round by the row of their job."""
    made = make_policy(POLICIES, policy, {"place": place})
    steps = made.decide(state.freeze(), stream(1)).steps
    return {state.tasks.job[start.task]: start for start in steps.starts}


def _share(milli: int, cpus: float = 1) -> Task:
    return Task(demand=Demand.of(gpus=1, gpu_milli=milli, cpus=cpus))


# --- choices -----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["headgate", "easy-backfill", "fifo"])
@pytest.mark.parametrize(
    "small", [_share(400), Task(demand=Demand(gpus=1)), Task(demand=Demand(gpus=2))]
)
def test_small_task_leaves_idle_nodes_to_gangs(policy: str, small: Task) -> None:
    state = _state([4, 4, 4])
    _run(state, 2, (0,), Task(demand=Demand(gpus=1)))
    row = _submit(state, small)
    _submit(
        state, *(Task(demand=Demand(gpus=4)),) * 3, gang=True
    )  # runs when all three nodes are idle
    assert _starts(state, policy)[row].node == 2


def test_gang_that_fits_one_node_takes_the_one_where_least_is_left_over() -> None:
    state = _state([8, 8, 8])
    _run(state, 1, (0, 1, 2, 3), Task(demand=Demand(gpus=4)))
    row = _submit(state, *(Task(demand=Demand(gpus=1)),) * 4, gang=True)
    _submit(state, *(Task(demand=Demand(gpus=8)),) * 3, gang=True)
    assert _starts(state)[row].node == 1
    assert _starts(state, place="first-fit")[row].node == 0


def test_share_takes_the_free_part_that_other_shares_need_least() -> None:
    state = _state([2])
    _run(state, 0, (0,), _share(470))  # 530 are left
    _run(state, 0, (1,), _share(650))  # 350
    _run(state, 0, (1,), Task(demand=Demand(gpus=1, gpu_milli=10)))  # 340
    row = _submit(state, _share(320))
    for _ in range(4):
        _submit(state, _share(470))
    assert _starts(state)[row].gpus == (1,)


def test_task_with_few_cpus_goes_where_cpus_are_short() -> None:
    state = _state([2, 2], cpus=[64, 4])
    for _ in range(4):
        _submit(state, _share(500, cpus=8))
    row = _submit(state, _share(500, cpus=1))
    assert _starts(state)[row].node == 1


def test_task_without_gpu_takes_cpus_that_gpu_tasks_do_not_need() -> None:
    state = _state([4, 0], cpus=[32, 16])
    _submit(state, *(Task(demand=Demand(gpus=1, cpus_milli=8000)),) * 8)
    row = _submit(state, Task(demand=Demand(cpus_milli=8000)))
    assert _starts(state)[row].node == 1


def test_share_of_memory_fits_gpus_of_other_sizes() -> None:
    state = _state([1, 1], memory=(24, 80))
    row = _submit(state, Task(demand=Demand(gpus=1, gpu_milli=1, gpu_memory_bytes=40 * GIB)))
    assert _starts(state)[row].node == 1


@pytest.mark.parametrize(("gigabytes", "node"), [(1, 1), (300, 0)])
def test_task_leaves_its_data_where_others_would_wait_longer_than_it_reads(
    gigabytes: int, node: int
) -> None:
    state = _state([4, 4])
    state.bandwidth = Bandwidth(disk_bytes_per_s=1e9, rack_bytes_per_s=1e8, cluster_bytes_per_s=1e7)
    _run(state, 1, (0,), Task(demand=Demand(gpus=1)))
    shard = Shard(id="d", size_bytes=gigabytes * 10**9)
    task = Task(demand=Demand(gpus=1, cpus_milli=1000, gpu_milli=500), reads=("d",))
    row = _submit(state, task, shards=(shard,))
    state.add_replica(state.names.shard_rows["d"], 0)
    _submit(state, *(Task(demand=Demand(gpus=4)),) * 3, gang=True)
    assert _starts(state)[row].node == node


# --- laws --------------------------------------------------------------------------------------


def _random_state(rng: Random) -> State:
    state = _state(
        [rng.randint(0, 4) for _ in range(4)],
        cpus=[rng.randint(2, 16) for _ in range(4)],
        memory=(16, 80),
    )
    for _ in range(12):
        _submit(state, *_random_tasks(rng), gang=rng.random() < 0.4)
    for job in range(6):
        scratch = Scratch(state.freeze())
        table = Timetable(scratch, _never)
        placing = Placing(table, Compact(table))
        for units in waiting_units(state.freeze(), job):
            for unit in units:
                if placing.start(unit, math.inf):
                    break
        for start in scratch.starts:
            state.launch(start.task, start.node, start.gpus, attempt=1)
            state.move_task(start.task, TaskState.RUNNING)
            state.tasks.started_at[start.task] = 0.0
    return state


def _random_tasks(rng: Random) -> tuple[Task, ...]:
    cpus, kind = rng.choice((None, 1, 2.5)), rng.randint(0, 3)
    if kind == 0:
        task = Task(demand=Demand.of(gpus=rng.randint(1, 3), cpus=cpus))
    elif kind == 1:
        task = Task(demand=Demand.of(gpus=1, gpu_milli=rng.choice((100, 333, 500, 650)), cpus=cpus))
    elif kind == 2:
        task = Task(
            demand=Demand.of(
                gpus=1, gpu_milli=1, gpu_memory_bytes=rng.choice((5, 9, 40)) * GIB, cpus=cpus
            )
        )
    else:
        task = Task(demand=Demand.of(gpus=2, gpu_milli=rng.choice((300, 500)), cpus=cpus))
    return (task,) * rng.randint(1, 3)


@pytest.mark.parametrize("seed", range(cases(12)))
def test_unit_starts_wherever_it_starts_by_first_fit(seed: int) -> None:
    snapshot = _random_state(Random(seed)).freeze()
    for job in range(len(snapshot.jobs.state)):
        for units in waiting_units(snapshot, job):
            unit = next(iter(units))
            table = Timetable(Scratch(snapshot), _never)
            by_first_fit = Placing(table, Compact(table)).start(unit, math.inf)
            for run_s in (math.inf, 50.0):
                table = Timetable(Scratch(snapshot), _never)
                starts = Placing(table, Packed(table)).start(unit, run_s)
                assert starts or not by_first_fit


def _never(tasks: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.full(len(tasks), math.inf)


@pytest.mark.parametrize("seed", range(10))
def test_mix_counts_gangs_by_node_and_does_not_depend_on_ended_jobs(seed: int) -> None:
    rng = Random(seed)
    state = _state([4, 4])
    _submit(state, *(Task(demand=Demand(gpus=1, cpus_milli=2000)),) * 6, gang=True)
    before = mix_of(state.freeze(), Sizes(state.freeze()))
    assert [(d.gpus, d.milli, d.cpu_milli, n) for d, n in before] == [
        (4, WHOLE, 8000, 1), (2, WHOLE, 4000, 1),
    ]  # fmt: skip
    row = _submit(state, *_random_tasks(rng))
    for task in state.tasks_of(row):
        state.move_task(task, TaskState.CANCELLED)
    state.move_job(row, JobState.STOPPING)
    assert mix_of(state.freeze(), Sizes(state.freeze())) == before


def test_nothing_is_computed_where_all_tasks_need_one_gpu_and_nothing_else() -> None:
    state = _state([4, 4])
    _submit(state, *(Task(demand=Demand(gpus=1)),) * 6)
    _submit(state, Task(demand=Demand(cpus_milli=1000)))
    assert not ClusterPacking(Scratch(state.freeze())).matters
