"""Links under `headgate`: gangs that communicate wait for faster links exactly if that is quicker.

Three racks of two nodes with two GPUs each. Nodes have 100 MB/s, racks 40 MB/s: a ring of four
GPUs has 100 MB/s in one rack, and is 100 / 40 = 2.5 times slower where it spans several.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.policies.flow.bench import Bench, submitted
from tests.policies.flow.test_unit_reservations import begin

from headgate.model import Communication, Demand, Pattern, Task
from headgate.policies.flow import TimelyFlow
from headgate.policies.table import OWN
from headgate.ports import make_policy
from headgate.protocol import JobSubmitted
from headgate.protocol.reasons import GangShort, GangSpread

RING = Communication(pattern=Pattern.RING, bytes_per_step=10**9)
ALL_TO_ALL = Communication(pattern=Pattern.ALL_TO_ALL, bytes_per_step=10**9)


def job(
    name: str, seconds: float | None, *gpus: int, sends: Communication | None = None
) -> JobSubmitted:
    """Return a gang of tasks with these GPUs that takes so long at slowdown 1."""
    event = submitted(
        name, [Task(demand=Demand.of(gpus=each)) for each in gpus], gang=len(gpus) > 1
    )
    return replace(event, job=replace(event.job, estimated_s=seconds, communication=sends))


def racks(*held_s: float | None, sends: Communication | None = None) -> Bench:
    """Return racks; a job of two GPUs holds the first node of each, `x0` of the first rack."""
    stage = Bench(TimelyFlow())
    for number, seconds in enumerate(held_s):
        stage.node(f"n{2 * number}", f"r{number}", 10, 10)
        stage.apply(job(f"x{number}", seconds, 2, sends=sends))
    for number in range(len(held_s)):
        stage.node(f"n{2 * number + 1}", f"r{number}", 10, 10)
    begin(stage)
    assert len(stage.runs) == len(held_s)
    return stage


def racks_of(stage: Bench, name: str) -> set[str]:
    nodes = {run.node for (of, _), run in stage.runs.items() if of == name}
    return {f"r{int(node[1:]) // 2}" for node in nodes}


def test_gang_waits_for_one_rack_if_that_is_quicker() -> None:
    stage = racks(149.0, 1000.0, 1000.0)  # 149 + 100 < 2.5 x 100
    stage.apply(job("gang", 100.0, 1, 1, 1, 1, sends=RING))
    assert stage.running("gang") == []
    (reserved,) = stage.plans[-1].reservations
    assert (reserved.job, reserved.at, reserved.until) == (3, 149.0, 249.0)
    assert stage.plans[-1].again_at == 149.0
    reason = stage.reason("gang")
    assert isinstance(reason, GangSpread)
    assert (
        reason.cause() == "best free set spans 2 racks: 2.5x slower; waits 2 min 29 s for one rack"
    )
    assert reason.reserved is not None
    assert reason.reserved.after == ("x0",)
    stage.at = 148.0
    stage.finish("x0", 0)
    assert racks_of(stage, "gang") == {"r0"}


def test_gang_starts_spread_if_one_rack_is_free_too_late() -> None:
    stage = racks(151.0, 1000.0, 1000.0)
    stage.apply(job("gang", 100.0, 1, 1, 1, 1, sends=RING))
    assert len(stage.running("gang")) == 4
    assert len(racks_of(stage, "gang")) == 2


def test_gang_of_unknown_run_time_starts() -> None:
    stage = racks(1.0, 1000.0, 1000.0)
    stage.apply(job("gang", None, 1, 1, 1, 1, sends=RING))
    assert len(stage.running("gang")) == 4


def test_gang_that_computes_between_messages_waits_less_long() -> None:
    """A step computes 15 s and sends 15 s in a rack, 37.5 s over racks: 52.5 / 30 = 1.75."""
    sends = replace(RING, step_s=15.0)
    for free_s, waits in ((74.0, True), (76.0, False)):
        stage = racks(free_s, 1000.0, 1000.0)
        stage.apply(job("gang", 100.0, 1, 1, 1, 1, sends=sends))
        assert (not stage.running("gang")) is waits


def test_gang_starts_spread_once_waiting_has_become_longer() -> None:
    stage = racks(149.0, 1000.0, 1000.0)
    stage.apply(job("gang", 100.0, 1, 1, 1, 1, sends=RING))
    times = []
    while not stage.running("gang"):
        at = stage.plans[-1].again_at
        assert at is not None
        stage.at = at
        stage.queue("other")
        times.append(at)
    assert times[:2] == [149.0, 150.0]
    assert times[-1] > 149.0 + 75.0, "it waits as long as the run is not much overdue"
    assert len(racks_of(stage, "gang")) == 2


def test_others_backfill_the_set_that_a_gang_waits_for() -> None:
    stage = racks(100.0, 1000.0, 1000.0)
    stage.apply(job("gang", 100.0, 1, 1, 1, 1, sends=RING))
    stage.apply(job("short", 99.0, 2), job("long", 200.0, 2), job("large", 200.0, 2))
    assert {"n1", "n3", "n5"} == {run.node for run in stage.runs.values()} - {"n0", "n2", "n4"}
    assert stage.where()["short/0"] == "n1"


def test_neighbour_moves_a_gang_to_another_rack() -> None:
    stage = Bench(TimelyFlow())
    for number in range(8):
        stage.node(f"n{number}", f"r{number // 4}", 10, 10)

    def spread(name: str, sends: Communication | None) -> JobSubmitted:
        event = job(name, 1000.0, 1, 1, 1, sends=sends)
        return replace(event, job=replace(event.job, distinct_nodes=True))

    def nodes(name: str) -> set[str]:
        return {run.node for (of, _), run in stage.runs.items() if of == name}

    stage.apply(spread("first", ALL_TO_ALL))
    assert nodes("first") == {"n0", "n1", "n2"}
    stage.apply(spread("second", ALL_TO_ALL))
    assert nodes("second") <= {"n4", "n5", "n6", "n7"}, "not beside the first, on the same links"


def test_gang_slows_down_the_smaller_of_two_neighbours() -> None:
    stage = Bench(TimelyFlow())
    for name, gpus in (("many", 2), ("few", 1)):
        for node in range(2):
            stage.node(f"{name}{node}", name, 10, 10, 10)
        event = job(name, 1000.0, gpus, gpus, sends=RING)
        stage.apply(replace(event, job=replace(event.job, distinct_nodes=True)))
        begin(stage)
        assert stage.running(name) == [0, 1]
    event = job("gang", 100.0, 1, 1, sends=RING)
    stage.apply(replace(event, job=replace(event.job, distinct_nodes=True)))
    nodes = {run.node for (of, _), run in stage.runs.items() if of == "gang"}
    assert nodes == {"few0", "few1"}, "itself, it is as slow beside either"


def test_gang_beside_a_neighbour_that_ends_soon_does_not_wait_for_it() -> None:
    """Beside x it is slowed until x ends only."""
    for seconds in (10.0, 90.0):
        stage = Bench(TimelyFlow())
        for number in range(2):
            stage.node(f"n{number}", "r", 10, 10)
        stage.apply(job("x", seconds, 1, 1, sends=RING))
        begin(stage)
        stage.apply(job("gang", 100.0, 1, 1, sends=RING))
        assert stage.running("gang") == [0, 1]


def test_gang_without_communication_takes_the_tightest_set_and_never_waits() -> None:
    stage = racks(1.0, 1000.0, 1000.0)
    stage.apply(job("gang", 100.0, 1, 1, 1, 1))
    assert len(stage.running("gang")) == 4, "no slowdown is known"
    stage = Bench(TimelyFlow())
    for number, rack in enumerate(("r0", "r1", "r1", "r2", "r2", "r2")):
        stage.node(f"n{number}", rack, 10, 10)
    stage.apply(job("gang", 100.0, 1, 1, 1, 1))
    assert racks_of_nodes(stage) == {"n1", "n2"}
    stage.apply(job("large", 100.0, 2, 2, 2))
    assert racks_of_nodes(stage) == {"n1", "n2", "n3", "n4", "n5"}


def racks_of_nodes(stage: Bench) -> set[str]:
    return {run.node for run in stage.runs.values()}


def test_gang_that_does_not_fit_is_reserved_the_set_on_which_it_ends_soonest() -> None:
    """Two GPUs of r1 are free after 100 s, so that the gang fits spread; one rack after 140 s."""
    stage = Bench(TimelyFlow())
    for number, seconds in enumerate((140.0, 100.0)):
        stage.node(f"n{2 * number}", f"r{number}", 10, 10)
        stage.apply(job(f"x{number}", seconds, 2))
        stage.node(f"n{2 * number + 1}", f"r{number}", 10, 10)
        stage.apply(job(f"y{number}", 1000.0 if number else 130.0, 2))
    begin(stage)
    stage.apply(job("gang", 100.0, 1, 1, 1, 1, sends=RING))
    reason = stage.reason("gang")
    assert isinstance(reason, GangShort)
    assert str(reason.cause()) == "0 of 4 needed GPUs are free"
    stage.at = 99.0
    stage.finish("x1", 0)
    assert stage.running("gang") == []
    (reserved,) = stage.plans[-1].reservations
    assert (reserved.at, reserved.until) == (140.0, 240.0)
    stage.at = 129.0
    stage.finish("y0", 0)  # it fits now, over two racks
    assert stage.running("gang") == []
    assert isinstance(stage.reason("gang"), GangSpread)


@pytest.mark.parametrize("place", ["first-fit", "links"])
def test_first_fit_regards_no_links(place: str) -> None:
    stage = racks(149.0, 1000.0, 1000.0)
    stage.policy = make_policy(OWN, "headgate", {"place": place})
    stage.apply(job("gang", 100.0, 1, 1, 1, 1, sends=RING))
    assert len(stage.running("gang")) == (4 if place == "first-fit" else 0)
