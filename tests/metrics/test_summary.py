"""The figures of a run, from hand-written states."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headgate.metrics.records import JobRecords
from headgate.metrics.summary import (
    fairness,
    finish_time_fairness,
    mean_active_jobs,
    reservations,
    summary,
    wait_by_size,
)
from headgate.model import Gpu, Job, Node, Queue, Task
from headgate.state import JobState, State, TaskState


def records(*times: tuple[float, float | None, float | None, JobState]) -> JobRecords:
    """Return records of jobs with these submission, start and end times and end states."""
    made = State()
    made.set_queue(Queue(name="q"))
    made.add_node(Node(id="a", rack="r", gpus=(Gpu(memory_bytes=1),) * 9))
    for number, (submit_s, _, _, _) in enumerate(times):
        made.now = submit_s
        made.add_job(Job(id=f"j{number}", name="j", user="ada", queue="q", tasks=(Task(),)))
    for row, (_, start_s, end_s, ends_as) in enumerate(times):
        made.move_job(row, JobState.ACTIVE)
        made.move_task(row, TaskState.WAITING)
        if start_s is not None:
            made.now = start_s
            made.launch(row, 0, (row,), attempt=1)
        if end_s is not None:
            made.now = end_s
            if ends_as is not JobState.FINISHED:
                made.move_job(row, JobState.STOPPING)
            made.release(row, TaskState[ends_as.name])
            made.move_job(row, ends_as)
    return JobRecords.of(made)


DONE, FAILED = JobState.FINISHED, JobState.FAILED


def test_figures_of_three_jobs_by_hand() -> None:
    made = records((10, 10, 20, DONE), (12, 16, 42, DONE), (14, 14, 30, FAILED))
    figures = summary(made, busy_gpu_s=64.0, gpus=4, tasks_finished=6)
    assert figures == {
        "makespan_s": 32.0,
        "tasks_per_s": 6 / 32,
        "jobs_finished": 2,
        "jobs_failed": 1,
        "jobs_cancelled": 0,
        "jobs_unfinished": 0,
        "mean_jct_s": 20.0,
        "median_jct_s": 20.0,
        "p99_jct_s": pytest.approx(10 + 0.99 * 20),
        "mean_wait_s": pytest.approx(4 / 3),
        "lost_gpu_s": 16.0,
        "migrations": 0,
        "gpu_utilisation": 0.5,
    }


def test_jobs_that_never_started_or_ended_count_in_no_time() -> None:
    made = records((0, None, None, DONE), (5, 6, None, DONE), (5, 5, 9, DONE))
    figures = summary(made, busy_gpu_s=0.0, gpus=1, tasks_finished=1)
    assert (figures["jobs_finished"], figures["jobs_unfinished"]) == (1, 2)
    assert figures["makespan_s"] == 9.0  # from the first submission, whoever's it was
    assert figures["mean_wait_s"] == 0.5
    assert np.nan_to_num(made.run_s, nan=-1.0).tolist() == [-1.0, -1.0, 4.0]


def test_means_are_none_when_nothing_ran() -> None:
    for made in (records(), records((3, None, None, DONE))):
        figures = summary(made, busy_gpu_s=0.0, gpus=4, tasks_finished=0)
        assert figures["makespan_s"] == figures["gpu_utilisation"] == 0.0
        assert figures["mean_jct_s"] is figures["p99_jct_s"] is figures["mean_wait_s"] is None
        assert mean_active_jobs(made) == 0.0
        assert np.isnan(made.run_s).all()


def test_a_run_of_no_length_has_no_utilisation() -> None:
    figures = summary(records((3, 3, 3, DONE)), busy_gpu_s=0.0, gpus=4, tasks_finished=1)
    assert (figures["makespan_s"], figures["gpu_utilisation"]) == (0.0, 0.0)


def test_active_jobs_are_averaged_over_time() -> None:
    assert mean_active_jobs(records((0, 0, 10, DONE), (0, 0, 5, DONE), (5, 5, 10, DONE))) == 2.0
    assert mean_active_jobs(records((4, 4, 4, DONE), (4, 4, 4, DONE))) == 2.0


def test_fairness_is_mean_and_deviation_of_ideal_over_actual() -> None:
    found = fairness({"a": 10.0, "b": 20.0, "c": 1.0}, {"a": 10.0, "b": 10.0})
    assert found == {"mean": 0.75, "deviation": 0.25}
    assert fairness({"a": 0.0}, {"a": 0.0}) == {"mean": 1.0, "deviation": 0.0}
    assert fairness({}, {}) == {"mean": None, "deviation": None}


def test_waits_count_jobs_of_at_least_each_size() -> None:
    made = records(
        (0, 10, 20, DONE), (0, 30, 40, DONE), (5, 5, 9, DONE), (7, 107, 110, FAILED),
        (8, None, None, DONE),
    )  # fmt: skip
    rows = wait_by_size(made, np.array([1, 4, 4, 0, 64]))
    assert [row["gpus_at_least"] for row in rows] == [1, 2, 4, 8, 16, 32, 64]
    assert [row["jobs"] for row in rows] == [3, 2, 2, 0, 0, 0, 0], "no 0 GPUs, none that waits"
    assert [row["mean_wait_s"] for row in rows[:4]] == [pytest.approx(40 / 3), 15.0, 15.0, None]
    assert rows[1]["p99_wait_s"] == pytest.approx(29.7)
    assert rows[3]["p99_wait_s"] is None


def test_finish_time_fairness_compares_with_the_ends_of_fluid_sharing() -> None:
    made = records(
        (0, 0, 20, DONE), (10, 15, 20, DONE), (10, 10, 10, DONE), (0, 3, 9, FAILED),
        (0, None, None, DONE),
    )  # fmt: skip
    figures = finish_time_fairness(made, np.array([10.0, 30.0, 10.0, 1.0, 1.0]))
    assert figures == {"mean": 1.25, "p95": pytest.approx(0.5 + 0.95 * 1.5), "worst": 2.0}
    nothing = finish_time_fairness(records((0, None, None, DONE)), np.array([1.0]))
    assert nothing == {"mean": None, "p95": None, "worst": None}


def test_reservation_is_broken_by_a_later_start_only() -> None:
    made = records(
        *((0, start, start + 1, DONE) for start in (5, 9, 20, 50)), (0, None, None, DONE)
    )
    made = replace(made, reserved_at=np.array([5.0 - 1e-9, 10.0, 17.0, np.nan, 8.0]))
    assert reservations(made) == {"made": 4, "broken": 1, "mean_delay_s": 3.0}
    none = replace(made, reserved_at=np.full(5, np.nan))
    assert reservations(none) == {"made": 0, "broken": 0, "mean_delay_s": None}
