"""What tasks like one have used is learnt from the ends of runs, and offered where it differs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.app import POLICIES
from headgate.engine import Engine
from headgate.foresight.sizing import RUNS_LEAST, Sizing, UsedAmount, sizing_of
from headgate.foresight.why import why
from headgate.model import Demand, Gpu, Job, Node, Queue, RunId, Task, Usage
from headgate.ports import make_policy
from headgate.protocol import (
    Decide,
    Event,
    Group,
    JobSubmitted,
    NodeJoined,
    Plan,
    PlanReady,
    QueueChanged,
    Start,
    Steps,
    TaskFinished,
    TaskStarted,
)
from headgate.state import check
from headgate.testing.digest import digest

GIB = 1 << 30
NODE = Node(id="n", rack="r", gpus=(Gpu(memory_bytes=80 * GIB),), cpus=16, memory_bytes=64 * GIB)
LARGE = Demand(cpus_milli=8000, memory_bytes=32 * GIB)
USED = Usage(peak_memory_bytes=6 * GIB, cpus_milli=900)
RUN_S, HOUR_S = 5.0, 3600.0
LONG = {"estimated_s": HOUR_S, "runtime_class": ("long",)}


class History:
    """An engine with one node, on which jobs run one after the other."""

    def __init__(self, node: Node = NODE) -> None:
        self.engine, self.at, self.jobs = Engine(), 1.0, 0
        self.decide: Decide | None = None
        for name in ("q", "other"):
            self.engine.handle(QueueChanged(at=0.0, queue=Queue(name=name)))
        self.engine.handle(NodeJoined(at=0.0, node=node))

    def submit(self, demand: Demand, **more: object) -> int:
        """Submit a job of one task, and return its row, which is also its task's."""
        fields: dict[str, object] = {
            "name": "j", "user": "ada", "queue": "q", "runtime_class": ("train",), **more,
        }  # fmt: skip
        fields.setdefault("tasks", (Task(demand=demand),))
        job = Job(id=f"j{self.jobs}", **fields)  # type: ignore[arg-type]  # any fields of a job
        self.jobs, self.at = self.jobs + 1, self.at + 1
        self.give(JobSubmitted(at=self.at, job=job))
        return self.jobs - 1

    def give(self, event: Event) -> None:
        commands = self.engine.handle(event)
        self.decide = next((c for c in commands if isinstance(c, Decide)), self.decide)

    def start(self, row: int) -> None:
        while self.decide is not None and self.decide.seen < self.engine.state.version:
            self.give(PlanReady(at=self.at, seen=self.decide.seen, plan=Plan()))
        assert self.decide is not None
        gpus = tuple(range(self.engine.state.demand(row).gpus))
        plan = Plan(steps=Steps.of([Group((Start(row, 0, gpus),))]))
        seen, self.decide = self.decide.seen, None
        self.give(PlanReady(at=self.at, seen=seen, plan=plan))
        self.give(TaskStarted(at=self.at, run=RunId(f"j{row}", 0, 1)))

    def ran(self, demand: Demand, usage: Usage, **more: object) -> None:
        """Let a job run that uses so much."""
        row = self.submit(demand, **more)
        self.start(row)
        self.at += RUN_S
        self.give(TaskFinished(at=self.at, run=RunId(f"j{row}", 0, 1), usage=usage))
        check(self.engine.state)

    def sizing(self, row: int) -> Sizing | None:
        snapshot = self.engine.snapshot()
        before = digest(snapshot)
        found = sizing_of(snapshot, row)
        assert digest(snapshot) == before
        return found


def test_what_was_used_at_most_is_offered_after_some_runs() -> None:
    history = History()
    for number in range(RUNS_LEAST):
        history.ran(LARGE, replace(USED, peak_memory_bytes=(4 + number) * GIB))
    waits = history.submit(LARGE)
    amounts = (
        UsedAmount(resource="memory", asked=32 * GIB, used=6 * GIB, enough=8 * GIB),
        UsedAmount(resource="cpus", asked=8000, used=900, enough=2000),
    )
    assert history.sizing(waits) == Sizing(runs=3, amounts=amounts)


def expected_starts(history: History, row: int) -> tuple[float | None, float | None]:
    """Return after how many seconds a job would start, unchanged and with what is enough."""
    snapshot, at = history.engine.snapshot(), history.at
    before = digest(snapshot)
    found = why(snapshot, make_policy(POLICIES, "fifo"), row, None, at)
    assert digest(snapshot) == before
    assert found.sizing is not None
    assert found.start is not None
    starts = (found.start.at, found.sizing.starts_at)
    full, less = (None if each is None else each - at for each in starts)
    return full, less


