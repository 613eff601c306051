"""The verb migrate, over the API: which runs move where, and who may request it."""

from __future__ import annotations

import os
import pwd
from typing import Any

import pytest

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def one(up: Any, job_file: Any, controller: Any) -> str:
    """A job whose run is on the first of two nodes; this user is an administrator."""
    controller.admins = {ME}
    return str(up("submit", job_file("{name: one, run: 'true'}"), "-o", "json").json["id"])


def place(up: Any, job: str) -> tuple[str, int]:
    (task,) = up("get", job, "--task", "0", "-o", "json").json["task_list"]
    return task["node"], task["attempts"]


def test_runs_move_to_another_node(up: Any, one: str) -> None:
    assert place(up, one) == ("n0", 1)
    preview = up("migrate", one, "--dry-run")
    assert preview.out == "task 0: would move from n0 to n1\n"
    assert place(up, one) == ("n0", 1)
    assert up("migrate", one, "--from", "n0", "-y").out == "task 0: moves from n0 to n1\n"
    assert place(up, one) == ("n1", 2)
    assert f"moved from n0 to n1: requested by {ME}" in up("get", one).out


def test_answer_as_json_names_the_places(up: Any, one: str) -> None:
    answer = up("migrate", one, "--to", "n1", "-y", "-o", "json").json
    assert answer == {
        "id": one,
        "moves": [{"task": 0, "from": "n0", "to": "n1", "gpus": [0]}],
        "unsaved": {"runs": 1, "run_s": 0.0, "gpu_s": 0.0},
        "dry_run": False,
    }


def test_gang_that_does_not_fit_elsewhere_is_not_stopped(
    up: Any, controller: Any, job_file: Any
) -> None:
    controller.admins = {ME}
    text = "{gang: true, tasks: {run: x, count: 3}}"
    gang = up("submit", job_file(text), "-o", "json").json["id"]
    refused = up("migrate", gang, "--from", "n0", "-o", "json")
    assert refused.error["code"] == "not_movable"
    assert "fits no other node now" in refused.error["problems"][0]["problem"]
    assert up("get", gang, "-o", "json").json["state"] == "active"


def test_members_of_a_gang_on_other_nodes_start_again_there(
    up: Any, controller: Any, job_file: Any
) -> None:
    controller.admins = {ME}
    hold = up("submit", job_file("{run: x}"), "-o", "json").json["id"]
    gang = up("submit", job_file("{gang: true, tasks: {run: x, count: 2}}"), "-o", "json").json[
        "id"
    ]
    up("cancel", hold)
    lines = up("migrate", gang, "--from", "n1", "-y").out.splitlines()
    assert lines == [
        "task 0: starts again on n0 with its gang",
        "task 1: moves from n1 to n0",
    ]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("none-7",), "not_found"),
        (("{job}", "--to", "n9"), "not_found"),
        (("{job}", "--to", "n0"), "not_movable"),
        (("{job}", "--from", "n1"), "not_movable"),
    ],
)
def test_move_that_is_impossible_is_an_error(
    up: Any, one: str, arguments: tuple[str, ...], code: str
) -> None:
    words = (word.format(job=one) for word in arguments)
    output = up("migrate", *words, "-o", "json")
    assert output.error["code"] == code
    assert place(up, one) == ("n0", 1)


def test_runs_without_checkpoints_move_only_if_that_is_confirmed(
    up: Any, one: str, controller: Any
) -> None:
    controller.clock += 3600
    asked = up("migrate", one, "-o", "json")
    assert (asked.code, asked.error["code"]) == (2, "needs_confirmation")
    (problem,) = asked.error["problems"]
    assert problem["problem"] == (
        f"{one} saves no checkpoints: 1 run would start from the beginning, "
        "up to 1 h of work and 3,600 s of GPU time are lost; move them?"
    )
    assert place(up, one) == ("n0", 1)
    assert up("migrate", one, "--dry-run").code == 0
    assert up("migrate", one, "-y").code == 0
    assert place(up, one) == ("n1", 2)


def test_runs_with_checkpoints_move_without_a_question(
    up: Any, controller: Any, job_file: Any
) -> None:
    controller.admins = {ME}
    text = "{tasks: {count: 1, run: x, checkpoint: {every_s: 60, path: /shared}}}"
    job = up("submit", job_file(text), "-o", "json").json["id"]
    controller.clock += 3600
    assert up("migrate", job, "-o", "json").json["unsaved"] is None
    assert place(up, job) == ("n1", 2)


def test_users_who_are_no_administrators_move_nothing(up: Any, one: str, controller: Any) -> None:
    controller.admins = {"admin"}
    output = up("migrate", one, "-o", "json")
    assert (output.code, output.error["code"]) == (2, "forbidden")
    assert place(up, one) == ("n0", 1)
