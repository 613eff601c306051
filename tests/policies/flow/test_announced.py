"""`headgate`: an announced start stands, except against better claims of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from tests.policies.flow.bench import GB, Bench, submitted
from tests.policies.flow.test_unit_reservations import advance, begin, bench, estimated

from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.shares.announced import IMPATIENT_SINCE
from headgate.planning.times.reservations import RESERVED_AT, SUPERSEDED
from headgate.policies.flow import TimelyFlow
from headgate.protocol import Command, Event, JobSubmitted, StopTask, TaskStarted
from headgate.protocol.reasons import GangShort
from headgate.sim.run import Simulation, run
from headgate.spec import Links

FOUR = Task(demand=Demand(gpus=4))


def work(
    name: str, nodes: int, seconds: float, user: str = "ada", priority: int = 0
) -> JobSubmitted:
    event = estimated(submitted(name, [FOUR] * nodes, gang=nodes > 1), seconds)
    return replace(event, job=replace(event.job, user=user, priority=priority))


def promised() -> Bench:
    """Return two busy nodes and an idle GPU; the gang of both is announced for second 200."""
    stage = bench(4, 4, 1)
    stage.apply(work("first", 1, 100.0))
    stage.apply(work("second", 1, 200.0))
    begin(stage)
    stage.apply(work("gang", 2, 5000.0))
    assert memo(stage, RESERVED_AT) == 200.0
    return stage


def memo(stage: Bench, column: str) -> float:
    return float(stage.engine.state.memo(column)[stage.engine.state.names.job_rows["gang"]])


def superseded(stage: Bench) -> str | None:
    advance(stage, 1.0)
    reason = stage.reason("gang")
    assert isinstance(reason, GangShort)
    assert reason.reserved is not None
    return reason.reserved.superseded


def ends(stage: Bench) -> list[str]:
    """Return which of the waiting jobs start once the first runs have ended."""
    stage.finish("first", 0)
    stage.finish("second", 0)
    return sorted({name for name, _ in stage.runs})


def test_an_announced_start_stands_though_fair_sharing_would_end_a_later_job_sooner() -> None:
    stage = promised()
    stage.apply(work("quick", 2, 5.0))
    assert superseded(stage) is None
    assert ends(stage) == ["gang"]


def test_a_user_below_the_own_share_displaces_an_announced_start_of_one_above() -> None:
    stage = promised()
    stage.apply(work("bob", 2, 5.0, user="bob"))
    assert superseded(stage) == "above-share"
    assert memo(stage, SUPERSEDED) > 0
    assert ends(stage) == ["bob"]


def test_a_job_of_higher_priority_of_the_same_user_displaces_an_announced_start() -> None:
    stage = promised()
    stage.apply(work("urgent", 2, 5.0, priority=1))
    assert superseded(stage) == "priority"
    assert ends(stage) == ["urgent"]


def test_an_announced_start_stands_again_once_the_better_claim_is_gone() -> None:
    stage = promised()
    stage.apply(work("urgent", 1, 5.0, priority=1))
    assert memo(stage, SUPERSEDED) > 0
    stage.finish("first", 0)
    stage.finish("urgent", 0)
    assert memo(stage, SUPERSEDED) == 0
    assert superseded(stage) is None


def test_a_promised_gang_starts_on_time_and_no_run_is_stopped_for_others_meanwhile() -> None:
    """Four nodes of two GPUs: gangs, a sweep, single tasks and a later gang, none declared."""
    gpu, two = Demand(gpus=1), Demand(gpus=2)
    jobs = [
        (0.0, "a", [Task(demand=two, compute_s=21.0)] * 3, True, None),
        (1.5, "b", [Task(demand=two, compute_s=21.0)] * 3, True, None),
        (3.0, "sweep", [Task(demand=gpu, compute_s=1.5)] * 20, False, 4),
        (4.0, "singles", [Task(demand=gpu, compute_s=20.0)] * 12, False, None),
        (5.5, "c", [Task(demand=gpu, compute_s=5.0)] * 4, True, None),
    ]
    submissions = tuple(
        (
            at,
            Job(
                id=name,
                name=name,
                user="ada",
                queue="default",
                tasks=tuple(tasks),
                gang=gang,
                max_running=most,
            ),
        )
        for at, name, tasks, gang, most in jobs
    )
    starts: dict[str, float] = {}

    def see(batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        assert not [command for command in commands if isinstance(command, StopTask)]
        for event in batch:
            if isinstance(event, TaskStarted):
                starts.setdefault(event.run.job, event.at)

    simulation = Simulation(
        nodes=tuple(Node(id=f"n{n}", rack="r", gpus=(Gpu(memory_bytes=GB),) * 2) for n in range(4)),
        links=Links(disk_bytes_per_s=1, node_link_bytes_per_s=1, rack_uplink_bytes_per_s=1),
        queues=(Queue(name="default"),),
        submissions=submissions,
    )
    run(simulation, TimelyFlow(), observe=(see,))
    assert starts["b"] <= 25.0


def test_a_start_is_announced_only_once_it_is_no_farther_ahead_than_patience() -> None:
    stage = bench(4, 4, 1)
    assert isinstance(stage.policy, TimelyFlow)
    stage.policy.patience_s = 150.0
    stage.apply(work("first", 1, 100.0))
    stage.apply(work("second", 1, 200.0))
    begin(stage)
    stage.apply(work("gang", 2, 5000.0))
    assert np.isnan(memo(stage, RESERVED_AT))
    assert "expected for" in str(stage.reason("gang")), "what has not been announced may change"
    advance(stage, 60.0)
    assert memo(stage, RESERVED_AT) == 200.0
    assert "reserved for" in str(stage.reason("gang"))


def test_of_jobs_without_announced_starts_the_one_that_lost_patience_is_reserved_next() -> None:
    stage = bench(4, 4, 1)
    stage.apply(work("first", 1, 100.0))
    stage.apply(work("second", 1, 200.0))
    begin(stage)
    assert isinstance(stage.policy, TimelyFlow)
    stage.policy.patience_s = 50.0  # nothing is announced
    stage.apply(work("gang", 2, 5000.0))
    stage.apply(work("quick", 2, 5.0))
    assert first_reserved(stage) == "quick"
    stage.engine.state.write_memo({IMPATIENT_SINCE: {"gang": stage.at}})
    advance(stage, 1.0)
    assert first_reserved(stage) == "gang"


def first_reserved(stage: Bench) -> str:
    first = next(iter(stage.plans[-1].reservations))
    return stage.engine.state.job(first.job).id
