"""Whole simulations under fifo against an event loop without engine, plans or snapshots."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from headgate.engine import Engine, drive
from headgate.model import WHOLE, Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.protocol import JobSubmitted, NodeJoined, QueueChanged
from headgate.sim import run as sim
from headgate.sim.report import Launches
from headgate.sim.world import SimulatedWorld
from headgate.traces import Trace, read_trace

PHILLY = Path(__file__).parents[3] / "examples" / "philly-500.parquet"


@dataclass(frozen=True)
class Work:
    """A job of the oracle: (GPUs, seconds) of each task."""

    submit_s: float
    tasks: tuple[tuple[int, float], ...]
    gang: bool = False
    queue: int = 0


class Oracle:
    """Strict order of arrival, first fit; jobs of a queue at its ceiling are skipped."""

    def __init__(self, nodes: list[int], ceilings: list[int | None], jobs: list[Work]) -> None:
        self.free = list(nodes)
        self.room = [10**9 if c is None else c for c in ceilings]
        self.jobs = jobs
        self.left = [list(range(len(job.tasks))) for job in jobs]
        self.starts: dict[tuple[int, int], tuple[float, int]] = {}  # (job, task): (s, node)
        self.ends: list[tuple[float, int, int]] = []  # (s, job, task)

    def run(self) -> dict[tuple[int, int], tuple[float, int]]:
        arrivals = sorted(range(len(self.jobs)), key=lambda j: (self.jobs[j].submit_s, j))
        arrived: list[int] = []
        while arrivals or self.ends:
            now = min(
                [self.jobs[j].submit_s for j in arrivals[:1]] + [end for end, _, _ in self.ends[:1]]
            )
            while self.ends and self.ends[0][0] == now:
                _, job, task = heapq.heappop(self.ends)
                gpus = self.jobs[job].tasks[task][0]
                self.free[self.starts[job, task][1]] += gpus
                self.room[self.jobs[job].queue] += gpus
            while arrivals and self.jobs[arrivals[0]].submit_s == now:
                arrived.append(arrivals.pop(0))
            self.serve(arrived, now)
            arrived = [job for job in arrived if self.left[job]]
        return self.starts

    def serve(self, arrived: list[int], now: float) -> None:
        full_queues: list[int] = []
        for job in arrived:
            work = self.jobs[job]
            if work.queue in full_queues:
                continue
            together = [self.left[job][:]] if work.gang else [[t] for t in self.left[job]]
            for tasks in together:
                if sum(work.tasks[t][0] for t in tasks) > self.room[work.queue]:
                    full_queues.append(work.queue)
                    break
                places = self.places([work.tasks[t][0] for t in tasks])
                if places is None:
                    return
                for task, node in zip(tasks, places, strict=True):
                    self.start(job, task, node, now)

    def places(self, needs: list[int]) -> list[int] | None:
        """Return the node of each task: in their order or, if they do not fit so, largest first."""
        in_order = range(len(needs))
        for order in (in_order, sorted(in_order, key=lambda n: -needs[n])):
            free, places = list(self.free), dict[int, int]()
            for n in order:
                node = next((node for node, left in enumerate(free) if left >= needs[n]), None)
                if node is None:
                    break
                free[node] -= needs[n]
                places[n] = node
            if len(places) == len(needs):
                return [places[n] for n in in_order]
        return None

    def start(self, job: int, task: int, node: int, now: float) -> None:
        gpus, run_s = self.jobs[job].tasks[task]
        self.free[node] -= gpus
        self.room[self.jobs[job].queue] -= gpus
        self.left[job].remove(task)
        self.starts[job, task] = (now, node)
        heapq.heappush(self.ends, (now + run_s, job, task))


# --------------------------------------------------------------------------------- any cluster


def simulated(
    nodes: list[int], ceilings: list[int | None], jobs: list[Work]
) -> dict[tuple[int, int], tuple[float, int]]:
    facts = [
        *(QueueChanged(at=0.0, queue=Queue(name=f"q{n}", max_gpus=c))
          for n, c in enumerate(ceilings)),
        *(NodeJoined(at=0.0, node=Node(id=f"{n}", rack="r", gpus=(Gpu(memory_bytes=1),) * gpus))
          for n, gpus in enumerate(nodes)),
        *(JobSubmitted(at=work.submit_s, job=Job(
            id=f"{n}", name="j", user="ada", queue=f"q{work.queue}", gang=work.gang,
            tasks=tuple(Task(demand=Demand.of(gpus=g), compute_s=s) for g, s in work.tasks),
        )) for n, work in enumerate(jobs)),
    ]  # fmt: skip
    network = FluidNetwork(
        {}, disk_bytes_per_s=1, node_link_bytes_per_s=1, rack_uplink_bytes_per_s=1,
        aggregation_bytes_per_s=None,
    )  # fmt: skip
    world = SimulatedWorld(facts, network=network, policy=FirstInFirstOut())
    starts = Launches()
    drive(Engine(), world, observe=(starts,))
    return {(int(s.job), s.ordinal): (s.at, int(s.node)) for s in starts.seen}


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[int], list[int | None], list[Work]]:
    """Draw from few times and sizes, so that ties, full nodes and ceilings are common."""
    nodes = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any))
    ceilings = draw(st.lists(st.sampled_from([None, 4, 5]), min_size=1, max_size=3))
    task = st.tuples(st.integers(1, max(nodes)), st.sampled_from([0.0, 1.0, 1.5, 4.0]))
    jobs = []
    for _ in range(draw(st.integers(1, 12))):
        work = Work(
            submit_s=draw(st.sampled_from([0.0, 1.0, 2.0, 2.5, 7.0])),
            tasks=tuple(draw(st.lists(task, min_size=1, max_size=4))),
            gang=draw(st.booleans()),
            queue=draw(st.integers(0, len(ceilings) - 1)),
        )
        fits = Oracle(nodes, ceilings, [work])
        fits.run()
        if not fits.left[0]:  # a job that could never start fails the submission check
            jobs.append(work)
    return nodes, ceilings, jobs


@settings(max_examples=cases(150))
@given(clusters())
def test_every_task_starts_at_the_oracles_time_and_node(
    cluster: tuple[list[int], list[int | None], list[Work]],
) -> None:
    assert simulated(*cluster) == Oracle(*cluster).run()


# --------------------------------------------------------------------------------- traces


def check_trace(trace: Trace, gpus: int) -> None:
    """Compare start, end and every figure of a trace on a pool with the oracle's."""
    rows = zip(trace.submit_s.tolist(), trace.gpus.tolist(), trace.duration_s.tolist(), strict=True)
    jobs = [Work(s, ((g, d),)) for s, g, d in rows if g <= gpus]
    started = Oracle([gpus], [None], jobs).run()
    arrival = sorted(range(len(jobs)), key=lambda j: (jobs[j].submit_s, j))
    starts = np.array([started[j, 0][0] for j in arrival])
    submits = np.array([jobs[j].submit_s for j in arrival])
    ends = np.array([started[j, 0][0] + jobs[j].tasks[0][1] for j in arrival])

    policy = FirstInFirstOut()
    outcome = sim.run(sim.from_trace(trace, policy, gpus=gpus, seed=0), policy)
    table, figures = outcome.jobs, outcome.figures
    assert table.submitted_at.tolist() == submits.tolist()
    assert table.started_at.tolist() == starts.tolist()
    assert table.ended_at.tolist() == ends.tolist()
    assert table.peak_gpus_milli.tolist() == [WHOLE * jobs[j].tasks[0][0] for j in arrival]
    assert figures["jobs_rejected"] == len(trace) - len(jobs)
    assert (figures["jobs_finished"], figures["jobs_unfinished"]) == (len(jobs), 0)
    if not jobs:
        return
    assert figures["makespan_s"] == ends.max() - submits.min()
    busy = sum(g * d for job in jobs for g, d in job.tasks)
    span = gpus * figures["makespan_s"]
    assert figures["gpu_utilisation"] == pytest.approx(busy / span if span else 0.0)
    for name, value in (
        ("mean_jct_s", np.mean(ends - submits)),
        ("median_jct_s", np.median(ends - submits)),
        ("p99_jct_s", np.quantile(ends - submits, 0.99)),
        ("mean_wait_s", np.mean(starts - submits)),
    ):
        assert figures[name] == pytest.approx(value), name


ROW = st.tuples(
    st.sampled_from([0.0, 3.0, 3.25, 10.0, 11.0]),
    st.sampled_from([0.0, 1.0, 2.5, 8.0]),
    st.integers(1, 7),
)


@settings(max_examples=cases(80))
@given(rows=st.lists(ROW, min_size=1, max_size=25), gpus=st.integers(1, 6))
def test_random_traces_run_like_the_oracle(rows: list[tuple[float, float, int]], gpus: int) -> None:
    submit_s, duration_s, wanted = (np.array(column) for column in zip(*rows, strict=True))
    ids = np.arange(len(rows))
    check_trace(Trace(job_id=ids, submit_s=submit_s, duration_s=duration_s, gpus=wanted), gpus)


@pytest.mark.parametrize("gpus", [4, 16, 64, 600])
def test_recorded_trace_runs_like_the_oracle(gpus: int) -> None:
    check_trace(read_trace(PHILLY), gpus)
