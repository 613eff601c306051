"""Snapshots never change, and what-if leaves no trace."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.base.rng import Random
from headgate.model import CPUS, WHOLE, Job, Locality, Node, Queue, Shard, Task
from headgate.protocol import Start
from headgate.state import Scratch, Snapshot, State, TaskState
from headgate.state.quotas import gpus_alone
from headgate.testing.digest import digest
from headgate.testing.policy_laws import IndependentLedger
from headgate.testing.random_worlds import random_state

SEED = st.integers(0, 10**6)


def churn(state: State) -> None:
    """Change something in every table."""
    for node in state.live_nodes():
        if state.nodes.free_gpus[node] == state.nodes.gpu_count[node]:
            for shard in range(len(state.shards.replicas)):
                state.add_replica(shard, node)
    for task in range(len(state.tasks.state)):
        if state.tasks.state[task] == TaskState.STARTING:
            state.move_task(task, TaskState.RUNNING)
        elif state.tasks.state[task] == TaskState.RUNNING:
            state.release(task, TaskState.WAITING)
    state.set_queue(state.queue(0))
    state.version += 1
    state.now += 1.0


@given(seed=SEED)
def test_snapshot_never_changes(seed: int) -> None:
    state = random_state(seed)
    snapshot = state.freeze()
    before, copy = digest(snapshot), pickle.loads(pickle.dumps(snapshot))
    churn(state)
    assert digest(snapshot) == before == digest(copy)
    assert digest(state.freeze()) != before


@given(seed=SEED)
def test_jobs_that_wait_are_found_in_order_of_arrival(seed: int) -> None:
    state = random_state(seed)
    waiting = [t for t, s in enumerate(state.tasks.state.array()) if s == TaskState.WAITING]
    on_cpu = [t for t in waiting if not state.tasks.gpus[t]]
    snapshot = state.freeze()
    assert list(snapshot.waiting_jobs()) == sorted({state.tasks.job[t] for t in waiting})
    assert list(snapshot.waiting_cpu_jobs()) == sorted({state.tasks.job[t] for t in on_cpu})
    assert [t for j in snapshot.waiting_jobs() for t in snapshot.waiting_of(j)] == waiting


@given(seed=SEED)
def test_reads_are_planned_from_the_nearest_replicas_only(seed: int) -> None:
    state = random_state(seed)
    for task in range(len(state.tasks.state)):
        for node in state.live_nodes():
            for read, shard in zip(state.planned_reads(task, node), state.reads(task), strict=True):
                holders = {
                    n: Locality.NODE if n == node
                    else Locality.RACK if state.nodes.rack[n] == state.nodes.rack[node]
                    else Locality.CLUSTER
                    for n in state.replicas(shard)
                }  # fmt: skip
                nearest = min(holders.values(), default=Locality.CLUSTER)
                assert read.locality == nearest
                names = {state.node(n).id for n, where in holders.items() if where == nearest}
                assert sorted(read.sources) == sorted(names)


def test_neighbouring_tasks_read_different_replicas_first() -> None:
    state = State()
    state.set_queue(Queue(name="q"))
    for name in "abcd":
        state.add_node(Node(id=name, rack="r", gpus=()))
    for node in (1, 2, 3):
        state.add_replica(state.shard(Shard(id="s", size_bytes=9)), node)
    tasks = (Task(reads=("s",)),) * 4
    state.add_job(Job(id="j", name="j", user="ada", queue="q", tasks=tasks))
    sources = ["".join(state.planned_reads(task, 0)[0].sources) for task in range(4)]
    assert sources == ["bcd", "cdb", "dbc", "bcd"]


# ------------------------------------------------------------------------------------- scratch


GPU_BOOKS = ("task", "free_milli", "free_bytes")


def look(scratch: Scratch, snapshot: Snapshot) -> object:
    """Return all that a scratch can be asked."""
    nodes = snapshot.live_nodes()
    return (
        list(scratch.starts),
        scratch.ledger.nodes.free.array().tolist(),
        [getattr(scratch.ledger.nodes, n).array().tolist() for n in ("total", "free_gpus")],
        [getattr(scratch.ledger.gpus, n).array().tolist() for n in GPU_BOOKS],
        [scratch.ledger.free_gpus(n).tolist() for n in nodes],
        [scratch.quotas.used(q) for q in range(len(snapshot.queues.spec))],
    )


def place_some(scratch: Scratch, snapshot: Snapshot, rng: Random) -> None:
    placed = {p.task for p in scratch.starts}
    tasks = [t for j in snapshot.waiting_jobs() for t in snapshot.waiting_of(j).tolist()]
    for task in tasks:
        if task not in placed and rng.random() < 0.5:
            scratch.place(task, rng.choice(snapshot.live_nodes()))


class _Stop(Exception):
    pass


@settings(max_examples=150)
@given(seed=SEED, keep=st.booleans(), inner=st.booleans(), raises=st.booleans())
def test_a_trial_leaves_no_trace_unless_it_is_kept(
    seed: int, keep: bool, inner: bool, raises: bool
) -> None:
    state, rng = random_state(seed), Random(seed)
    snapshot = state.freeze()
    if not snapshot.live_nodes():
        return
    untouched, scratch = digest(snapshot), Scratch(snapshot)
    place_some(scratch, snapshot, rng)
    before = look(scratch, snapshot)
    within = before
    try:
        with scratch.trial() as outer:
            place_some(scratch, snapshot, rng)
            middle = look(scratch, snapshot)
            with scratch.trial() as nested:
                place_some(scratch, snapshot, rng)
                if inner:
                    nested.keep()
                within = look(scratch, snapshot)
            assert look(scratch, snapshot) == (within if inner else middle)
            within = look(scratch, snapshot)
            if raises:
                raise _Stop
            if keep:
                outer.keep()
    except _Stop:
        keep = False
    assert look(scratch, snapshot) == (within if keep else before)
    assert (digest(snapshot), digest(state)) == (untouched, digest_of(state))


def digest_of(state: State) -> str:
    return digest(state)


@settings(max_examples=150)
@given(seed=SEED)
def test_scratch_places_exactly_what_fits(seed: int) -> None:
    state, rng = random_state(seed), Random(seed)
    snapshot = state.freeze()
    scratch, independent = Scratch(snapshot), IndependentLedger(snapshot)
    tasks = [t for j in snapshot.waiting_jobs() for t in snapshot.waiting_of(j).tolist()]
    rng.shuffle(tasks)
    for task in tasks if snapshot.live_nodes() else []:
        job = snapshot.tasks.job[task]
        queue = snapshot.jobs.queue[job]
        limit = snapshot.queue(queue).max_gpus
        milli = WHOLE * snapshot.tasks.gpus[task]
        full = (
            limit is not None and milli > 0 and scratch.quotas.used(queue) + milli > WHOLE * limit
        )
        assert (
            scratch.may_hold(job, gpus_alone(milli))
            == (not full)
            == independent.under_ceiling(task)
        )
        node = rng.choice(snapshot.live_nodes())
        fits = independent.fits(task, node) and not full
        assert scratch.place(task, node) == fits
        if fits:
            assert independent.take(scratch.starts[-1]) is None


def test_smallest_sufficient_gpus_are_taken_first() -> None:
    for seed in range(60):
        snapshot = random_state(seed).freeze()
        for node in snapshot.live_nodes():
            memory = snapshot.gpu_memory_bytes_of(node).tolist()
            free = Scratch(snapshot).ledger.free_gpus(node).tolist()
            assert free == sorted(free, key=lambda g: (memory[g], g))


def test_a_placement_without_gpus_takes_cpu_slots_alone() -> None:
    for seed in range(60):
        snapshot = random_state(seed).freeze()
        scratch = Scratch(snapshot)
        for job in snapshot.waiting_cpu_jobs():
            for task in snapshot.waiting_of(job).tolist():
                for node in snapshot.live_nodes():
                    if snapshot.tasks.gpus[task]:
                        continue
                    before = scratch.ledger.nodes.free.at(node, CPUS)
                    if scratch.place(task, node):
                        assert scratch.starts[-1] == Start(task, node, ())
                        left = scratch.ledger.nodes.free.at(node, CPUS)
                        assert left == before - snapshot.task(task).demand.cpus_milli
                        break
        with pytest.raises(AttributeError):
            snapshot.version = 1  # type: ignore[misc]
