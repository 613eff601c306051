"""Long simulations: jobs that have ended leave memory, and the outcome is the same."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cases import TIMES

from headgate.app import POLICIES
from headgate.base.column import PAGE_ROWS
from headgate.base.rng import Random
from headgate.engine import Engine, drive
from headgate.machine import archiving
from headgate.metrics.records import RECORD_BYTES, JobRecorder, JobRecords
from headgate.model import Gpu, Job, Node, Queue, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.ports import Policy, make_policy
from headgate.protocol import NodeJoined, Plan, QueueChanged, Reason
from headgate.sim import run as sim
from headgate.sim.trace_jobs import TraceJobs
from headgate.sim.world import SimulatedWorld
from headgate.state import Snapshot
from headgate.traces import Trace, open_trace
from headgate.traces.check import Check

JOBS, GPUS = 500, 8
TOGETHER, ROWS = 16, 100  # ended jobs and rows: how many are archived and compacted together
FEW = ("headgate", "fsp", "fifo", "easy-backfill", "srtf", "gsd", "capacity")
"""Policies of each kind, those among them that remember most; `make fuzz` tries all."""
EACH = pytest.mark.parametrize("name", POLICIES if TIMES > 1 else FEW)
MOST_HOT = ROWS // 2 + 2 * TOGETHER + 100  # jobs: compacted, archived, in flight


def trace(jobs: int = JOBS) -> Trace:
    """Return jobs of one task, at a load of .8."""
    rng = np.random.default_rng(3)
    return Trace(
        job_id=np.array([f"job-{number}" for number in range(jobs)], object),
        submit_s=np.cumsum(rng.exponential(10 / (0.8 * GPUS), jobs)),
        duration_s=rng.exponential(10.0, jobs),
        gpus=np.ones(jobs, np.int64),
    )


@dataclass
class Watched:
    """A policy; and the most of what it was shown, and of the jobs alive, in any of its rounds."""

    policy: Policy
    rounds: int = 0
    most: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name = self.policy.name

    def refuses(self, job: Job) -> Reason | None:
        return self.policy.refuses(job)

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        self._note("job rows", len(snapshot.jobs.state))
        self._note("task rows", len(snapshot.tasks.state))
        self._note("grants", len(snapshot.grants.task))
        self._note("classes", len(snapshot.runtime_classes.compute_s))
        for table in (snapshot.jobs, snapshot.tasks):
            for column in fields(table):
                self._note("pages", sum(1 for _ in getattr(table, column.name).pages()))
        names = snapshot.names
        self._note("names", max(len(getattr(names, f.name)) for f in fields(names)))
        self.rounds += 1
        if self.rounds % 100 == 0:
            gc.collect()  # cycles that wait for the collector are no leak
            self._note("job objects", sum(isinstance(o, Job) for o in gc.get_objects()))
        return self.policy.decide(snapshot, rng)

    def _note(self, what: str, count: int) -> None:
        self.most[what] = max(count, self.most.get(what, 0))


@pytest.fixture(autouse=True)
def _only_new_objects() -> Iterator[None]:
    """Leave the objects of earlier tests out of collections and counts, which then are fast."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _archive_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "COMPACT_ROWS", ROWS)
    monkeypatch.setattr(sim, "ARCHIVED_TOGETHER", TOGETHER)


@EACH
def test_memory_of_a_long_stream_is_bounded_by_what_is_in_flight(name: str) -> None:
    before = sum(isinstance(o, Job) for o in gc.get_objects())
    policy = Watched(make_policy(POLICIES, name))
    simulation = sim.from_trace(trace(), policy, gpus=GPUS, seed=0)
    assert sim.run(simulation, policy).figures["jobs_finished"] == JOBS
    pages = policy.most.pop("pages")
    assert pages <= -(-MOST_HOT // PAGE_ROWS)
    assert policy.most.pop("job objects") - before <= 2 * MOST_HOT  # last snapshot, and the state
    assert {what: most for what, most in policy.most.items() if most > MOST_HOT} == {}


@EACH
def test_outcome_of_a_stream_is_the_same_with_and_without_archiving(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy(POLICIES, name)
    simulation = sim.from_trace(trace(160), policy, gpus=GPUS, seed=0)
    archived = sim.run(simulation, policy)
    monkeypatch.setattr(sim, "ARCHIVED_TOGETHER", JOBS)
    kept = sim.run(simulation, policy)
    assert repr(archived.figures) == repr(kept.figures)
    for column in fields(JobRecords):
        found, expected = (getattr(outcome.jobs, column.name) for outcome in (archived, kept))
        assert np.array_equal(found, expected, equal_nan=True), column.name


def test_ended_job_keeps_46_bytes(tmp_path: Path) -> None:
    """Its record of 45, and a mark whether a job of a trace may run.

    The record has five values of 8 bytes (when it was submitted, started, ended and reserved, lost
    GPU seconds), of which a figure needs each exactly, one of 4 (most GPUs) and one of 1 (state).
    The 8 bytes of the check of a trace, a hash of each id, are freed before the first job begins.
    """
    path, history = tmp_path / "trace.parquet", trace()
    columns = {
        name: getattr(history, name) for name in ("job_id", "submit_s", "duration_s", "gpus")
    }
    pq.write_table(pa.table(columns), path)
    policy = FirstInFirstOut()
    simulation = sim.from_trace(open_trace(path), policy, gpus=GPUS, seed=0)
    gc.collect()
    assert not any(isinstance(each, Check) for each in gc.get_objects())
    records = sim.run(simulation, policy).jobs
    arrays = [getattr(records, each.name) for each in fields(records)]
    assert sum(a.nbytes for a in arrays if isinstance(a, np.ndarray)) == 45 * JOBS
    assert RECORD_BYTES == 5 * 8 + 4 + 1 == 45
    assert isinstance(simulation.submissions, TraceJobs)
    assert isinstance(simulation.submissions._accepted, bytearray)
    assert len(simulation.submissions._accepted) == JOBS
    year_s = 365 * 86_400.0
    assert np.float32(year_s + 1) == np.float32(year_s), "4 bytes would not distinguish seconds"


def test_world_drops_programs_and_results_of_archived_jobs() -> None:
    tasks = (Task(compute_s=1.0, output_bytes=10, parts=2), Task(compute_s=1.0, after=(0,)))
    jobs = [
        (3.0 * n, Job(id=f"j{n}", name="j", user="ada", queue="default", tasks=tasks))
        for n in range(10)
    ]
    network = FluidNetwork(
        {},
        disk_bytes_per_s=1,
        node_link_bytes_per_s=1,
        rack_uplink_bytes_per_s=1,
        aggregation_bytes_per_s=None,
    )
    facts = (
        QueueChanged(at=0.0, queue=Queue(name="default")),
        NodeJoined(at=0.0, node=Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1),))),
    )
    world = SimulatedWorld(facts, submissions=jobs, network=network, policy=FirstInFirstOut())
    engine = Engine()
    recorder = JobRecorder(engine.state, len(jobs))
    archived: list[str] = []

    def archive(batch: object, commands: object) -> None:
        if recorder.ended:
            archived.extend(recorder.ended)
            world.archive(tuple(recorder.ended))
            recorder.ended.clear()

    drive(engine, world, observe=(recorder, archive))
    assert archived == [f"j{n}" for n in range(10)]
    assert (world._jobs, world._holders) == ({}, {})
