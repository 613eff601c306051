"""Reports of use become events only where a figure has moved, and not too often."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.engine import Engine
from headgate.live.membership.usage import MOVED_MILLI, MOVED_SHARE, PERIOD_S, node_reported
from headgate.live.node.node_status import GpuReport, NodeReport
from headgate.model import Gpu, Node
from headgate.protocol import GpuUse, NodeJoined, NodeLost, NodeReported

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
