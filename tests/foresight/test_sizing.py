"""What tasks like one have used is learnt from the ends of runs, and offered where it differs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.engine import Engine
from headgate.foresight.sizing import RUNS_LEAST, Sizing, UsedAmount, sizing_of
from headgate.model import Demand, Gpu, Job, Node, Queue, RunId, Task, Usage
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
        tasks = (Task(demand=demand),)
        job = Job(id=f"j{self.jobs}", tasks=tasks, **fields)  # type: ignore[arg-type]  # any fields of a job
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
        self.at += 5
        self.give(TaskFinished(at=self.at, run=RunId(f"j{row}", 0, 1), usage=usage))
        check(self.engine.state)

    def sizing(self, row: int) -> Sizing | None:
        snapshot = self.engine.snapshot()
        before = digest(snapshot)
        found = sizing_of(snapshot, row, row)
        assert digest(snapshot) == before
        return found


def test_what_was_used_at_most_is_offered_after_some_runs_and_whether_that_fits() -> None:
    history = History()
    for number in range(RUNS_LEAST):
        history.ran(LARGE, replace(USED, peak_memory_bytes=(4 + number) * GIB))
    history.start(history.submit(replace(LARGE, memory_bytes=50 * GIB)))
    waits = history.submit(LARGE)
    amounts = (
        UsedAmount(resource="memory", asked=32 * GIB, used=6 * GIB, enough=8 * GIB),
        UsedAmount(resource="cpus", asked=8000, used=900, enough=2000),
    )
    assert history.sizing(waits) == Sizing(runs=3, amounts=amounts, fits_now=True)


def test_it_fits_only_where_it_did_not_and_does_with_less() -> None:
    history = History()
    for _ in range(RUNS_LEAST):
        history.ran(LARGE, USED)
    fits = history.sizing(history.submit(LARGE))
    assert fits is not None
    assert not fits.fits_now
    history.start(history.submit(replace(LARGE, memory_bytes=60 * GIB)))
    never = history.sizing(history.submit(LARGE))
    assert never is not None
    assert not never.fits_now


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
