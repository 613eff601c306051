"""Spares: jobs start in processes that ran before them, with the same guarantees as others."""

from __future__ import annotations

import psutil
import pytest
from tests.live.system import Headgate

pytestmark = pytest.mark.live


SYSTEM = {"nodes": 1, "gpus": 1, "up": ("--racks=1", "--spares=1")}


def spares(headgate: Headgate) -> tuple[psutil.Process, psutil.Process]:
    """Wait for one idle executor and one idle master, and return them."""

    def found() -> list[psutil.Process]:
        executors, masters = headgate.actors("TaskExecutor"), headgate.actors("Master")
        return [*executors, *masters] if len(executors) == len(masters) == 1 else []

    executor, master = headgate.until(found, "a spare executor and a spare master")
    return executor, master


def test_job_runs_in_spares_which_end_with_it_and_are_replaced(headgate: Headgate) -> None:
    executor, master = spares(headgate)
    job = headgate.submit("{run: 'sleep 1000', resources: {gpus: 1}}")
    headgate.running(job, 1)
    assert executor.children(), "its guard"
    headgate.client.cancel(job)
    headgate.ends(job, "cancelled")
    headgate.until(lambda: not executor.is_running() and not master.is_running(), "their ends")
    assert spares(headgate) != (executor, master)


def test_next_controller_replaces_free_spares_and_keeps_those_of_jobs(headgate: Headgate) -> None:
    executor, master = spares(headgate)
    job = headgate.submit("{run: 'sleep 1000', resources: {gpus: 1}}")
    headgate.running(job, 1)
    other = headgate.until(
        lambda: [a for a in headgate.actors("TaskExecutor") if a != executor], "the next spare"
    )
    headgate.kill_controller()
    headgate.up()
    headgate.until(lambda: not other[0].is_running(), "the end of the earlier controller's spare")
    assert executor.is_running()
    assert master.is_running()
    (task,) = headgate.client.tasks(job)
    assert (task["state"], task["attempts"]) == ("running", 1)
    headgate.client.cancel(job)
    headgate.ends(job, "cancelled")
    headgate.until(lambda: not executor.is_running() and not master.is_running(), "their ends")


def test_spare_master_that_is_killed_continues_its_job(headgate: Headgate) -> None:
    _, master = spares(headgate)
    job = headgate.submit("{run: 'sleep 4; echo done > {output}', resources: {gpus: 1}}")
    headgate.running(job, 1)
    master.kill()
    headgate.ends(job)
    (task,) = headgate.client.tasks(job)
    assert task["attempts"] == 1
    assert headgate.result(job) == b"done\n"
