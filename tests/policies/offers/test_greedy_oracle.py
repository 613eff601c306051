"""Each greedy policy against a brute-force oracle: loops over jobs, tasks and GPUs.

Only fair shares come from the code under test; they have an oracle of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from tests.cases import cases

from headgate.base.rng import stream
from headgate.model import Bandwidth, Demand, Job, Task
from headgate.planning.shares.fair_shares import fair_shares
from headgate.planning.shares.standing import standing_of
from headgate.policies.offers.greedy import GreedyDelay, GreedyPreemption, GreedySharing
from headgate.protocol import Plan, Start
from headgate.state import JobState, Snapshot, State, TaskState
from headgate.testing.policy_laws import IndependentLedger
from headgate.testing.random_worlds import (
    GIB,
    QUEUES,
    is_narrow,
    random_node,
    random_queues,
    random_shards,
    random_state,
)

ALPHA = (1.0, 1.5, 2.0)
WORLDS = cases(150)


@dataclass(kw_only=True)
class Oracle:
    """Dicts by job row; a GPU is (node, index)."""

    snapshot: Snapshot
    thresholds: tuple[float, float] | None = None
    free: set[tuple[int, int]] = field(default_factory=set)
    held: dict[int, int] = field(default_factory=dict)
    target: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, list[int]] = field(default_factory=dict)
    queue_held: dict[int, int] = field(default_factory=dict)
    skips: dict[int, int] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)

    def __post_init__(self) -> None:
        seen = self.snapshot
        standing = standing_of(seen)
        shares = fair_shares(standing.hierarchy, unfinished=standing.unfinished, gpus=standing.gpus)
        self.target = dict(zip(standing.jobs.tolist(), shares.tolist(), strict=True))
        for node in seen.live_nodes():
            self.free |= {(node, index) for index in seen.free_gpus_of(node).tolist()}
        for job in self.target:
            self.held[job] = int(seen.gpus_of_jobs()[job])
            self.skips[job] = skips(seen)[job]
            rows = seen.tasks_of(job)
            self.waiting[job] = [
                t for t in rows if seen.tasks.state[t] == TaskState.WAITING and seen.tasks.gpus[t]
            ]
        for queue in range(len(seen.queues.spec)):
            self.queue_held[queue] = int(seen.gpus_of_queues()[queue])

    def memory(self, gpu: tuple[int, int]) -> int:
        return int(self.snapshot.gpu_memory_bytes_of(gpu[0])[gpu[1]])

    def fits(self, task: int, gpu: tuple[int, int]) -> bool:
        return bool(self.memory(gpu) >= self.snapshot.tasks.memory_bytes[task])

    def price(self, task: int, node: int) -> int:
        """Microseconds of reading, each shard from its nearest replica."""
        speed = self.snapshot.bandwidth
        per_s = (speed.disk_bytes_per_s, speed.rack_bytes_per_s, speed.cluster_bytes_per_s)
        total = 0
        for read in self.snapshot.planned_reads(task, node):
            nearer = range(read.locality + 1)  # with slow disks, a farther replica is not cheaper
            total += round(read.shard.size_bytes * max(ALPHA[k] / per_s[k] * 1e6 for k in nearer))
        return total

    def under_ceiling(self, job: int) -> bool:
        queue = self.snapshot.jobs.queue[job]
        limit = self.snapshot.queue(queue).max_gpus
        return limit is None or self.queue_held[queue] < limit

    def able(self, job: int) -> bool:
        """Whether a task of a job fits a free GPU, its queue's ceiling allowing."""
        pairs = ((t, g) for t in self.waiting[job] for g in self.free)
        return self.under_ceiling(job) and any(self.fits(t, g) for t, g in pairs)

    def accepts(self, job: int, task: int, price: int) -> bool:
        """Whether a job takes a GPU at this price."""
        gap = self.target[job] - self.held[job]
        if self.thresholds is None or gap <= 0:
            return True
        count = self.skips[job] or gap
        if count > self.thresholds[1]:
            return True
        every = [
            (n, g) for n in self.snapshot.live_nodes()
            for g in range(self.snapshot.nodes.gpu_count[n])
        ]  # fmt: skip
        steps = sorted({self.price(task, g[0]) for g in every if self.fits(task, g)})
        accepted = steps[:2] if count > self.thresholds[0] else steps[:1]
        return price in accepted

    def run(self) -> None:
        declined: list[int] = []
        while True:
            able = [j for j in sorted(self.target) if j not in declined and self.able(j)]
            below = [j for j in able if self.held[j] < self.target[j]]
            if not able:
                return
            job = min(below or able, key=lambda j: self.held[j])
            offers = []
            for task in self.waiting[job]:
                for gpu in self.free:
                    price = self.price(task, gpu[0])
                    if self.fits(task, gpu) and self.accepts(job, task, price):
                        offers.append((price, task, self.memory(gpu), *gpu))
            if not offers:
                gap = self.target[job] - self.held[job]
                self.skips[job] = (self.skips[job] or gap) + 1
                declined.append(job)
                continue
            _, task, _, node, index = min(offers)
            self.starts.append(Start(task, node, (index,)))
            self.free.remove((node, index))
            self.waiting[job].remove(task)
            self.held[job] += 1
            self.queue_held[self.snapshot.jobs.queue[job]] += 1
            self.skips[job] = 0

    def holding(self, *states: TaskState) -> Iterator[tuple[int, int, int, int]]:
        """Yield (task, job, queue, memory of the GPU) for each GPU held by a task in a state."""
        seen = self.snapshot
        for node in seen.live_nodes():
            for index in range(seen.nodes.gpu_count[node]):
                task = seen.gpus.task[seen.nodes.first_gpu[node] + index]
                if task >= 0 and seen.tasks.state[task] in states:
                    job = seen.tasks.job[task]
                    yield task, job, seen.jobs.queue[job], self.memory((node, index))

    def victims(self, slack: float) -> list[int]:
        seen, tasks = self.snapshot, self.snapshot.tasks
        freed = []
        for _, job, queue, memory in self.holding(TaskState.STOPPING):
            freed.append(memory)
            self.queue_held[queue] -= 1
            if job in self.held:
                self.held[job] -= 1
        runs = [
            r for r in self.holding(TaskState.STARTING, TaskState.RUNNING) if r[1] in self.target
        ]
        preemptible = {j for j, n in self.held.items() if n > (1 + slack) * self.target[j]}
        found: list[int] = []
        without_victim: set[int] = set()
        while True:
            beneficiaries = [
                j for j in sorted(self.target)
                if j not in without_victim and self.held[j] < self.target[j] and any(
                    tasks.memory_bytes[t] <= max(m for m in self.sizes()) for t in self.waiting[j])
            ]  # fmt: skip
            if not beneficiaries:
                return found
            job = min(beneficiaries, key=lambda j: self.held[j])
            task = min(self.waiting[job], key=lambda t: tasks.memory_bytes[t])
            large_enough = sorted(m for m in freed if m >= tasks.memory_bytes[task])
            if large_enough and self.under_ceiling(job):
                freed.remove(large_enough[0])
            else:
                queue = seen.jobs.queue[job]
                choices = []
                for run in runs:
                    mine = [r for r in runs if r[1] == run[1]]
                    self.queue_held[run[2]] -= 1
                    open_ = self.under_ceiling(job)
                    self.queue_held[run[2]] += 1
                    above = self.held[run[1]] > self.target[run[1]]
                    large = run[3] >= tasks.memory_bytes[task]
                    if run[1] in preemptible and above and len(mine) > 1 and open_ and large:
                        choices.append(run)
                if not choices:
                    without_victim.add(job)
                    continue
                chosen = max(choices, key=lambda r: (tasks.launched_at[r[0]], r[0]))
                runs.remove(chosen)
                found.append(chosen[0])
                self.held[chosen[1]] -= 1
                self.queue_held[chosen[2]] -= 1
            self.queue_held[seen.jobs.queue[job]] += 1
            self.held[job] += 1
            self.waiting[job].remove(task)

    def sizes(self) -> list[int]:
        seen = self.snapshot
        return [int(m) for n in seen.live_nodes() for m in seen.gpu_memory_bytes_of(n)]


