"""Checkpoints in virtual time: timelines by hand, and sums of saved and lost work.

Disk 100, node link 60, rack uplink 90 bytes per second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.cases import cases

from headgate.engine import Engine, drive
from headgate.model import WHOLE, RunId, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.policies.flow import PreemptiveFlowSharing, TimelyFlow
from headgate.ports import Policy
from headgate.protocol import (
    Command,
    Event,
    JobSubmitted,
    LaunchGang,
    LaunchTask,
    NodeLost,
    TaskFailed,
    TaskFinished,
    TaskStopped,
)
from headgate.sim.world import SimulatedWorld
from headgate.state import TaskState, check
from headgate.testing.storms import storm

Stage = Any  # of conftest.py


def test_task_whose_node_is_lost_continues_elsewhere_from_its_checkpoint(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"), stage.node("a2"),
        stage.replica("s", 200, "a1"), stage.replica("s", 200, "a2"),
        stage.job("j", Task(reads=("s",), compute_s=30, checkpoint_s=10)),
        NodeLost(at=25.0, node="a1"),
    )  # fmt: skip
    # it read for 2 s and computed for 23, of which 20 are saved; then 2 s and the other 10
    assert seen.lines == [
        (0.0, "starts", "j/0@a1"), (25.0, "starts", "j/0@a2"), (37.0, "ends", "j/0@a2"),
    ]  # fmt: skip
    assert seen.engine.state.jobs.lost_gpu_s[0] == 2 + 3
    assert seen.moved_bytes == (400, 0, 0), "it reads its shards again"


def test_further_run_of_a_task_takes_time_to_resume_before_it_reads(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"), stage.node("a2"),
        stage.replica("s", 200, "a1"), stage.replica("s", 200, "a2"),
        stage.job("j", Task(reads=("s",), compute_s=30, checkpoint_s=10)),
        NodeLost(at=25.0, node="a1"),
        resume_s=4.0,
        launch_delays_s=(0.5,),
    )  # fmt: skip
    # delayed by 0.5 s, it read for 2 s and computed for 22.5, of which 20 are saved
    assert seen.lines == [
        (0.0, "starts", "j/0@a1"), (25.0, "starts", "j/0@a2"),
        (25 + 4.5 + 2 + 10, "ends", "j/0@a2"),
    ]  # fmt: skip
    assert seen.engine.state.jobs.lost_gpu_s[0] == 0.5 + 2 + 2.5


def test_failing_program_is_retried_from_its_checkpoint(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"),
        stage.job("j", Task(compute_s=30, checkpoint_s=10)),
        fails_after_s=lambda launch: 12.0 if launch.run.attempt < 3 else None,
    )
    assert seen.lines == [
        (0.0, "starts", "j/0@a1"), (12.0, "fails", "j/0@a1"),
        (12.0, "starts", "j/0@a1"), (24.0, "fails", "j/0@a1"),
        (24.0, "starts", "j/0@a1"), (34.0, "ends", "j/0@a1"),
    ]  # fmt: skip
    assert seen.engine.state.jobs.lost_gpu_s[0] == 2 + 2


def test_program_finishes_when_the_rest_is_shorter_than_its_time_to_failure(stage: Stage) -> None:
    seen = stage.play(
        stage.node("a1"),
        stage.job("j", Task(compute_s=30, checkpoint_s=10)),
        fails_after_s=lambda launch: 25.0,
    )
    assert [(at, what) for at, what, _ in seen.lines if what != "starts"] == [
        (25.0, "fails"), (35.0, "ends"),
    ]  # fmt: skip


class Books:
    """Independent records of every run: what it read and computed, from the events."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.open: dict[RunId, tuple[LaunchTask, float]] = {}
        self.held_gpu_s: dict[str, float] = {}
        self.useful_gpu_s: dict[str, float] = {}
        self.saved_s: dict[tuple[str, int], float] = {}
        self.resumed = 0

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        check(self.engine.state)
        for event in batch:
            if isinstance(event, TaskFinished | TaskFailed | TaskStopped):
                self.ends(event)
        for command in commands:
            for launch in command.members if isinstance(command, LaunchGang) else (command,):
                if isinstance(launch, LaunchTask):
                    self.begins(launch, batch[0].at)

    def begins(self, launch: LaunchTask, at: float) -> None:
        saved_s = self.saved_s.get(launch.run[:2], 0.0)
        assert launch.progress_s == pytest.approx(saved_s)
        self.resumed += saved_s > 0
        self.open[launch.run] = (launch, at)

    def ends(self, event: TaskFinished | TaskFailed | TaskStopped) -> None:
        launch, since = self.open.pop(event.run)
        state, gpus = self.engine.state, launch.holds.gpus_milli / WHOLE
        job, ordinal, _ = launch.run
        row = state.names.job_rows[job]
        task = state.job(row).tasks[ordinal]
        computed_s = event.at - since - event.usage.read_s
        at = TaskState(state.tasks.state[state.jobs.first_task[row] + ordinal])
        kept_s = 0.0
        if at is TaskState.FINISHED:
            assert computed_s + launch.progress_s == pytest.approx(task.compute_s)
            kept_s = event.at - since
        elif at not in (TaskState.FAILED, TaskState.CANCELLED):
            while task.checkpoint_s and kept_s + task.checkpoint_s <= computed_s + 1e-6:
                kept_s += task.checkpoint_s
            self.saved_s[job, ordinal] = launch.progress_s + kept_s
        held = self.held_gpu_s
        held[job] = held.get(job, 0.0) + gpus * (event.at - since)
        useful = self.useful_gpu_s
        useful[job] = useful.get(job, 0.0) + gpus * kept_s


