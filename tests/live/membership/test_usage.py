"""Reports of use become events only where a figure has moved, and not too often."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.engine import Engine
from headgate.live.membership.usage import (
    LEAST_SHARE,
    MOVED_MILLI,
    MOVED_SHARE,
    PERIOD_S,
    node_reported,
    report_fault,
)
from headgate.live.node.node_status import GpuReport, NodeReport
from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, RunId, Task
from headgate.protocol import (
    NO_OUTSIDE,
    GpuOutside,
    GpuUse,
    NodeJoined,
    NodeLost,
    NodeReported,
    Outside,
    OverUse,
)

GIB = 1 << 30
GPU = GpuReport(
    index=1, name="T4", memory_bytes=16 * GIB, memory_used_bytes=2 * GIB, utilisation=0.25
)
CALM = NodeReport(
    cpus=4, cpu_utilisation=0.25, memory_bytes=100 * GIB, memory_free_bytes=60 * GIB,
    disk_bytes=GIB, disk_free_bytes=GIB, gpus=(GPU,),
)  # fmt: skip
NODE = Node(id="n0", rack="r0", gpus=(Gpu(memory_bytes=16 * GIB),) * 2)


def event_of(engine: Engine, report: NodeReport, at: float) -> NodeReported | None:
    """Report to an engine, and return the event that it got."""
    event = node_reported(engine.snapshot(), "n0", report, at)
    if event is not None:
        engine.handle(event)
    return event


@pytest.fixture
def engine() -> Engine:
    engine = Engine()
    engine.handle(NodeJoined(at=0, node=NODE))
    return engine


def with_gpu(**changed: object) -> NodeReport:
    return replace(CALM, gpus=(replace(GPU, **changed),))  # type: ignore[arg-type]  # by name


def test_first_report_is_an_event(engine: Engine) -> None:
    assert event_of(engine, CALM, at=1.0) == NodeReported(
        at=1.0, node="n0", cpus_milli=1000, memory_bytes=40 * GIB,
        gpus=(GpuUse(None, None), GpuUse(2 * GIB, 250)),
    )  # fmt: skip


@pytest.mark.parametrize(
    "noise",
    [
        replace(CALM, cpu_utilisation=0.25 + 0.9 * MOVED_SHARE),
        replace(CALM, memory_free_bytes=int((60 - 90 * MOVED_SHARE) * GIB)),
        with_gpu(memory_used_bytes=int((2 + 16 * 0.9 * MOVED_SHARE) * GIB)),
        with_gpu(utilisation=0.25 + 0.9 * MOVED_MILLI / 1000),
    ],
)
def test_noise_is_no_event(engine: Engine, noise: NodeReport) -> None:
    event_of(engine, CALM, at=1.0)
    assert event_of(engine, noise, at=1000.0) is None


@pytest.mark.parametrize(
    "moved",
    [
        replace(CALM, cpu_utilisation=0.25 - 1.1 * MOVED_SHARE),
        replace(CALM, memory_free_bytes=int((60 + 110 * MOVED_SHARE) * GIB)),
        with_gpu(memory_used_bytes=int((2 + 16 * 1.1 * MOVED_SHARE) * GIB)),
        with_gpu(utilisation=0.25 + 1.1 * MOVED_MILLI / 1000),
        with_gpu(utilisation=None),
        with_gpu(index=0),
        replace(CALM, gpus=()),
    ],
)
def test_figure_that_has_moved_is_an_event_after_the_period_and_then_known(
    engine: Engine, moved: NodeReport
) -> None:
    event_of(engine, CALM, at=1.0)
    assert event_of(engine, moved, at=1.0 + 0.9 * PERIOD_S) is None
    assert event_of(engine, moved, at=1.0 + PERIOD_S) is not None
    assert event_of(engine, moved, at=1000.0) is None


def test_slow_drift_is_reported_once_it_adds_up(engine: Engine) -> None:
    reported = [
        step
        for step in range(40)
        if event_of(engine, replace(CALM, cpu_utilisation=step / 100), at=100.0 * step)
    ]
    assert reported == [0, 6, 12, 18, 24, 30, 36]


def test_node_that_is_lost_or_unknown_has_no_report(engine: Engine) -> None:
    assert node_reported(engine.snapshot(), "n1", CALM, 1.0) is None
    engine.handle(NodeLost(at=1, node="n0"))
    assert event_of(engine, CALM, at=2.0) is None


def test_returning_node_is_reported_without_waiting_for_the_period(engine: Engine) -> None:
    event_of(engine, CALM, at=1.0)
    engine.handle(NodeLost(at=2, node="n0"), NodeJoined(at=3, node=NODE))
    assert event_of(engine, CALM, at=3.5) is not None


# ------------------------------------------------------------------------- use outside Headgate

LARGE = Node(
    id="n0", rack="r0", gpus=(Gpu(memory_bytes=16 * GIB),) * 2, cpus=4, memory_bytes=100 * GIB
)


@pytest.fixture
def large() -> Engine:
    engine = Engine()
    engine.handle(NodeJoined(at=0, node=LARGE))
    return engine


def used(cpus_milli: int = 0, memory: float = 0, gpu: float = 0, pid: int = 7) -> NodeReport:
    """Return a report of what is used outside: CPUs, and GiB of memory and of GPU 1."""
    gpus = (GpuOutside(1, int(gpu * GIB), pid),) if gpu else ()
    outside = Outside(cpus_milli, int(memory * GIB), gpus)
    seen = replace(GPU, memory_used_bytes=16 * GIB)
    return replace(CALM, memory_free_bytes=0, gpus=(seen,), outside=outside)


def outside_of(engine: Engine, report: NodeReport, at: float) -> Outside | None:
    event = event_of(engine, report, at)
    return None if event is None else event.outside


def test_what_is_used_outside_counts_above_a_share(large: Engine) -> None:
    assert outside_of(large, used(190, 4.9, 0.7), 0) == NO_OUTSIDE
    expected = Outside(1000, 6 * GIB, (GpuOutside(1, GIB, 7),))
    assert outside_of(large, used(1000, 6, 1), 100) == expected


def test_what_counts_stays_until_it_has_moved_and_is_forgotten_below_half_the_share(
    large: Engine,
) -> None:
    first = outside_of(large, used(2000, 20, 8), 0)
    assert first == Outside(2000, 20 * GIB, (GpuOutside(1, 8 * GIB, 7),))
    assert event_of(large, used(2390, 24.9, 8.7), 100) is None
    assert event_of(large, used(1610, 15.1, 7.3), 200) is None
    moved = outside_of(large, used(2390, 26, 8.7), 300)
    assert moved == first._replace(memory_bytes=26 * GIB), "the rest is as it was"
    left = outside_of(large, used(110, 2.6, 0.5), 400)
    assert left == Outside(110, int(2.6 * GIB), (GpuOutside(1, GIB // 2, 7),))
    assert outside_of(large, used(90, 2.4, 0.3), 500) == NO_OUTSIDE
    assert event_of(large, used(190, 4.9, 0.7), 600) is None


@given(seen=st.lists(st.tuples(*[st.integers(0, 100)] * 3), max_size=30))
def test_events_follow_what_is_used_within_the_thresholds_and_never_repeat(
    seen: list[tuple[int, int, int]],
) -> None:
    engine = Engine()
    engine.handle(NodeJoined(at=0, node=LARGE))
    for step, (cpus, memory, gpu) in enumerate(seen):
        report = used(40 * cpus, memory, gpu * 0.16)
        event_of(engine, report, 100.0 * step)
        state = engine.state
        found = state.nodes.outside.at(0, 0) / 4000, state.nodes.outside.at(0, 1) / (100 * GIB)
        found = (*found, state.gpus.outside_bytes[1] / (16 * GIB))
        for share, percent, most in zip(found, (cpus, memory, gpu), (0.1, 0.05, 0.05), strict=True):
            assert abs(share - percent / 100) <= max(most, LEAST_SHARE) + 1e-9
        before = len(engine.state.log)
        assert event_of(engine, report, 100.0 * step + 50) is None
        assert len(engine.state.log) == before


def test_another_process_on_a_gpu_is_named(large: Engine) -> None:
    outside_of(large, used(gpu=8), 0)
    assert outside_of(large, used(gpu=8, pid=9), 100) == Outside(gpus=(GpuOutside(1, 8 * GIB, 9),))


def test_what_the_machine_has_beyond_the_node_is_used_first() -> None:
    engine = Engine()
    small = (Gpu(memory_bytes=16 * GIB), Gpu(memory_bytes=10 * GIB))
    engine.handle(NodeJoined(at=0, node=replace(LARGE, cpus=1, memory_bytes=70 * GIB, gpus=small)))
    expected = Outside(500, 10 * GIB, (GpuOutside(1, 2 * GIB, 7),))
    assert outside_of(engine, used(3500, 40, 8), 0) == expected
    assert outside_of(engine, used(3000, 30, 6), 100) == NO_OUTSIDE


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (replace(CALM, cpu_utilisation=math.nan), "nan of its CPUs is used, of at most 1"),
        (replace(CALM, cpu_utilisation=1.5), "1.5 of its CPUs"),
        (replace(CALM, memory_free_bytes=-1), "-1 bytes of memory are free"),
        (replace(CALM, memory_free_bytes=101 * GIB), "bytes of memory are free"),
        (with_gpu(memory_used_bytes=17 * GIB), "bytes of GPU 1 are used, of at most 1.7"),
        (with_gpu(memory_used_bytes=-1), "-1 bytes of GPU 1 are used"),
        (with_gpu(utilisation=math.inf), "inf of GPU 1 is in use"),
        (used(-1), "-1 thousandths of CPUs are used outside Headgate"),
        (used(4100), "4100 thousandths of CPUs are used outside Headgate, of at most 4040"),
        (used(memory=-1), "bytes of memory are used outside Headgate"),
        (used(memory=101), "bytes of memory are used outside Headgate"),
        (used(gpu=17), "bytes of GPU 1 are used outside Headgate"),
        (used(gpu=-1), "bytes of GPU 1 are used outside Headgate"),
        (replace(used(gpu=1), gpus=()), "bytes of GPU 1 are used outside Headgate, of at most 0"),
    ],
)
def test_report_of_the_impossible_has_a_fault(wrong: NodeReport, message: str) -> None:
    assert message in report_fault(wrong)


@pytest.mark.parametrize("good", [CALM, used(4000, 100, 16), with_gpu(utilisation=None)])
def test_report_of_the_possible_has_none(good: NodeReport) -> None:
    assert report_fault(good) == ""


# ------------------------------------------------------------- runs that use more than they hold


class Runs:
    """A node of 100 GiB with a run that holds 32 GiB of it and a quarter of GPU 0."""

    def __init__(self) -> None:
        self.engine, self.at = Engine(), 1.0
        self.engine.handle(NodeJoined(at=0, node=LARGE))
        demand = Demand(gpus=1, gpu_milli=250, memory_bytes=32 * GIB)
        job = Job(id="j", name="j", user="ada", queue="default", tasks=(Task(demand=demand),) * 2)
        state = self.engine.state
        state.set_queue(Queue(name="default"))
        activate(state, state.add_job(job))
        state.launch(0, 0, (0,), attempt=1)
        self.run = state.run_id(0)

    def counted(self, *over: OverUse) -> tuple[OverUse, ...] | None:
        """Return what counts after a report, None if that is no event."""
        self.at += PERIOD_S
        large = replace(SEEN, over=over)
        event = node_reported(self.engine.state.freeze(), "n0", large, self.at)
        if event is None:
            return None
        self.engine.handle(event)
        return event.over

    def uses(self, gib: float, gpu_gib: float = 0) -> tuple[OverUse, ...] | None:
        return self.counted(OverUse(self.run, int(gib * GIB), int(gpu_gib * GIB)))


SEEN = replace(CALM, memory_bytes=100 * GIB, gpus=(replace(GPU, index=0),))


def test_run_that_uses_more_counts_from_a_twentieth_on_and_until_half_of_that() -> None:
    runs = Runs()
    assert runs.counted() == ()
    assert runs.uses(33.5) is None, "as good as what it holds"
    assert runs.uses(41) == (OverUse(runs.run, 41 * GIB),)
    assert runs.uses(42) is None
    assert runs.uses(43) == (OverUse(runs.run, 43 * GIB),)
    assert runs.uses(33) == (OverUse(runs.run, 33 * GIB),)
    assert runs.uses(32.5) == ()
    assert runs.uses(33) is None
    assert runs.uses(0, 5) == (OverUse(runs.run, 0, 5 * GIB),), "a quarter is 4 GiB"
    assert runs.uses(0, 4.01) == ()
    assert runs.uses(150) == (OverUse(runs.run, 100 * GIB),), "the machine has more than the node"
    assert runs.counted() == ()


def test_run_that_has_ended_or_is_unknown_does_not_count() -> None:
    runs = Runs()
    runs.uses(41)
    others = [OverUse(RunId(job, n, a), 41 * GIB) for job, n, a in (("j", 0, 2), ("k", 0, 1))]
    assert runs.counted(*others, OverUse(RunId("j", 1, 0), 41 * GIB)) == ()


@pytest.mark.parametrize(
    "over", [(-1, 0), (0, -1), (math.nan, 0), (101 * GIB, 0), (0, 17 * GIB), (0, math.nan)]
)
def test_use_of_a_run_that_cannot_be_is_a_fault(over: tuple[Any, Any]) -> None:
    runs = Runs()
    assert report_fault(replace(SEEN, over=(OverUse(runs.run, 41 * GIB, GIB),))) == ""
    assert "used by j/0.1" in report_fault(replace(SEEN, over=(OverUse(runs.run, *over),)))
