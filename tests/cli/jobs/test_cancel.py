"""Single tasks of jobs are cancelled; wrong ones are all named, and then nothing is."""

from __future__ import annotations

import os
import pwd
from typing import Any

import pytest

ME = pwd.getpwuid(os.geteuid()).pw_name
ARRAY = "{tasks: {run: x, count: 6, resources: {gpus: 1}}}"  # on four GPUs


@pytest.fixture
def array(up: Any, job_file: Any) -> str:
    """Submit an array of which four tasks run and two wait."""
    job: str = up("submit", job_file(ARRAY), "-o", "json").json["id"]
    return job


def states(up: Any, job: str) -> list[str]:
    return [task["state"] for task in up("get", job, "-o", "json").json["task_list"]]


def test_running_and_waiting_tasks_are_cancelled_and_the_others_complete(
    up: Any, job_file: Any, controller: Any, array: str
) -> None:
    later = up("submit", job_file(f"{{run: x, after: [{array}]}}"), "-o", "json").json["id"]
    output = up("cancel", f"{array}/5", f"{array}/0", f"{array}/5")
    assert (output.code, output.err) == (0, "")
    assert output.out == f"{array}/5 cancelled\n{array}/0 cancelled\n"
    assert states(up, array) == ["cancelled", *["running"] * 4, "cancelled"]
    shown = up("get", array).out
    assert "\nTasks: 6 (4 RUNNING, 2 CANCELLED)\n" in shown
    assert f"\nStopped: task 0, run 1: cancelled by {ME}, on " in shown
    assert "\nMessage: 2 of 6 tasks were cancelled, the last one, task 0, by " in shown
    assert up("why", f"{array}/5").out.startswith(f"{array}/5: CANCELLED (job: RUNNING)\n")
    controller.end(array, 1, b"one")
    cancelled = up("get", array, "--task", "5", "--output", "x", "-o", "json")
    assert (cancelled.code, cancelled.error["code"]) == (103, "cancelled")
    assert "has no result: it is CANCELLED" in cancelled.error["problems"][0]["problem"]
    for task in (2, 3, 4):
        controller.end(array, task, b"")
    assert up("get", array, "-o", "json").json["state"] == "cancelled"
    assert up("get", later, "-o", "json").json["state"] == "cancelled"
    assert f"{array} was cancelled: this job can never start" in up("get", later).out


def test_json_names_tasks_as_it_names_jobs(up: Any, job_file: Any, array: str) -> None:
    one = up("cancel", f"{array}/5", "--dry-run", "-o", "json").json
    assert one == {
        "id": f"{array}/5", "was": "waiting", "state": "waiting", "grace_s": 30.0, "dry_run": True,
    }  # fmt: skip
    other = up("submit", job_file(ARRAY), "-o", "json").json["id"]
    both = up("cancel", f"{array}/0", other, "--now", "-o", "json").json["jobs"]
    assert [(each["id"], each["was"], each["grace_s"]) for each in both] == [
        (f"{array}/0", "running", 0.0), (other, "active", 0.0),
    ]  # fmt: skip


def test_task_of_a_job_that_is_named_too_ends_with_that(up: Any, array: str) -> None:
    assert up("cancel", f"{array}/3", array).out == f"{array} cancelled\n"
    assert states(up, array) == ["cancelled"] * 6


def test_all_tasks_that_cannot_be_cancelled_are_named_and_none_is_cancelled(
    up: Any, job_file: Any, controller: Any, array: str
) -> None:
    controller.end(array, 1, b"")
    gang = "{gang: true, tasks: {run: x, count: 2}}"
    gang = up("submit", job_file(gang), "-o", "json").json["id"]
    stages = "{tasks: {run: x, count: 2}, reduce: {run: y}}"
    stages = up("submit", job_file(stages), "-o", "json").json["id"]
    names = [f"{array}/{number}" for number in (0, 1, 6)]
    refused = up("cancel", *names, f"{gang}/1", f"{stages}/0", "none-7/0")
    assert refused.code == 102, "the worst one"
    assert f"{array}/1: task {array}/1 is already COMPLETED\n" in refused.err
    assert f"job {array} has no task 6; it has tasks 0 to 5\n" in refused.err
    assert f"{gang}/1 is a task of a gang, which ends as a whole\n" in refused.err
    assert f"  headgate cancel {gang} ends the whole job\n" in refused.err
    assert f"other tasks of its job come after {stages}/0: {stages}/2\n" in refused.err
    assert "there is no job 'none-7'" in refused.err
    assert states(up, array).count("cancelled") == 0
    usage = up("cancel", f"{array}/x", f"{array}/-1", f"{array}/0", "-o", "json")
    assert (usage.code, usage.error["code"], len(usage.error["problems"])) == (2, "usage", 2)
    assert states(up, array).count("cancelled") == 0


def test_tasks_of_another_user_need_a_confirmation_and_the_right(up: Any, controller: Any) -> None:
    job = controller.submit(ARRAY, user="ann", key=None)
    asked = up("cancel", f"{job}/0", "-o", "json")
    assert asked.error["code"] == "needs_confirmation"
    assert asked.error["problems"][0]["problem"] == f"{job}/0 is ann's task; cancel it?"
    assert up("cancel", f"{job}/0", "-y").code == 0
    controller.admins = {"admin"}
    assert up("cancel", f"{job}/1", "-o", "json").error["code"] == "forbidden"
    assert states(up, job).count("cancelled") == 1
