"""Forecasts while a run is stopped to move."""

from __future__ import annotations

import numpy as np
from tests.engine.conftest import Bench

from headgate.foresight.forecast import forecast
from headgate.foresight.whatif import WhatIf
from headgate.model import Task
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.protocol import Admitted, Moved, MoveRequested
from headgate.state import TaskState, check
from headgate.state.tables import GPU_FREE


def moving() -> Bench:
    """A run on `a` that is stopped to move to `b`; two jobs wait for a GPU."""
    bench = Bench()
    bench.node("a")
    bench.node("b")
    bench.job("j", [Task()], estimated_s=100.0)
    launch = bench.run("j", 0, "a")
    move = Moved((Admitted(launch.run, "b", (0,)),), "requested by grace")
    bench.give(MoveRequested(at=bench.at, move=move))
    for name in ("k", "l"):
        bench.job(name, [Task()], estimated_s=30.0)
    return bench


def test_round_of_a_hypothetical_state_starts_the_moved_run_on_its_target() -> None:
    bench = moving()
    what_if = WhatIf(bench.engine.snapshot(), FirstInFirstOut(), bench.at)
    what_if.round()
    check(what_if.state)
    row = bench.row("j", 0)
    assert what_if.moved == [row]
    assert what_if.state.tasks.state[row] == TaskState.RUNNING
    assert what_if.state.node(what_if.state.tasks.node[row]).id == "b"


def test_forecast_counts_on_the_place_that_a_moving_run_leaves_but_not_on_its_target() -> None:
    bench = moving()
    snapshot = bench.engine.snapshot()
    assert not (snapshot.gpus.task.array() == GPU_FREE).any()
    expected = []
    for name in ("k", "l"):
        found = forecast(snapshot, FirstInFirstOut(), {bench.row(name, 0)}, bench.at)
        expected.append((found.node, found.at))
    assert expected[0] == ("a", bench.at)
    node, at = expected[1]
    assert node == "a"
    assert at is not None
    assert np.isclose(at - bench.at, 30.0), "when the run that starts there first has ended"
