"""An order preempts runs only for units that start once these have ended."""

from __future__ import annotations

import pytest
from tests.policies.flow.bench import GB, Bench, submitted

from headgate.app import POLICIES
from headgate.model import Demand, Gpu, Node, Task
from headgate.ports import make_policy
from headgate.protocol import JobSubmitted, NodeJoined, TaskStarted

Amounts = tuple[tuple[str, int], ...]
LICENSE = (("license", 1000),)


def work(name: str, compute_s: float, tasks: int = 1, custom: Amounts = ()) -> JobSubmitted:
    return submitted(
        name, [Task(compute_s=compute_s, demand=Demand(gpus=1, custom=custom))] * tasks
    )


def cluster(gpus: int, licenses: int, place: str) -> Bench:
    """Return a node under `srtf`, on which jobs of less remaining time precede others."""
    chosen = {} if place == "first-fit" else {"place": place}
    bench = Bench(make_policy(POLICIES, "srtf", chosen))
    node = Node(id="n", rack="r", gpus=(Gpu(memory_bytes=GB),) * gpus, cpus=8,
                custom=(("license", 1000 * licenses),))  # fmt: skip
    bench.apply(NodeJoined(at=0.0, node=node))
    return bench


def begin(bench: Bench, job: str) -> None:
    for ordinal in bench.running(job):
        bench.apply(TaskStarted(at=bench.at, run=bench.runs[job, ordinal].run))


@pytest.mark.parametrize("place", ["first-fit", "block", "best-fit-subtree", "links"])
def test_no_run_is_preempted_for_a_task_that_lacks_what_its_own_job_holds(place: str) -> None:
    bench = cluster(2, 1, place)
    bench.apply(work("long", 1000.0))
    begin(bench, "long")
    bench.apply(work("short", 10.0, 2, LICENSE))
    begin(bench, "short")
    bench.queue("other")  # an event, for another round
    assert bench.running("short") == [0], "the other task waits for the license"
    assert bench.stops == []


@pytest.mark.parametrize("gpus", [2, 3], ids=["no GPU is free", "a GPU is free"])
@pytest.mark.parametrize("place", ["first-fit", "block", "best-fit-subtree", "links", "pick-kx"])
def test_of_two_runs_the_one_that_holds_the_license_is_preempted(place: str, gpus: int) -> None:
    """The other one would be the cheaper one, by its GPU alone."""
    bench = cluster(gpus, 1, place)
    bench.apply(work("licensed", 500.0, 1, LICENSE))
    bench.apply(work("long", 1000.0))
    for job in ("licensed", "long"):
        begin(bench, job)
    bench.apply(work("short", 10.0, 1, LICENSE))
    assert [stop.run.job for stop in bench.stops] == ["licensed"]
    bench.stop()
    assert bench.running("short") == [0]
    assert bench.stops == []


@pytest.mark.parametrize("place", ["first-fit", "block", "best-fit-subtree", "links"])
def test_a_run_is_preempted_with_the_resources_that_a_unit_needs(place: str) -> None:
    bench = cluster(2, 2, place)
    bench.apply(work("long", 1000.0, 2, LICENSE))
    begin(bench, "long")
    bench.apply(work("short", 10.0, 2, LICENSE))
    assert sorted(stop.run for stop in bench.stops) == [
        bench.runs["long", ordinal].run for ordinal in (0, 1)
    ]
    bench.stop()
    assert bench.running("short") == [0, 1]
    assert bench.stops == []