def crowded_state(seed: int) -> State:
    """Return a state in which the earliest jobs hold nearly all GPUs."""
    rng = stream(seed, "crowded")
    state = State()
    speed = Bandwidth(disk_bytes_per_s=100, rack_bytes_per_s=60, cluster_bytes_per_s=30)
    state.bandwidth = speed
    for queue in random_queues(rng):
        state.set_queue(queue)
    nodes = [state.add_node(random_node(rng, n)) for n in range(rng.randint(3, 6))]
    shards = random_shards(rng)
    for shard in shards:
        state.add_replica(state.shard(shard), rng.choice(nodes))
    stopping = 0.1 * rng.randint(0, 2)
    for number in range(rng.randint(2, 6)):
        tasks = tuple(
            Task(
                reads=tuple(s.id for s in rng.sample(shards, min(len(shards), 1))),
                demand=Demand(gpus=1, gpu_memory_bytes=rng.choice((0, GIB, 2 * GIB))),
            )
            for _ in range(rng.randint(2, 9))
        )
        name, queue_name = f"j{number}", rng.choice(QUEUES)
        job = Job(id=name, name=name, user=name, queue=queue_name, tasks=tasks, shards=shards)
        row = state.add_job(job)
        state.move_job(row, JobState.ACTIVE)
        for task in state.tasks_of(row):
            state.now += 1.0
            state.version += 1
            state.move_task(task, TaskState.WAITING)
            paper = IndependentLedger(state.freeze())
            rooms = [n for n in nodes if paper.under_ceiling(task) and paper.fits(task, n)]
            if rooms and rng.random() < 0.8:
                node, memory = rng.choice(rooms), tasks[state.ordinal(task)].demand.gpu_memory_bytes
                sizes = state.gpu_memory_bytes_of(node)
                gpu = next(g for g in sorted(paper.left[node]) if sizes[g] >= memory)
                state.launch(task, node, (gpu,), attempt=1)
                if rng.random() < 0.8:
                    state.move_task(task, TaskState.RUNNING)
                if rng.random() < stopping:
                    state.move_task(task, TaskState.STOPPING)
    ended = 0.1 * rng.randint(0, 3)
    for task in range(len(state.tasks.state)):
        if state.tasks.state[task] == TaskState.RUNNING and rng.random() < ended:
            state.release(task, TaskState.FINISHED)
    return state


