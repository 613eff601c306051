"""The verb queues, over the API: the tree, changes of it, jobs that move."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture(autouse=True)
def admin(controller: Any) -> None:
    controller.admins = {ME}


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(text: str) -> str:
        path = tmp_path / "queues.yaml"
        path.write_text(f"queues:\n{text}")
        return str(path)

    return write


NEW = """
- {name: default}
- {name: narrow, max_gpus: 5, weight: 1, per_user: {gpus: 2}}
- name: team
  limit: {cpus: 8, memory: 2GiB}
  per_user: {cpus: 6}
  queues: [{name: deep, types: [deep-learning]}, {name: rest}]
"""


def listed(up: Any) -> dict[str, list[str]]:
    lines = up("queues").out.splitlines()[1:]
    return {line.split()[0]: line.split() for line in lines}


def test_a_file_is_applied_after_what_it_changes_is_shown(up: Any, file: Any) -> None:
    before = {*listed(up)}
    shown = up("queues", "apply", file(NEW), "--dry-run").out.splitlines()
    assert {*listed(up)} == before
    assert {"+ team", "+ deep", "+ rest"} <= {*shown}
    (narrow,) = [line for line in shown if line.startswith("~ narrow: ")]
    assert narrow.startswith("~ narrow: weight 2 -> 1, max_gpus none -> 5"), shown
    assert narrow.endswith(", per_user none -> 2 gpus"), shown
    assert "confirm" in up("queues", "apply", file(NEW)).err, "a change needs -y without a terminal"
    done = up("queues", "apply", file(NEW), "-y")
    assert done.out.endswith("the queues are those of the file\n")
    assert {*listed(up)} == {"default", "narrow", "team", "deep", "rest"}
    assert up("queues", "apply", file(NEW)).out == "the queues are those of the file\n"
    wide = up("queues", "-o", "wide").out
    assert "8 cpus, 2 GiB memory" in wide
    assert "6 cpus" in wide
    assert "deep-learning" in wide
    (team,) = [q for q in up("queues", "-o", "json").json["queues"] if q["name"] == "team"]
    assert team["limit"] == {"cpus": 8, "memory_bytes": 2 << 30}
    assert team["per_user"] == {"cpus": 6}
    names = [line for line in wide.splitlines() if "deep" in line]
    assert names[0].startswith("  deep"), "the queues of a queue are indented"


def test_a_queue_with_jobs_is_neither_removed_nor_divided(
    up: Any, file: Any, job_file: Any
) -> None:
    job = up("submit", job_file("{queue: narrow, run: 'true'}"), "-o", "json").json["id"]
    refused = up("queues", "apply", file("- {name: default}\n"), "-y")
    assert refused.code == 2
    assert "narrow: has a job that have not ended, and would be removed" not in refused.err
    assert "narrow: has a job that has not ended, and would be removed" in refused.err
    refused = up("queues", "apply", file("- {name: narrow, queues: [{name: x}]}\n"), "-y")
    assert "would be divided" in refused.err
    assert up("queues", "assign", job, "default").out == f"{job} is in queue default\n"
    assert up("get", job, "-o", "json").json["queue"] == "default"
    assert up("queues", "apply", file("- {name: default}\n"), "-y").code == 0
    assert {*listed(up)} == {"default"}


def test_labels_that_no_node_has_are_an_error_that_lists_those_there_are(
    up: Any, file: Any
) -> None:
    up("label", "n0", "ml", "zone=a")
    refused = up("queues", "apply", file("- {name: q, labels: [ml, zone=b]}\n"), "-y")
    assert "q: no node has the labels ml, zone=b" in refused.err
    assert "labels are ml, zone=a" in refused.err


def test_only_administrators_change_queues_and_users_move_their_own_jobs(
    up: Any, file: Any, job_file: Any, controller: Any
) -> None:
    job = up("submit", job_file("{queue: narrow, run: 'true'}"), "-o", "json").json["id"]
    controller.admins = set()
    assert "permission denied" in up("queues", "apply", file(NEW), "-y").err
    assert up("queues", "assign", job, "default").code == 0


def test_wrong_arguments_are_named(up: Any, job_file: Any) -> None:
    assert "there is no action 'aply'" in up("queues", "aply").err
    assert "takes FILE" in up("queues", "apply").err
    assert "takes JOB and QUEUE" in up("queues", "assign", "x").err
    assert "there is no job x" in up("queues", "assign", "x", "default").err
    job = up("submit", job_file("{run: 'true'}"), "-o", "json").json["id"]
    assert "there is no queue 'poro'" in up("queues", "assign", job, "poro").err


def test_what_queues_borrow_and_lend_is_shown(up: Any, file: Any, job_file: Any) -> None:
    """Of 4 GPUs 3 are guaranteed to `team`, of which a job in another queue holds 2."""
    tree = "- {name: team, guaranteed: {gpus: 3}}\n- {name: other}\n"
    assert up("queues", "apply", file(tree), "-y").code == 0
    job = "{queue: other, gang: true, tasks: {run: 'true', count: 3}}"
    assert up("submit", job_file(job)).code == 0
    wide = up("queues", "-o", "wide").out
    assert "2 from team" in wide
    assert "2 to other" in wide
    found = {q["name"]: q for q in up("queues", "-o", "json").json["queues"]}
    assert found["other"]["borrowed_gpus"] == {"team": 2}
    assert found["team"]["lent_gpus"] == {"other": 2}
