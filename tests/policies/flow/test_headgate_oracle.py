"""The parts of `headgate` against plain loops, and against waits computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.policies.flow.test_solve import ints

from headgate.base.rng import Random, stream
from headgate.model import Bandwidth, Demand, Gpu, Job, Node, Queue, Shard, Task
from headgate.planning.place.room_freed import RoomFreed
from headgate.planning.shares.debts import COUNTED_AT, MISSED_GPU_S, MISSING_GPUS
from headgate.planning.shares.standing import Standing, standing_of
from headgate.policies.flow import TimelyFlow
from headgate.policies.flow.in_flight import InFlight, Work, in_flight
from headgate.policies.flow.node_order import AssignedWaits, assign_waiting, starts_by_rank
from headgate.policies.flow.placed import Placed
from headgate.policies.flow.preempt_by_price import RESTART_S, JobClaims, worth_preempting
from headgate.policies.flow.windows import UNLIMITED
from headgate.protocol import Plan
from headgate.protocol.reasons import WaitsForLocality
from headgate.state import JobState, Scratch, Snapshot, State, TaskState, check

# ------------------------------------------------------------ order, waits and preemptions


def cluster(rng: Random) -> tuple[State, tuple[Shard, ...]]:
    """Nodes of one to three GPUs in two racks, two queues, and some data."""
    state = State()
    state.bandwidth = Bandwidth(disk_bytes_per_s=100, rack_bytes_per_s=50, cluster_bytes_per_s=10)
    state.set_queue(Queue(name="default"))
    state.set_queue(Queue(name="capped", max_gpus=rng.randint(1, 6)))
    for number in range(4):
        gpus = tuple(
            Gpu(memory_bytes=rng.choice((1, 2)), model=rng.choice(("A100", "H100")))
            for _ in range(rng.randint(1, 3))
        )
        state.add_node(Node(id=f"n{number}", rack=f"r{number % 2}", gpus=gpus))
    shards = tuple(Shard(id=f"s{n}", size_bytes=rng.choice((500, 2000, 9000))) for n in range(6))
    for shard in shards:
        for node in rng.sample(range(4), rng.randint(0, 2)):
            state.add_replica(state.shard(shard), node)
    return state, shards


def job_of(state: State, number: int, shards: tuple[Shard, ...], rng: Random) -> int:
    """Add a job that reads some data, and return its row."""
    reads = [(rng.choice(shards).id,) for _ in range(rng.randint(1, 8))]
    models = ((), (), ("H100",), ("A100", "H100"))
    demands = [
        Demand(gpus=1, gpu_memory_bytes=rng.choice((0, 0, 2)), gpu_models=rng.choice(models))
        for _ in reads
    ]
    tasks = tuple(
        Task(reads=each, demand=demand) for each, demand in zip(reads, demands, strict=True)
    )
    name, queue = f"j{number}", rng.choice(("default", "default", "capped"))
    return state.add_job(
        Job(id=name, name=name, user=name, queue=queue, tasks=tasks, shards=shards)
    )


def mid_life(seed: int) -> tuple[Snapshot, Random]:
    """A cluster that some jobs have taken, but for a few GPUs; with debts, and times learnt."""
    rng = stream(seed, "mid life")
    state, shards = cluster(rng)
    rows = [job_of(state, number, shards, rng) for number in range(5)]
    for job in rows:
        state.move_job(job, JobState.ACTIVE)
        for task in state.tasks_of(job):
            state.move_task(task, TaskState.WAITING)
        for task in state.tasks_of(job):
            if rng.random() < 0.6:
                launched(state, task, rng)
        state.now += rng.choice((0.0, 10.0))
        state.version += 1
    for row in range(len(state.runtime_classes.compute_s)):
        if rng.random() < 0.7:
            state.runtime_classes.compute_s[row] = state.runtime_classes.held_s[row] = rng.uniform(
                0.0, 200.0
            )
    for job in rows:
        owed = {MISSED_GPU_S: rng.uniform(-50.0, 200.0), COUNTED_AT: state.now}
        owed[MISSING_GPUS] = rng.randint(-2, 3)
        state.write_memo({name: {state.job(job).id: value} for name, value in owed.items()})
    state.now += rng.choice((0.0, 3.0, 40.0))
    check(state)
    return state.freeze(), rng


def launched(state: State, task: int, rng: Random) -> None:
    """Launch a task on a node that it fits, if any; a few of the runs are being stopped."""
    queue = state.jobs.queue[state.tasks.job[task]]
    limit = state.queue(queue).max_gpus
    if limit is not None and state.gpus_of_queues()[queue] >= limit:
        return
    for node in rng.sample(range(4), 4):
        there = state.node(node).gpus
        for gpu in state.free_gpus_of(node).tolist():
            large = there[gpu].memory_bytes >= state.tasks.memory_bytes[task]
            if large and state.demand(task).accepts_model(there[gpu].model):
                state.launch(task, node, (gpu,), attempt=1)
                if rng.random() < 0.1:
                    state.move_task(task, TaskState.STOPPING)
                return


def routes(standing: Standing, ahead: InFlight, rng: Random) -> Placed:
    """Send some tasks somewhere: to a node no more than it has GPUs of a class."""
    cells = [
        (int(n), int(k)) for (n, k), free in np.ndenumerate(standing.free) for _ in range(int(free))
    ]
    cells += list(zip(ahead.runs.node.tolist(), ahead.runs.gpu_class.tolist(), strict=True))
    rng.shuffle(cells)
    sent = []
    for task in range(len(standing.task)):
        task_type = int(standing.task_type[task])
        fitting = [
            c
            for c in cells
            if task_type < len(standing.accepts) and standing.accepts[task_type, c[1]]
        ]
        if fitting and rng.random() < 0.8:
            cells.remove(fitting[0])
            sent.append((task, *fitting[0], rng.randrange(10**6)))
    task, node, kind, price = (ints(list(c)) for c in zip(*sent, strict=True)) if sent else (
        ints([]) for _ in range(4)
    )  # fmt: skip
    window = np.full(len(task), UNLIMITED)
    return Placed(task=task, node=node, gpu_class=kind, window=window, price=price)


def naive_order(
    standing: Standing, ahead: InFlight, routed: Placed, turn: list[int]
) -> tuple[list[int], list[tuple[int, int, int]]]:
    """The placed tasks, and those that wait, by rank: held GPU and price."""
    free = standing.free.tolist()
    held = sorted(range(len(ahead.wait_s)), key=lambda run: (ahead.wait_s[run], run))
    placed, waits = [], []
    order = sorted(
        range(len(routed.task)),
        key=lambda i: (turn[standing.task_job[routed.task[i]]], routed.task[i]),
    )
    for i in order:
        node, kind, task = int(routed.node[i]), int(routed.gpu_class[i]), int(routed.task[i])
        if free[node][kind]:
            free[node][kind] -= 1
            placed.append(task)
            continue
        run = next(r for r in held if (ahead.runs.node[r], ahead.runs.gpu_class[r]) == (node, kind))
        held.remove(run)
        waits.append((task, run, int(routed.price[i]) + round(ahead.wait_s[run] * 1e6)))
    return sorted(placed), waits


def naive_cuts(
    standing: Standing, ahead: InFlight, waiting: AssignedWaits, claims: JobClaims, slack: float
) -> tuple[list[int], list[float]]:
    """The rule of `worth_preempting`, waiter by waiter."""
    runs, jobs = ahead.runs, range(len(claims.target))
    soon = sorted((float(w), int(k)) for w, k in zip(ahead.wait_s, runs.gpu_class, strict=True))
    keeps = [
        int(standing.held[j])
        - sum((runs.job[r], runs.stopping[r]) == (j, True) for r in range(len(soon)))
        for j in jobs
    ]
    lost_s = ahead.lost_s(standing.snapshot, runs).tolist()
    may_lose = [keeps[j] > (1 + slack) * claims.target[j] for j in jobs]
    owed, served, cut = claims.owed.tolist(), [0] * len(jobs), []
    for task, job, run in zip(waiting.task, waiting.job, waiting.run, strict=True):
        if served[job] >= claims.target[job] - claims.held[job]:
            continue
        served[job] += 1
        fits = [s for s in soon if standing.accepts[standing.task_type[task], s[1]]]
        gained_s = fits[0][0] if fits else float(ahead.wait_s[run])
        if fits:
            soon.remove(fits[0])
        loser, price_s = int(runs.job[run]), lost_s[run] + RESTART_S
        if runs.stopping[run] or loser < 0 or not may_lose[loser]:
            continue
        if keeps[loser] <= max(1, claims.target[loser]):
            continue
        if price_s >= gained_s or price_s >= owed[job]:
            continue
        share = [max(1, int(t)) for t in claims.target]
        mine = (claims.left_s[job] - owed[job] + price_s) / share[job]
        if mine >= (claims.left_s[loser] - owed[loser]) / share[loser]:
            continue
        keeps[loser] -= 1
        owed[job] -= price_s
        cut.append(int(runs.task[run]))
    return cut, [float(before - after) for before, after in zip(claims.owed, owed, strict=True)]


def test_order_waits_and_preemptions_equal_plain_loops() -> None:
    placed_some = waited_some = cut_some = 0
    for seed in range(400):
        snapshot, rng = mid_life(seed)
        standing = standing_of(snapshot)
        ahead = in_flight(standing, Work(snapshot))
        routed = routes(standing, ahead, rng)
        jobs = len(standing.jobs)
        left_s = np.array([rng.choice((5.0, 20.0, 80.0)) for _ in range(jobs)])
        owed = np.array([rng.choice((-10.0, 0.0, 15.0, 300.0, 300.0)) for _ in range(jobs)])
        target = np.array([rng.randint(0, 3) for _ in range(jobs)], np.int64)
        turn = np.array(rng.sample(range(jobs), jobs), np.int64)

        placed, left = starts_by_rank(standing, routed, turn)
        waiting = assign_waiting(standing, ahead, left)
        expected, waits = naive_order(standing, ahead, routed, turn.tolist())
        assert placed.task.tolist() == expected, seed
        found = zip(waiting.task, waiting.run, waiting.price, strict=True)
        assert [tuple(map(int, row)) for row in found] == waits, seed

        held = standing.held + np.bincount(standing.task_job[placed.task], minlength=jobs)
        claims = JobClaims(target=target, held=held, left_s=left_s, owed=owed)
        slack = rng.choice((0.0, 0.25))
        cuts = worth_preempting(
            standing, ahead, waiting, claims, None,
            lambda snapshot=snapshot: RoomFreed(Scratch(snapshot)),
            slack=slack, memory_s=600.0,
        )  # fmt: skip
        cut, paid = naive_cuts(standing, ahead, waiting, claims, slack)
        stops = cuts.stops.stops.task.tolist()
        assert (stops, cuts.paid.tolist()) == (cut, pytest.approx(paid)), seed
        placed_some += len(expected)
        waited_some += len(waits)
        cut_some += len(cut)
    assert min(placed_some, waited_some, cut_some) > 20


# ------------------------------------------------------------------------------------ whole rounds


def naive_wait_s(snapshot: Snapshot, gpu_task: int) -> float:
    """Seconds until a GPU's run is expected to end."""
    tasks = snapshot.tasks
    if tasks.state[gpu_task] == TaskState.STOPPING:
        return 0.0
    reads_s, computes_s = (
        tasks.read_s[gpu_task],
        snapshot.runtime_classes.compute_s[tasks.runtime_class[gpu_task]],
    )
    if math.isnan(computes_s):
        computes_s = reads_s
    return abs(float(tasks.launched_at[gpu_task] + reads_s + computes_s - snapshot.now))