def test_why_forecasts_when_a_job_would_start_with_what_is_enough() -> None:
    history = History()
    for _ in range(RUNS_LEAST):
        history.ran(LARGE, USED)
    history.start(history.submit(Demand(memory_bytes=40 * GIB), **LONG))
    waits = history.submit(LARGE)
    assert expected_starts(history, waits) == (HOUR_S - 1, 0)
    huge = history.submit(replace(LARGE, memory_bytes=60 * GIB))
    assert expected_starts(history, huge) == (HOUR_S - 2 + RUN_S, HOUR_S - 2), "after the other"


def test_nothing_is_forecast_for_a_job_that_starts_now() -> None:
    history = History()
    for _ in range(RUNS_LEAST):
        history.ran(LARGE, USED)
    assert expected_starts(history, history.submit(LARGE)) == (0, None)


def test_gang_would_start_sooner_if_all_its_tasks_asked_for_less() -> None:
    history = History(replace(NODE, gpus=NODE.gpus * 4, cpus=64))
    for _ in range(RUNS_LEAST):
        history.ran(LARGE, USED)
    history.start(history.submit(Demand(memory_bytes=20 * GIB), **LONG))
    gang = history.submit(LARGE, tasks=(Task(demand=LARGE),) * 2, gang=True)
    assert expected_starts(history, gang) == (HOUR_S - 1, 0)


def test_nothing_is_concluded_from_few_runs_or_from_those_of_others() -> None:
    history = History()
    for number in range(RUNS_LEAST - 1):
        history.ran(LARGE, USED)
        history.ran(LARGE, USED, user="bob")
        history.ran(LARGE, USED, queue="other")
        history.ran(LARGE, USED, runtime_class=("evaluate",))
        history.ran(LARGE, USED, runtime_class=(), name=f"{number}")
        history.ran(LARGE, Usage(read_s=1.0))
    assert history.sizing(history.submit(LARGE)) is None
    history.ran(LARGE, USED)
    found = history.sizing(history.submit(LARGE))
    assert found is not None
    assert found.runs == RUNS_LEAST


def test_use_of_more_than_was_asked_for_is_reported_after_one_run() -> None:
    history = History()
    demand = Demand(cpus_milli=1000, memory_bytes=8 * GIB)
    history.ran(demand, Usage(peak_memory_bytes=12 * GIB, cpus_milli=2500))
    amounts = (
        UsedAmount(resource="memory", asked=8 * GIB, used=12 * GIB, enough=16 * GIB),
        UsedAmount(resource="cpus", asked=1000, used=2500, enough=3000),
    )
    expected = Sizing(runs=1, amounts=amounts)
    assert history.sizing(0) == expected, "also of the job that has ended"
    assert history.sizing(history.submit(demand)) == expected


def test_memory_of_gpus_is_a_limit_of_parts_and_may_be_less_of_whole_ones() -> None:
    whole = Demand(gpus=1, gpu_memory_bytes=40 * GIB)
    history = History()
    for _ in range(RUNS_LEAST):
        history.ran(whole, Usage(peak_gpu_bytes=5 * GIB))
    found = history.sizing(history.submit(whole))
    assert found is not None
    assert [(e.resource, e.enough) for e in found.amounts] == [("gpu_memory", 6 * GIB)]
    history.ran(whole, Usage(peak_gpu_bytes=60 * GIB))
    assert history.sizing(history.submit(whole)) is None, "it has the GPU to itself"
    part = Demand(gpus=1, gpu_milli=500, gpu_memory_bytes=10 * GIB)
    history.ran(part, Usage(peak_gpu_bytes=60 * GIB), runtime_class=("infer",))
    found = history.sizing(history.submit(part, runtime_class=("infer",)))
    assert found is not None
    assert [(e.resource, e.used) for e in found.amounts] == [("gpu_memory", 60 * GIB)]


@given(used=st.integers(1, 1 << 45), asked=st.integers(0, 1 << 46))
def test_what_is_enough_is_more_than_was_used_by_a_fifth_and_less_than_twice_that(
    used: int, asked: int
) -> None:
    history = History()
    history.ran(Demand(cpus_milli=1000), Usage(peak_memory_bytes=used))
    history.engine.state.runtime_classes.used_runs[0] = RUNS_LEAST
    history.engine.state.tasks.demand[0] = history.engine.state.names.demand(
        Demand(memory_bytes=asked)
    )
    found = history.sizing(0)
    if found is None:
        assert used <= 1.05 * asked
        return
    (each,) = found.amounts
    assert (each.used, each.asked) == (used, asked)
    assert int(1.2 * used) <= each.enough < max(1.8 * used, 3)
    assert used > asked * 1.05 or each.enough < asked


@pytest.mark.parametrize("hypothetical", [False, True])
def test_hypothetical_states_learn_nothing(hypothetical: bool) -> None:
    from headgate.state.thaw import thaw
    from headgate.state.usage import record_usage

    history = History()
    history.start(history.submit(LARGE))
    state = thaw(history.engine.snapshot(), hypothetical=hypothetical)
    record_usage(state, 0, USED)
    assert state.runtime_classes.used_runs.array().sum() == (not hypothetical)