def worlds(policy: GreedySharing) -> Iterator[tuple[str, Snapshot, Plan]]:
    """Yield random worlds, some with skip counters in the memo, and the policy's plan."""
    for seed in range(WORLDS):
        rng = stream(seed, "skips")
        state = crowded_state(seed)
        if seed % 2:
            state = random_state(seed, is_narrow)
        for job in range(len(state.jobs.state)):
            if state.jobs.state[job] == JobState.ACTIVE:
                count = rng.choice((None, 0, 1, 2, 3))  # None: not in the memo
                if count is not None:
                    state.write_memo({"skips": {state.job(job).id: count}})
        snapshot = state.freeze()
        yield f"world {seed}", snapshot, policy.decide(snapshot, rng)


def skips(snapshot: Snapshot) -> list[int]:
    """Return the skip counter of each job, 0 where the memo has none."""
    return [0 if math.isnan(n) else int(n) for n in snapshot.memo("skips").tolist()]


def on_gpus(plan: Plan) -> list[Start]:
    return [p for p in plan.starts if p.gpus]


def test_gs_places_tasks_like_the_oracle() -> None:
    for name, snapshot, plan in worlds(GreedySharing()):
        oracle = Oracle(snapshot=snapshot)
        oracle.run()
        assert on_gpus(plan) == oracle.starts, name
        assert (len(plan.stops), plan.memo) == (0, {}), name


@pytest.mark.parametrize("slack", [0.0, 0.25])
def test_gsp_places_and_preempts_like_the_oracle(slack: float) -> None:
    preempting = 0
    for name, snapshot, plan in worlds(GreedyPreemption(slack=slack)):
        oracle = Oracle(snapshot=snapshot)
        oracle.run()
        assert on_gpus(plan) == oracle.starts, name
        assert plan.stops.task.tolist() == oracle.victims(slack), name
        preempting += bool(plan.stops)
    assert preempting > WORLDS // 10, "many worlds must have preemptions"


@pytest.mark.parametrize("thresholds", [(2.0, 3.0), (3.0, 6.0)])
def test_gsd_places_and_declines_like_the_oracle(thresholds: tuple[float, float]) -> None:
    declined = 0
    policy = GreedyDelay(threshold1=thresholds[0], threshold2=thresholds[1])
    for name, snapshot, plan in worlds(policy):
        oracle = Oracle(snapshot=snapshot, thresholds=thresholds)
        oracle.run()
        assert on_gpus(plan) == oracle.starts, name
        before = skips(snapshot)
        changed = {j: n for j, n in oracle.skips.items() if n != before[j]}
        assert plan.memo == {"skips": changed}, name
        declined += any(changed.values())
    assert declined > WORLDS // 16, "many worlds must have declined offers"
