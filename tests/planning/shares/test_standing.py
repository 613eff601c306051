"""Standings against counting task by task, built from nothing and updated by changes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model import Demand
from headgate.planning.place.cpu_tasks import place_cpu_tasks
from headgate.planning.place.multi_gpu import MultiGpuUnits
from headgate.planning.shares.fair_shares import fair_shares
from headgate.planning.shares.queue_tree import NO_CEILING
from headgate.planning.shares.standing import Standing, standing_after, standing_less, standing_of
from headgate.state import JobState, Scratch, Snapshot, TaskState
from headgate.state.tables import GPU_GONE
from headgate.testing.random_worlds import random_walk

SEED = st.integers(0, 10**6)
UNFINISHED = (TaskState.BLOCKED, TaskState.WAITING, *(
    TaskState.STARTING, TaskState.RUNNING, TaskState.STOPPING, TaskState.MOVING
))  # fmt: skip


def is_multi_gpu(snapshot: Snapshot, task: int) -> bool:
    job, demand = snapshot.job(snapshot.tasks.job[task]), snapshot.demand(task)
    return (job.gang and len(job.tasks) > 1) or demand.gpus > 1 or demand.in_part


def gpus_of(
    snapshot: Snapshot, classes: list[int], some: list[int], *, multi_gpu: bool
) -> list[int]:
    """Return the GPUs that multi-GPU tasks need, or the number of the others, by class."""
    milli = [0] * len(classes)
    for task in some:
        memory_class = sum(size < snapshot.tasks.memory_bytes[task] for size in classes)
        of_kind = snapshot.tasks.gpus[task] and is_multi_gpu(snapshot, task) == multi_gpu
        if of_kind and memory_class < len(classes):
            milli[memory_class] += snapshot.demand(task).gpus_milli
    return [-(-amount // 1000) for amount in milli]


def ceilings(snapshot: Snapshot, others: dict[int, int]) -> list[int]:
    """Return what each queue's ceiling leaves when these jobs hold GPUs."""
    queues = range(len(snapshot.queues.spec))
    limits = [snapshot.queue(q).max_gpus for q in queues]
    held = [sum(n for j, n in others.items() if snapshot.jobs.queue[j] == q) for q in queues]
    return [
        max((NO_CEILING if limit is None else limit) - held[q], 0)
        for q, limit in zip(queues, limits, strict=True)
    ]


def counted(snapshot: Snapshot) -> dict[str, object]:
    """Return where a snapshot stands, task by task and GPU by GPU."""
    tasks, gpus = snapshot.tasks, snapshot.gpus
    active = [j for j, s in enumerate(snapshot.jobs.state.array()) if s == JobState.ACTIVE]
    left = {j: [t for t in snapshot.tasks_of(j) if tasks.state[t] in UNFINISHED] for j in active}
    on_gpus = {j: [t for t in left[j] if tasks.gpus[t]] for j in active}
    jobs = [j for j in active if on_gpus[j]]

    there = [g for g in range(len(gpus.task)) if gpus.task[g] != -2]
    classes = sorted({gpus.memory_bytes[g] for g in there})

    def kind(bytes_needed: int) -> int:
        return sum(size < bytes_needed for size in classes)

    waits = {j: [t for t in on_gpus[j] if tasks.state[t] == TaskState.WAITING] for j in jobs}
    waiting = [t for j in jobs for t in waits[j] if not is_multi_gpu(snapshot, t)]
    cells = [(gpus.node[g], classes.index(gpus.memory_bytes[g]), g) for g in there]
    free = sorted(cell for cell in cells if gpus.task[cell[2]] == -1)
    nodes = range(len(snapshot.nodes.alive))
    holds = {
        job: sum(len(snapshot.held_gpus(t)) for t in snapshot.tasks_of(job))
        for job in range(len(snapshot.jobs.state))
    }
    return {
        "jobs": jobs,
        "held": [holds[j] for j in jobs],
        "unfinished": [
            [
                a + b
                for a, b in zip(
                    *(gpus_of(snapshot, classes, left[j], multi_gpu=w) for w in (False, True)),
                    strict=True,
                )
            ]
            for j in jobs
        ],
        "waiting": [gpus_of(snapshot, classes, waits[j], multi_gpu=False) for j in jobs],
        "multi_gpu": [gpus_of(snapshot, classes, waits[j], multi_gpu=True) for j in jobs],
        "multi_gpu_jobs": [
            n for n, j in enumerate(jobs) if any(is_multi_gpu(snapshot, t) for t in waits[j])
        ],
        "task": waiting,
        "task_job": [jobs.index(tasks.job[t]) for t in waiting],
        "task_type": [kind(tasks.memory_bytes[t]) for t in waiting],
        "class_bytes": classes,
        "gpus": [sum(cell[1] == k for cell in cells) for k in range(len(classes))],
        "free": [[sum(c[:2] == (n, k) for c in free) for k in range(len(classes))] for n in nodes],
        "free_gpu": [cell[2] for cell in free],
        "queue": [snapshot.jobs.queue[j] for j in jobs],
        "ceiling": ceilings(snapshot, {j: n for j, n in holds.items() if j not in jobs}),
    }


