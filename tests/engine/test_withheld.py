"""GPUs that other programs use: no capacity for jobs until they are free."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.base.errors import InvariantBroken
from headgate.foresight.explain import explain
from headgate.journal import decode_snapshot, encode_snapshot
from headgate.model import Demand, Task
from headgate.planning.shares.standing import standing_of
from headgate.protocol import Decide, GpusWithheld
from headgate.protocol.reasons import UsedElsewhere
from headgate.state import check, thaw
from headgate.testing.digest import digest

Bench = Any  # of conftest.py


def withhold(bench: Bench, node: str, *gpus: int, incarnation: str = "") -> list[Any]:
    event = GpusWithheld(at=bench.at, node=node, incarnation=incarnation, gpus=gpus)
    commands: list[Any] = bench.give(event)
    return commands


def capacity(bench: Bench) -> tuple[int, list[int]]:
    """Return how many GPUs shares count, and how many of each node are free."""
    standing = standing_of(bench.engine.snapshot())
    assert int(standing.gpus.sum()) == bench.engine.state.gpu_count()
    assert standing.free.sum(axis=1).tolist() == bench.engine.state.nodes.free_gpus.array().tolist()
    return int(standing.gpus.sum()), standing.free.sum(axis=1).tolist()


def test_withheld_gpu_is_no_capacity_until_it_is_free(bench: Bench) -> None:
    bench.node("a", 3)
    withhold(bench, "a", 0, 2)
    assert capacity(bench) == (1, [1])
    assert bench.engine.state.withheld_gpus_of(0) == (0, 2)
    bench.job("j", [Task(demand=Demand(gpus=3))])
    bench.plan()
    assert any(isinstance(command, Decide) for command in withhold(bench, "a", 2))
    assert capacity(bench) == (2, [2])
    withhold(bench, "a")
    assert capacity(bench) == (3, [3])


def test_no_run_starts_on_a_withheld_gpu(bench: Bench) -> None:
    bench.node("a", 2)
    bench.job("j", [Task(demand=Demand(gpus=1))])
    withhold(bench, "a", 1)
    state = bench.engine.state
    with pytest.raises(InvariantBroken, match="not free"):
        state.ledger.take(0, state.tasks.demand[0], 0, (1,))


@pytest.mark.parametrize("share", [{}, {"gpu_milli": 500}])
def test_run_keeps_a_gpu_that_is_withheld_meanwhile_and_no_other_run_gets_it(
    bench: Bench, share: dict[str, int]
) -> None:
    bench.node("a", 1)
    bench.job("j", [Task(demand=Demand(gpus=1, **share))])
    bench.job("k", [Task(demand=Demand(gpus=1, **share))])
    launch = bench.run("j", 0, "a")
    withhold(bench, "a", 0)
    state = bench.engine.state
    assert state.held_gpus(0) == (0,)
    assert state.ledger.best_gpus(state.tasks.demand[1], 0) is None
    bench.finished(launch)
    assert capacity(bench) == (0, [0])
    withhold(bench, "a")
    assert capacity(bench) == (1, [1])
    assert state.ledger.best_gpus(state.tasks.demand[1], 0) == (0,)


def test_observation_of_an_earlier_incarnation_is_stale(bench: Bench) -> None:
    bench.node("a", 1)
    stale = bench.engine.stale
    withhold(bench, "a", 0, incarnation="before")
    withhold(bench, "b", 0)
    assert (bench.engine.stale, capacity(bench)[0]) == (stale + 2, 1)


def test_node_that_is_lost_and_returns_has_all_its_gpus(bench: Bench) -> None:
    bench.node("a", 2)
    bench.node("b", 1)
    withhold(bench, "a", 0)
    bench.lose("a")
    assert capacity(bench) == (1, [0, 1])
    bench.node("a", 2)
    assert capacity(bench) == (3, [2, 1])


def test_withheld_gpus_survive_a_stored_snapshot(bench: Bench) -> None:
    bench.node("a", 2)
    withhold(bench, "a", 1)
    snapshot = bench.engine.snapshot()
    again = thaw(decode_snapshot(encode_snapshot(snapshot)), hypothetical=False)
    check(again)
    assert digest(again.freeze()) == digest(snapshot)
    assert again.withheld_gpus_of(0) == (1,)


def test_job_that_needs_withheld_gpus_waits_for_them_by_name(bench: Bench) -> None:
    bench.node("a", 2)
    bench.job("two", [Task(demand=Demand(gpus=2))])
    bench.job("gang", [Task(demand=Demand(gpus=1)), Task(demand=Demand(gpus=1))], gang=True)
    bench.job("one", [Task(demand=Demand(gpus=1))])
    withhold(bench, "a", 1)
    view = bench.engine.snapshot()
    reasons = [explain(view, job, bench.at).reason for job in range(3)]
    used = UsedElsewhere(gpus=1, nodes=("a",))
    assert reasons[:2] == [used, used]
    assert not isinstance(reasons[2], UsedElsewhere)
    assert used.detail() == (
        "1 GPU is in use by other Ray programs (on a), and the others do not suffice; "
        "starts when enough of them are free"
    )
