"""Elastic jobs on the command line: units that run, surplus, and units that were not needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.program import cells

ELASTIC = "{name: grows, run: x, elastic: {min: 1, max: 6}}"  # on four GPUs
GANG = "{name: gang, gang: true, tasks: {run: x, count: 2}}"


@pytest.fixture
def job(up: Any, job_file: Any) -> str:
    """Submit an elastic job of which four units run."""
    name: str = up("submit", job_file(ELASTIC), "-o", "json").json["id"]
    return name


def tasks_of(up: Any, job: str) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = up("get", job, "-o", "json").json["task_list"]
    return tasks


def counts(up: Any, job: str) -> dict[str, int]:
    found: dict[str, int] = up("get", job, "-o", "json").json["elastic"]
    return found


def test_get_jobs_and_why_show_how_many_units_run(up: Any, job: str) -> None:
    assert counts(up, job) == {"min": 1, "max": 6, "running": 4, "surplus": 3, "unneeded": 0}
    (row,) = up("jobs", "-o", "json").json["jobs"]
    assert row["elastic"] == counts(up, job)
    assert "4 of 1-6" in up("jobs").out
    shown = up("get", job).out
    assert (
        "\nTasks: 6 (2 PENDING, 4 RUNNING)\nElastic: 4 units of 1 to 6, 3 of them surplus\n"
        in shown
    )
    units = [(line.split()[0], line.split()[1]) for line in shown.splitlines()[-6:]]
    assert units == [("0", "minimum"), *((f"{n}", "surplus") for n in range(1, 6))]
    reason = "surplus: 4 of at most 6 units run; starts where no other job needs the room"
    assert f"Reason: {reason}" in " ".join(up("why", job).out.split())
    assert up("why", f"{job}/5").out.startswith(f"{job}/5: PENDING, surplus (job: RUNNING)\n")
    assert [task["surplus"] for task in tasks_of(up, job)] == [False, *[True] * 5]
    view = up("why", job, "-o", "json").json
    assert (view["reason"]["code"], view["elastic"]) == ("SurplusHeld", counts(up, job))


def test_surplus_that_gave_way_is_not_shown_as_preempted(up: Any, job_file: Any, job: str) -> None:
    up("submit", job_file(GANG))
    view = up("get", job, "-o", "json").json
    assert (view["preempted_tasks"], view["elastic"]["running"]) == (0, 2)
    stopped = [task for task in view["task_list"] if task["stops"]]
    assert [(task["state"], task["preempted"]) for task in stopped] == [("held", None)] * 2
    assert {task["failures"] for task in stopped} == {0}
    assert {task["stops"][0]["lost_gpu_s"] for task in stopped} == {0}
    shown = up("get", job).out
    assert "PREEMPTED" not in shown
    assert "surplus of an elastic job gives way to others, on " in shown


def test_units_that_were_not_needed_are_no_finished_ones(
    up: Any, job_file: Any, controller: Any, job: str, tmp_path: Path
) -> None:
    """Of one that has given way its last run is shown, of others none; neither has a result."""
    gang = up("submit", job_file(GANG), "-o", "json").json["id"]
    assert [task["attempts"] for task in tasks_of(up, job)] == [1, 1, 1, 1, 0, 0]
    running = [task["ordinal"] for task in tasks_of(up, job) if task["state"] == "running"]
    for ordinal in running:
        controller.end(job, ordinal, b"done")
    for archived in (False, True):
        if archived:
            for member in (0, 1):
                controller.end(gang, member, b"")
            controller.move_to_archive(job)
        view = up("get", job, "-o", "json").json
        assert (view["state"], view["exit"]) == ("finished", 0)
        assert view["elastic"] == {"min": 1, "max": 6, "running": 0, "surplus": 0, "unneeded": 4}
        needed = [task["ordinal"] for task in view["task_list"] if task["needed"]]
        assert needed == running
        exits = [task["exit"] for task in view["task_list"]]
        assert exits == [0 if ordinal in running else None for ordinal in range(6)]
        shown = up("get", job).out
        assert "\nTasks: 6 (2 COMPLETED, 4 UNNEEDED)\n" in shown
        assert shown.count("UNNEEDED") == 5
        assert "Elastic" not in shown
        assert up("why", job).out.startswith(f"{job}: COMPLETED")
        assert "(tasks: 2 COMPLETED, 4 UNNEEDED)" in up("why", job).out
        assert up("why", f"{job}/5").out.startswith(f"{job}/5: UNNEEDED, surplus (job: COMPLETED")
        listed = next(row for row in cells(up("jobs", "--all").out) if row[0] == job)
        assert "2/2" in listed
        folder = tmp_path / f"results-{archived}"
        up("get", job, "--output", str(folder))
        assert {file.name for file in folder.iterdir()} == {f"{ordinal}" for ordinal in running}
        output = up("get", job, "--task", "5", "--output", "x", "-o", "json")
        assert (output.code, output.error["code"]) == (101, "not_finished")
        assert output.error["problems"][0]["problem"].endswith("has no result: it was not needed")
        logs = up("logs", f"{job}/5")
        assert (logs.code, "has not run: it was not needed" in logs.err) == (101, True)


def test_a_unit_is_not_cancelled_alone(up: Any, job: str) -> None:
    output = up("cancel", f"{job}/1", "-o", "json")
    assert output.error["code"] == "not_cancellable"
    (problem,) = output.error["problems"]
    assert problem["problem"].startswith(f"{job}/1 is a unit of an elastic job, of which as many")
    assert problem["hint"] == f"headgate cancel {job} ends the whole job"
    assert up("cancel", job).code == 0
    assert up("get", job, "-o", "json").json["state"] == "cancelled"