def fields(standing: Standing) -> dict[str, object]:
    names = [name for name in counted(standing.snapshot) if name != "ceiling"]
    found = {name: getattr(standing, name).tolist() for name in names}
    return {**found, "ceiling": standing.tree.most.tolist()}


@settings(max_examples=60)
@given(seed=SEED)
def test_a_standing_equals_counting_task_by_task(seed: int) -> None:
    for snapshot in random_walk(seed, 2):
        standing = standing_of(snapshot)
        assert fields(standing) == counted(snapshot)
        needs = [snapshot.tasks.memory_bytes[t] for t in standing.task.tolist()]
        assert standing.memory_bytes_of(np.arange(len(standing.task))).tolist() == needs


@settings(max_examples=80)
@given(seed=SEED)
def test_placements_hold_their_gpus_in_the_standing_that_they_leave(seed: int) -> None:
    placed = 0
    for snapshot in random_walk(seed, 2):
        scratch, standing = Scratch(snapshot), standing_of(snapshot)
        place_cpu_tasks(scratch)
        assert standing_less(standing, scratch) is standing
        multi_gpu = MultiGpuUnits(scratch, standing)
        multi_gpu.place(range(len(standing.jobs)))
        left = standing_less(standing, scratch)
        starts = [start for start in scratch.starts if start.gpus]
        taken = sorted(
            int(snapshot.nodes.first_gpu[s.node]) + gpu for s in starts for gpu in s.gpus
        )
        in_part = {g for g in taken if taken.count(g) > 1}
        assert set(standing.free_gpu.tolist()) - set(left.free_gpu.tolist()) == set(taken) - in_part
        assert left.free.sum() == len(left.free_gpu)
        won = [int(snapshot.tasks.job[s.task]) for s in starts for _ in s.gpus]
        assert (left.held - standing.held).tolist() == [
            won.count(j) for j in standing.jobs.tolist()
        ]
        assert (standing.multi_gpu - left.multi_gpu).sum(axis=1).tolist() == (
            left.held - standing.held
        ).tolist()
        placed += len(starts)
        for name in ("jobs", "waiting", "task", "unfinished"):
            assert getattr(left, name) is getattr(standing, name)


def reached(snapshot: Snapshot, before: Standing | None) -> Standing:
    """Return where a snapshot stands, from an earlier standing unless nodes came or went."""
    changes = None if before is None else snapshot.changes(before.snapshot)
    if before is None or changes is None or len(changes.nodes):
        return standing_of(snapshot)
    return standing_after(before, snapshot, changes)


@settings(max_examples=150)
@given(seed=SEED)
def test_an_update_from_any_earlier_standing_gives_the_same(seed: int) -> None:
    walk = list(random_walk(seed, 8))
    afresh = [standing_of(snapshot) for snapshot in walk]
    latest: Standing | None = None
    for snapshot, expected in zip(walk, afresh, strict=True):
        latest = reached(snapshot, latest)
        alike(latest, expected)
    for (_, before), (snapshot, expected) in combinations(zip(walk, afresh, strict=True), 2):
        alike(reached(snapshot, before), expected)


