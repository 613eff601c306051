"""Whole simulations under capacity and fair against an event loop without engine or plans."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from headgate.engine import Engine, drive
from headgate.model import Gpu, Job, Node, Queue, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.policies.offers.yarn import Capacity, Fair
from headgate.protocol import JobSubmitted, NodeJoined, QueueChanged
from headgate.sim import run as sim
from headgate.sim.report import Launches
from headgate.sim.world import SimulatedWorld
from headgate.spec import load_scenario

ROOT = Path(__file__).parents[3]
BOTH = pytest.mark.parametrize("policy", [Capacity(), Fair()], ids=lambda p: p.name)
QUEUES = ((1.0, None), (2.0, 3), (0.5, None))  # weight, max_gpus


@dataclass(frozen=True)
class Work:
    """A job of the oracle: the seconds that each of its tasks computes on one GPU."""

    submit_s: float
    tasks: tuple[float, ...]
    user: str = "ada"
    queue: int = 0
    priority: int = 0


Starts = dict[tuple[int, int], tuple[float, int]]  # (job, task): (s, node)


class Oracle:
    """Allocates free GPUs one at a time; tasks read no data, so the first free GPU is the best."""

    def __init__(self, nodes: list[int], jobs: list[Work], *, evenly: bool) -> None:
        self.free = [node for node, gpus in enumerate(nodes) for _ in range(gpus)]
        self.jobs, self.evenly = jobs, evenly
        self.left = [list(range(len(job.tasks))) for job in jobs]
        self.running = [0] * len(jobs)
        self.starts: Starts = {}
        self.ends: list[tuple[float, int, int]] = []  # (s, job, task)

    def run(self) -> Starts:
        arrivals = sorted(range(len(self.jobs)), key=lambda j: (self.jobs[j].submit_s, j))
        arrived: list[int] = []
        while arrivals or self.ends:
            now = min([self.jobs[j].submit_s for j in arrivals[:1]] + [e[0] for e in self.ends[:1]])
            while self.ends and self.ends[0][0] == now:
                _, job, task = heapq.heappop(self.ends)
                self.running[job] -= 1
                self.free.append(self.starts[job, task][1])
            while arrivals and self.jobs[arrivals[0]].submit_s == now:
                arrived.append(arrivals.pop(0))
            self.serve(arrived, now)
        return self.starts

    def serve(self, arrived: list[int], now: float) -> None:
        waiting = [job for job in arrived if self.left[job]]
        queue_first = {self.jobs[j].queue: n for n, j in reversed(list(enumerate(waiting)))}
        user_first = {
            (self.jobs[j].queue, self.jobs[j].user): n
            for n, j in reversed(list(enumerate(waiting)))
        }

        def rank(place: int) -> tuple[float, ...]:
            job = self.jobs[waiting[place]]
            user = (job.queue, job.user)
            mine = self.running[waiting[place]] if self.evenly else 0
            return (
                *(self.held(job.queue) / QUEUES[job.queue][0], queue_first[job.queue]),
                *(self.held(*user), user_first[user], -job.priority, mine, place),
            )

        while self.free:
            eligible = [
                n for n, job in enumerate(waiting) if self.left[job] and self.below_ceiling(job)
            ]
            if not eligible:
                return
            job = waiting[min(eligible, key=rank)]
            task, node = self.left[job].pop(0), min(self.free)
            self.free.remove(node)
            self.running[job] += 1
            self.starts[job, task] = (now, node)
            heapq.heappush(self.ends, (now + self.jobs[job].tasks[task], job, task))

    def held(self, queue: int, user: str | None = None) -> int:
        return sum(
            n
            for job, n in zip(self.jobs, self.running, strict=True)
            if job.queue == queue and user in (None, job.user)
        )

    def below_ceiling(self, job: int) -> bool:
        limit = QUEUES[self.jobs[job].queue][1]
        return limit is None or self.held(self.jobs[job].queue) < limit


def simulated(nodes: list[int], jobs: list[Work], policy: Capacity | Fair) -> Starts:
    facts = [
        *(QueueChanged(at=0.0, queue=Queue(name=f"q{n}", weight=w, max_gpus=m))
          for n, (w, m) in enumerate(QUEUES)),
        *(NodeJoined(at=0.0, node=Node(id=f"{n}", rack="r", gpus=(Gpu(memory_bytes=1),) * gpus))
          for n, gpus in enumerate(nodes)),
        *(JobSubmitted(at=work.submit_s, job=Job(
            id=f"{n}", name="j", user=work.user, queue=f"q{work.queue}", priority=work.priority,
            tasks=tuple(Task(compute_s=s) for s in work.tasks),
        )) for n, work in enumerate(jobs)),
    ]  # fmt: skip
    network = FluidNetwork(
        {}, disk_bytes_per_s=1, node_link_bytes_per_s=1, rack_uplink_bytes_per_s=1,
        aggregation_bytes_per_s=None,
    )  # fmt: skip
    world = SimulatedWorld(facts, network=network, policy=policy)
    starts = Launches()
    drive(Engine(), world, observe=(starts,))
    return {(int(s.job), s.ordinal): (s.at, int(s.node)) for s in starts.seen}


JOBS = st.lists(
    st.builds(
        Work,
        submit_s=st.sampled_from([0.0, 1.0, 2.0, 2.5, 7.0]),
        tasks=st.lists(st.sampled_from([0.0, 1.0, 1.5, 4.0]), min_size=1, max_size=5).map(tuple),
        user=st.sampled_from(["ada", "bob", "cyd"]),
        queue=st.sampled_from([0, 0, 1, 2]),
        priority=st.sampled_from([0, 0, 1]),
    ),
    min_size=1,
    max_size=12,
)


@BOTH
@settings(max_examples=cases(60))
@given(nodes=st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(any), jobs=JOBS)
def test_every_task_starts_at_the_oracles_time_and_node(
    policy: Capacity | Fair, nodes: list[int], jobs: list[Work]
) -> None:
    expected = Oracle(nodes, jobs, evenly=isinstance(policy, Fair)).run()
    assert simulated(nodes, jobs, policy) == expected
    assert len(expected) == sum(len(job.tasks) for job in jobs)


def test_two_jobs_of_one_user_run_in_sequence_under_capacity_and_together_under_fair() -> None:
    jobs = [Work(0.0, (1.0,) * 4), Work(0.0, (1.0,) * 4)]
    last = {}
    for policy in (Capacity(), Fair()):
        starts = simulated([2], jobs, policy)
        last[policy.name] = [max(s for (j, _), (s, _) in starts.items() if j == n) for n in (0, 1)]
    assert last == {"capacity": [1.0, 3.0], "fair": [3.0, 3.0]}


@BOTH
def test_user_with_many_jobs_gets_no_more_gpus_than_one_with_few(policy: Capacity | Fair) -> None:
    """Eight GPUs, 80 tasks of 10 s by ada and 20 by bob: bob holds 4 GPUs until he ends."""
    jobs = [Work(0.0, (10.0,) * 20) for _ in range(4)] + [Work(0.0, (10.0,) * 20, user="bob")]
    starts = simulated([4, 4], jobs, policy)
    for second in (0.0, 10.0, 20.0, 30.0, 40.0):
        running = [job for (job, _), (s, _) in starts.items() if s == second]
        assert (len(running), running.count(4)) == (8, 4)
    assert max(s for s, _ in starts.values()) == 120.0  # 100 tasks on 8 GPUs, none of them idle


@BOTH
def test_tasks_of_the_example_scenario_run_on_the_nodes_of_their_data(
    policy: Capacity | Fair,
) -> None:
    scenario = load_scenario(
        ROOT / "examples" / "three-tasks.yaml", {"fs": [], policy.name: []}, policy=policy.name
    )
    starts = Launches()
    outcome = sim.run(sim.from_scenario(scenario, policy), policy, observe=(starts,))
    assert outcome.figures["jobs_finished"] == 2
    assert [(s.job, s.node) for s in starts.seen[:2]] == [("job1", "node1"), ("job2", "node2")]
