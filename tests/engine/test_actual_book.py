"""The actual book: what nodes report of their use, beside what grants hold."""

from __future__ import annotations

import math
from typing import Any

from headgate.journal import decode_snapshot, encode_snapshot
from headgate.journal.codec import decode, encode
from headgate.model import Demand, Task
from headgate.protocol import Decide, GpuUse, NodeReported
from headgate.state.check import check
from headgate.state.thaw import thaw
from headgate.state.view import View
from headgate.testing.digest import digest

Bench = Any  # of conftest.py


def reports(bench: Bench, node: str, *gpus: GpuUse) -> list[Any]:
    event = NodeReported(
        at=bench.at, node=node, cpus_milli=1500, memory_bytes=3 << 30, gpus=tuple(gpus)
    )
    assert decode(encode(event)) == event
    commands: list[Any] = bench.give(event)
    return commands


def used(view: View, node: str) -> list[tuple[int, int]]:
    """Return memory and utilisation of a node's GPUs, by index; -1 where that is not known."""
    row = view.names.node_rows[node]
    first = view.nodes.first_gpu[row]
    rows = range(first, first + view.nodes.gpu_count[row])
    return [(view.gpus.actual_bytes[g], view.gpus.utilisation_milli[g]) for g in rows]


def test_report_is_stored_without_a_decision(bench: Bench) -> None:
    bench.node("a", 2)
    bench.job(
        "big", [Task(demand=Demand(gpus=3))]
    )  # it waits, so that a decision could be requested
    bench.plan()
    commands = reports(bench, "a", GpuUse(5, 250), GpuUse(None, None))
    state = bench.engine.state
    assert not any(isinstance(command, Decide) for command in commands)
    assert state.nodes.actual[0] == (1500, 3 << 30)
    assert state.nodes.reported_at[0] == bench.at - 1
    assert used(state, "a") == [(5, 250), (-1, -1)]


def test_gpu_missing_in_a_report_is_unknown_again(bench: Bench) -> None:
    bench.node("a", 2)
    reports(bench, "a", GpuUse(5, 250), GpuUse(6, None))
    reports(bench, "a", GpuUse(7, None))
    assert used(bench.engine.state, "a") == [(7, -1), (-1, -1)]


def test_lost_node_has_no_report_and_has_none_when_it_returns(bench: Bench) -> None:
    bench.node("a", 1)
    bench.node("b", 1)
    reports(bench, "a", GpuUse(5, 250))
    state = bench.engine.state
    for happen in (bench.lose, bench.node):
        happen("a")
        assert math.isnan(state.nodes.reported_at[0])
        assert state.nodes.actual[0] == (0, 0)
        assert used(state, "a") == [(-1, -1)]
    stale = bench.engine.stale
    bench.lose("a")
    reports(bench, "a", GpuUse(5, 250))
    assert (bench.engine.stale, math.isnan(state.nodes.reported_at[0])) == (stale + 1, True)


def test_report_survives_a_stored_snapshot(bench: Bench) -> None:
    bench.node("a", 1)
    bench.node("b", 1)
    reports(bench, "a", GpuUse(5, 250))
    snapshot = bench.engine.snapshot()
    state = thaw(decode_snapshot(encode_snapshot(snapshot)), hypothetical=False)
    check(state)
    assert digest(state.freeze()) == digest(snapshot)
    assert state.nodes.actual[0] == (1500, 3 << 30)
    assert math.isnan(state.nodes.reported_at[1])