def alike(standing: Standing, expected: Standing) -> None:
    """Assert that two standings say the same in everything."""
    assert fields(standing) == fields(expected)
    assert standing.task_counts.table.tolist() == expected.task_counts.table.tolist()
    for one, other in ((standing, expected), (expected, standing)):
        share = [
            fair_shares(each.hierarchy, unfinished=one.unfinished, gpus=other.gpus).tolist()
            for each in (one, other)
        ]
        assert share[0] == share[1]


def chosen(selector: Sequence[str], labels: Sequence[str]) -> bool:
    """Return whether a node with some labels has the required labels, and no excluded one."""
    for term in selector:
        name, _, value = term.lstrip("!").partition("=")
        has = any(
            each == f"{name}={value}" if value else each.split("=")[0] == name for each in labels
        )
        if has == term.startswith("!"):
            return False
    return True


def accepted(snapshot: Snapshot, demand: Demand) -> set[int]:
    """Return the GPUs that are up and that a demand accepts, from the names of models and nodes."""
    found = set()
    for gpu in np.flatnonzero(snapshot.gpus.task.array() != GPU_GONE).tolist():
        node = snapshot.node(snapshot.gpus.node[gpu])
        spec = node.gpus[gpu - snapshot.nodes.first_gpu[snapshot.gpus.node[gpu]]]
        words = spec.model.lower().replace("-", " ").split()
        if (
            spec.memory_bytes >= demand.gpu_memory_bytes
            and (not demand.gpu_models or {m.lower() for m in demand.gpu_models} & {*words})
            and (not demand.nodes or node.id in demand.nodes)
            and node.id not in demand.exclude
            and chosen(demand.selector, node.labels)
        ):
            found.add(gpu)
    return found


@settings(max_examples=100)
@given(seed=SEED)
def test_kinds_of_gpus_are_those_that_tasks_accept(seed: int) -> None:
    """Of the unfinished tasks, each accepts all GPUs of a kind or none; shares use this alone.

    The flow does so of classes, for the waiting tasks that are not multi-GPU.
    """
    latest: Standing | None = None
    for snapshot in random_walk(seed, 5, every_kind=True):
        latest, afresh = reached(snapshot, latest), standing_of(snapshot)
        for standing in (latest, afresh):
            kinds, milli = standing.kinds, np.zeros(standing.unfinished.shape, np.int64)
            for index, job in enumerate(standing.jobs.tolist()):
                for task in snapshot.tasks_of(job):
                    demand, type_ = (
                        snapshot.demand(task),
                        kinds.of_demand[snapshot.tasks.demand[task]],
                    )
                    if snapshot.tasks.state[task] not in UNFINISHED or not demand.gpus:
                        continue
                    found = set[int]()
                    if type_ < len(kinds.accepts):
                        has = kinds.accepts[type_][kinds.kind] & (kinds.kind >= 0)
                        found = {*np.flatnonzero(has).tolist()}
                        milli[index, type_] += max(demand.gpus_milli, 1)
                    assert found == accepted(snapshot, demand)
            assert kinds.gpus.sum() == snapshot.gpu_count()
            assert (standing.unfinished >= -(-milli // 1000)).all()
            assert standing.unfinished.sum() <= (-(-milli // 1000)).sum() + standing.unfinished.size
            classes = standing.hardware.gpu_class
            for task, task_type in zip(
                standing.task.tolist(), standing.task_type.tolist(), strict=True
            ):
                found = set()
                if task_type < len(standing.accepts):
                    on = standing.accepts[task_type][classes] & (classes >= 0)
                    found = {*np.flatnonzero(on).tolist()}
                assert found == accepted(snapshot, snapshot.demand(task))
        assert latest.fair_shares().tolist() == afresh.fair_shares().tolist()
        assert latest.needed.tolist() == afresh.needed.tolist()
        assert latest.free.sum(axis=1).tolist() == afresh.free.sum(axis=1).tolist()
