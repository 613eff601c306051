"""The verbs drain and resume, over the API."""

from __future__ import annotations

import os
import pwd
from typing import Any

import pytest

from headgate.protocol import NodeLost

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture(autouse=True)
def admin(controller: Any) -> None:
    controller.admins = {ME}


def node(up: Any, name: str) -> dict[str, Any]:
    found = up("nodes", "-o", "json").json["nodes"]
    return next(each for each in found if each["id"] == name)


def shown(up: Any, name: str) -> list[str]:
    """Return the words of the line of a node."""
    return next(
        line.split() for line in up("nodes").out.splitlines() if line.startswith(f"{name} ")
    )


def test_draining_node_is_shown_with_its_reason_until_it_is_resumed(up: Any) -> None:
    assert up("drain", "n1", "--dry-run").out == "n1 would drain\n"
    assert node(up, "n1")["draining"] is None
    assert up("drain", "n1", "--reason", "a new disk").out == "n1 drains: no run left\n"
    assert up("drain", "n1").code == 0, "it drains already"
    view = node(up, "n1")
    assert (view["state"], view["free_gpus"]) == ("up", 0)
    assert view["draining"]["reason"] == "a new disk"
    assert view["draining"]["by"] == ME
    assert "DRAINING" in up("nodes").out
    answer = up("resume", "n1", "-o", "json").json
    assert answer == {"id": "n1", "draining": None, "dry_run": False}
    assert node(up, "n1")["free_gpus"] > 0


def test_runs_of_a_draining_node_continue_and_others_start_elsewhere(
    up: Any, job_file: Any
) -> None:
    first = up("submit", job_file("{name: one, run: 'true'}"), "-o", "json").json["id"]
    assert node(up, "n0")["runs"] == [f"{first}/0"]
    assert up("drain", "n0").out == "n0 drains: 1 run left\n"
    up("submit", job_file("{name: two, run: 'true'}"))
    assert node(up, "n0")["runs"] == [f"{first}/0"]
    assert node(up, "n1")["runs"]


def test_draining_node_is_shown_with_what_it_has_and_what_its_runs_hold(
    up: Any, job_file: Any
) -> None:
    up("submit", job_file("{name: one, run: 'true', resources: {gpus: 1, cpus: 1}}"))
    before = node(up, "n0")
    line = shown(up, "n0")
    up("drain", "n0")
    view = node(up, "n0")
    assert view["granted"]["cpus"] == 1
    assert [view[key] for key in ("total", "granted")] == [before["total"], before["granted"]]
    assert shown(up, "n0") == ["DRAINING" if word == "UP" else word for word in line]


def test_job_that_waits_for_a_draining_node_says_why(up: Any, job_file: Any) -> None:
    for name in ("n0", "n1"):
        up("drain", name, "--reason", "maintenance")
    job = up("submit", job_file("{name: one, run: 'true'}"), "-o", "json").json["id"]
    text = up("why", job).out
    assert "draining (maintenance)" in text


def test_several_nodes_are_drained_and_resumed_or_none_of_them(up: Any) -> None:
    refused = up("drain", "n0", "n9", "n8", "-o", "json")
    assert (refused.code, refused.error["code"]) == (102, "not_found")
    assert [problem["path"] for problem in refused.error["problems"]] == ["n9", "n8"]
    assert node(up, "n0")["draining"] is None
    assert up("drain", "n0", "n1", "n0").out == "n0 drains: no run left\nn1 drains: no run left\n"
    assert up("resume", "n0", "n9").code == 102
    assert node(up, "n0")["draining"] is not None
    answer = up("resume", "n0", "n1", "-o", "json").json
    assert [each["id"] for each in answer["nodes"]] == ["n0", "n1"]
    assert node(up, "n0")["draining"] is None


@pytest.mark.parametrize("verb", ["drain", "resume"])
def test_only_administrators_and_known_nodes(up: Any, controller: Any, verb: str) -> None:
    unknown = up(verb, "n9", "-o", "json")
    assert (unknown.code, unknown.error["code"]) == (102, "not_found")
    controller.admins = set()
    denied = up(verb, "n1", "-o", "json")
    assert denied.error["code"] == "forbidden"


def test_node_that_is_long_down_is_listed_with_all_alone_and_can_be_drained(
    up: Any, controller: Any
) -> None:
    controller.handle(NodeLost(at=controller.clock, node="n1"))
    controller.clock += 2 * 3600
    short = up("nodes")
    assert "n1" not in short.out
    assert "1 node has been down for over an hour; see --all" in short.err
    full = up("nodes", "--all")
    assert "DOWN" in full.out
    assert "--all" not in full.err
    assert up("drain", "n1", "--dry-run").out == "n1 would drain\n"