@pytest.mark.parametrize("policy", [PreemptiveFlowSharing, TimelyFlow])
def test_lost_and_useful_time_add_up_to_the_held_time(policy: type[Policy]) -> None:
    cut = resumed = 0
    for seed in range(cases(15)):
        books = ride(seed, policy())
        jobs = books.engine.state.jobs
        for row, job in enumerate(books.engine.state.names.jobs):
            useful = books.useful_gpu_s.get(job.id, 0.0)
            held = books.held_gpu_s.get(job.id, 0.0)
            assert jobs.lost_gpu_s[row] + useful == pytest.approx(held), (seed, job.id)
            cut += jobs.lost_gpu_s[row] > 0
        resumed += books.resumed
    assert cut
    assert resumed


def ride(seed: int, policy: Policy) -> Books:
    """Let a storm without lost nodes and cancelled jobs pass over tasks with checkpoints.

    Without gangs: they start again whole, with members that had finished.
    """
    weather = storm(seed, calm=True, accepts=lambda job: not job.gang)
    facts = [_saving(fact, seed) if isinstance(fact, JobSubmitted) else fact
             for fact in weather.facts]  # fmt: skip
    engine = Engine()
    world = SimulatedWorld(
        facts,
        network=FluidNetwork({}, **weather.links),  # type: ignore[arg-type]
        policy=policy,
        seed=seed,
        decision_latency_s=weather.decision_latency_s,
        fails_after_s=replace(weather, calm=False).fails_after_s,
    )
    books = Books(engine)
    drive(engine, world, observe=(books,))
    assert books.open == {}
    return books


def _saving(fact: JobSubmitted, seed: int) -> JobSubmitted:
    """Let a job's tasks compute for longer, and all but every third save what they have done."""
    tasks = tuple(
        replace(task, compute_s=5 * task.compute_s, checkpoint_s=(0.0, 0.7, 3.0)[(seed + n) % 3])
        for n, task in enumerate(fact.job.tasks)
    )
    return replace(fact, job=replace(fact.job, tasks=tasks, retries=20))
