"""The work in flight, updated from snapshot to snapshot, against counting it task by task."""

from __future__ import annotations

from collections import Counter

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headgate.planning.shares.debts import remaining_gpu_s
from headgate.planning.shares.standing import standing_of
from headgate.planning.shares.work import IdleTasks, RunsByGpu
from headgate.state import JobState, Snapshot, TaskState
from headgate.testing.random_worlds import random_walk

SEED = st.integers(0, 10**6)
COLUMNS = ("job", "runtime_class", "launched_at", "read_s", "progress_s")
STOPPING = (TaskState.STOPPING, TaskState.MOVING)
IDLE = (TaskState.BLOCKED, TaskState.WAITING, *STOPPING)


def held(snapshot: Snapshot) -> list[str]:
    """Return the run of each GPU, by row."""
    found = []
    for task in snapshot.gpus.task.array().tolist():
        values = [getattr(snapshot.tasks, name)[task] for name in COLUMNS if task >= 0]
        stopping = task >= 0 and snapshot.tasks.state[task] in STOPPING
        found.append(repr((task, stopping, *map(float, values))))
    return found


def columns_of(holders: RunsByGpu) -> list[str]:
    return [
        repr((
            task, bool(holders.stopping[gpu]) and task >= 0,
            *(float(getattr(holders, name)[gpu]) for name in COLUMNS if task >= 0),
        ))
        for gpu, task in enumerate(holders.task.tolist())
    ]  # fmt: skip


def left(snapshot: Snapshot) -> tuple[Counter[tuple[int, int]], list[int]]:
    """Return the GPUs of idle tasks of jobs in flight, by job and class, and tasks with work."""
    tasks, fresh, begun = snapshot.tasks, Counter[tuple[int, int]](), list[int]()
    for task, state in enumerate(tasks.state.array().tolist()):
        job = tasks.job[task]
        if state in IDLE and tasks.gpus[task] and snapshot.jobs.state[job] == JobState.ACTIVE:
            if tasks.progress_s[task]:
                begun.append(task)
            else:
                fresh[job, tasks.runtime_class[task]] += tasks.gpus[task]
    return fresh, begun


def counted(snapshot: Snapshot, backlog: IdleTasks) -> tuple[Counter[tuple[int, int]], list[int]]:
    def flies(job: int) -> bool:
        return bool(snapshot.jobs.state[job] == JobState.ACTIVE)

    cells = zip(backlog.job.tolist(), backlog.runtime_class.tolist(), strict=True)
    counts = dict(zip(cells, backlog.gpus.astype(int).tolist(), strict=True))
    fresh = Counter({cell: count for cell, count in counts.items() if flies(cell[0])})
    return fresh, [t for t in backlog.begun.tolist() if flies(snapshot.tasks.job[t])]


@settings(max_examples=100)
@given(seed=SEED)
def test_updated_work_equals_counting_task_by_task(seed: int) -> None:
    updated: tuple[RunsByGpu, IdleTasks] | None = None
    before: Snapshot | None = None
    for snapshot in random_walk(seed, 8):
        standing, rebuilt = standing_of(snapshot), (RunsByGpu(snapshot), IdleTasks(snapshot))
        changes = None if before is None else snapshot.changes(before)
        if updated is None or changes is None or len(changes.nodes):
            updated = RunsByGpu(snapshot), IdleTasks(snapshot)
        else:
            for part in updated:
                part.update(snapshot, changes)
        before = snapshot
        for holders, backlog in (updated, rebuilt):
            assert columns_of(holders) == held(snapshot)
            assert counted(snapshot, backlog) == left(snapshot)
        left_s = [remaining_gpu_s(standing, *work).tolist() for work in (updated, rebuilt)]
        assert left_s[0] == left_s[1], "to the last bit: jobs are ordered by it"


def test_random_walks_contain_checkpoints() -> None:
    walks = (snapshot for seed in range(30) for snapshot in random_walk(seed, 8))
    assert sum(len(left(snapshot)[1]) for snapshot in walks) > 10


@settings(max_examples=20)
@given(seed=SEED)
def test_work_can_be_updated_over_several_snapshots(seed: int) -> None:
    first, *_, last = random_walk(seed, 4)
    holders, backlog = RunsByGpu(first), IdleTasks(first)
    changes = last.changes(first)
    assert changes is not None
    assume(not len(changes.nodes))
    for part in (holders, backlog):
        part.update(last, changes)
    assert columns_of(holders) == held(last)
    assert counted(last, backlog) == left(last)