def test_gpus_are_expected_to_be_free_when_their_runs_end() -> None:
    seen = 0
    for seed in range(150):
        snapshot, _ = mid_life(seed)
        ahead = in_flight(standing_of(snapshot), Work(snapshot))
        for task, wait_s in zip(ahead.runs.task.tolist(), ahead.wait_s.tolist(), strict=True):
            assert wait_s == pytest.approx(naive_wait_s(snapshot, task), abs=0.002), seed
            seen += 1
    assert seen > 150


def idle_for(snapshot: Snapshot, plan: Plan) -> list[int]:
    """Jobs with a task that waits though a GPU is free that suits it, and their queue has room."""
    free = [(n, int(g)) for n in snapshot.live_nodes() for g in snapshot.free_gpus_of(n)]
    held, placed = snapshot.gpus_of_queues().tolist(), {p.task for p in plan.starts}
    for placement in plan.starts:
        free.remove((placement.node, placement.gpus[0]))
        held[snapshot.jobs.queue[snapshot.tasks.job[placement.task]]] += 1
    left_over = [snapshot.node(n).gpus[g] for n, g in free]
    jobs = []
    for job in snapshot.waiting_jobs():
        limit = snapshot.queue(snapshot.jobs.queue[job]).max_gpus
        left = [t for t in snapshot.waiting_of(job).tolist() if t not in placed]
        fits = any(
            gpu.memory_bytes >= snapshot.tasks.memory_bytes[t]
            and snapshot.demand(t).accepts_model(gpu.model)
            for t in left
            for gpu in left_over
        )
        if fits and (limit is None or held[snapshot.jobs.queue[job]] < limit):
            jobs.append(job)
    return jobs


def test_a_gpu_stays_free_only_for_those_for_whom_moving_takes_longer_than_waiting() -> None:
    count = 0
    for seed in range(400):
        snapshot, _ = mid_life(seed)
        plan = TimelyFlow().decide(snapshot, Random(1))
        waits: list[int] = []
        for refusal in plan.refusals:
            if isinstance(refusal.reason, WaitsForLocality):
                assert refusal.reason.wait_s <= refusal.reason.move_s, seed
                assert plan.again_at is not None, seed
                waits += refusal.jobs
        assert set(idle_for(snapshot, plan)) == set(waits), seed
        count += len(waits)
    assert count > 5
