"""`why` and `plan` on the command line: output for people and programs, and errors."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.cli.program import cells

from headgate.testing.digest import digest

MANY = "{name: many, tasks: {run: 'true', count: 6}}"
FEW = "{name: few, tasks: {run: 'true', count: 3}}"


@pytest.fixture
def shared(up: Any, job_file: Any, controller: Any) -> Any:
    """Under `fs`: job-1 holds all 4 GPUs and wants 2 more, job-2 waits with 3 tasks."""
    controller.policy_name = "fs"
    up("submit", job_file(MANY))
    up("submit", job_file(FEW))
    controller.clock += 30.0
    return up


def test_why_shows_reason_share_and_places_of_a_waiting_job(shared: Any) -> None:
    output = shared("why", "job-2")
    lines = output.out.splitlines()
    assert lines[:2] == ["job-2: PENDING (3 tasks)", "Submitted: 30 s ago"]
    assert lines[2] == (
        "Reason: 0 GPUs, fair share 2; starts as tasks of job-1 end, which has 2 above its own"
    )
    facts = dict(line.split(": ", 1) for line in lines if ": " in line)
    assert facts["Share"] == "0 GPUs allocated, fair share 2; eligible for 2 more"
    assert facts["Task"] == "job-2/0, the first pending one"
    assert facts["Best free place"] == "none"
    assert facts["Best place"] == (
        "n0 (GPU, 4 GiB), cost 0.0 s: nothing to read; allocated to job-1/0"
    )
    assert facts["If job-1/0 ended now"] == "it would start there"
    assert facts["Expected start"].startswith("job-2/0 in ")
    assert "; no run-time history yet for 4 running tasks" in " ".join(output.out.split())


def test_why_names_the_moves_that_make_room(up: Any, controller: Any, job_file: Any) -> None:
    for _ in range(3):
        up("submit", job_file("{run: x}"))
    controller.end("job-1", 0, b"")  # a GPU is free on each node
    up("submit", job_file("{run: x, resources: {gpus: 2}}"))
    view = up("why", "job-4", "-o", "json").json
    room = view["room_by_moves"]
    assert view["reason"]["numbers"]["after_moves"] == room
    assert not room["on"], "the policy moves nothing by default"
    assert room["tasks"] in (["job-2/0"], ["job-3/0"])
    (task,) = room["tasks"]
    assert room["lost_s"] >= 30.0, "the time to resume"
    text = " ".join(up("why", "job-4").out.split())
    assert "needed there, fits after moving 1 task, " in text
    assert "s, were moves on; starts when enough are free together" in text
    assert f"Moves: {task}" in text
    controller.end(task.split("/")[0], 0, b"")
    assert up("why", "job-4", "-o", "json").json["room_by_moves"] is None


def test_why_shows_a_waiting_and_a_running_task(shared: Any, controller: Any) -> None:
    view = shared("why", "job-2/1", "-o", "json").json
    assert (view["job"], view["task"]) == (
        "job-2",
        {"ordinal": 1, "state": "waiting", "unfinished": [], "preempted": None, "stopped": None,
         "surplus": False, "needed": True},
    )  # fmt: skip
    assert view["reason"]["code"] == "BelowShare"
    assert view["share"] == {
        "job": "job-2", "held_gpus": 0, "waiting_tasks": 3, "share_gpus": 2, "may_win_gpus": 2,
        "wait_s": None,
    }  # fmt: skip
    assert [(h["job"], h["held_gpus"], h["share_gpus"]) for h in view["holders"]] == [
        ("job-1", 4, 2)
    ]
    assert view["cheapest_now"] is None
    assert view["cheapest"] == {
        "node": "n0", "gpu_model": "", "gpu_memory_bytes": 4 << 30, "cost_s": 0.0, "read_s": 0.0,
        "read_bytes": {"node": 0, "rack": 0, "cluster": 0}, "held_by": "job-1/0",
        "held_until": None,
    }  # fmt: skip
    assert view["if_freed"]["taken_by"] == "job-2/0"
    controller.end("job-1", 0, b"")  # a second later: 31 s in all, the estimate of such runs
    view = shared("why", "job-2/1", "-o", "json").json
    assert view["start"]["task"] == "job-2/1"
    start = view["start"]  # one run of 31 s is known; the others have run as long without an end
    assert controller.clock <= start["earliest"] < start["at"] < start["latest"]
    assert "(80 %; most likely" in shared("why", "job-2/1").out
    text = " ".join(shared("why", "job-1").out.split())
    assert "eligible for 0 more until job-1/" in text
    assert re.search(r"until job-\d/\d has ended, expected in about", text)
    output = shared("why", "job-2/0").out
    assert output.startswith("job-2/0: RUNNING (job: RUNNING)\nRuns: on n0 for 0.0 s\n")
    assert "\nExpected end: in about 31 s\n" in output


def test_why_says_what_a_job_still_waits_for_when_all_runs_have_ended(
    up: Any, controller: Any, job_file: Any
) -> None:
    controller.policy_name = "fs"
    up("submit", job_file("{run: x, estimated_runtime: 6s}"))
    wide = "tasks: {run: x, count: 1, resources: {gpus: 2, cpus: 64}}"
    up("submit", job_file(f"{{{wide}, wait_for_node: true}}"))
    view = up("why", "job-2", "-o", "json").json
    assert (view["start"]["at"], view["start"]["ends"]) == (None, 1)
    assert view["start"]["still"]["code"] == "Infeasible"
    text = " ".join(up("why", "job-2").out.split())
    assert (
        "Expected start: not within the next 6.0 s, when 1 run will have ended: needs 2 GPUs and "
        "64 CPUs on one node, nodes have at most"
    ) in text
    assert text.count("starts when such a node joins") == 3, "reason, share, expected start"


@pytest.mark.parametrize(
    ("target", "code", "problem"),
    [
        ("job-9", 102, "there is no job 'job-9'"),
        ("job-2/7", 102, "job job-2 has no task 7; it has tasks 0 to 2"),
        ("job-2/x", 2, "'x' is not the number of a task"),
        ("job-2/", 2, "'' is not the number of a task"),
        (f"job-2/{'9' * 5000}", 2, "is not the number of a task"),
    ],
)
def test_why_of_an_unknown_job_or_task_is_an_error(
    shared: Any, target: str, code: int, problem: str
) -> None:
    output = shared("why", target, "-o", "json")
    assert output.code == code
    assert problem in output.error["problems"][0]["problem"]


def test_plan_under_another_policy_shows_starts_and_preemptions(shared: Any) -> None:
    output = shared("plan", "--policy", "fsp,slack=0")
    lines = output.out.splitlines()
    assert lines[0] == "Now (fs): no change; 0 of 4 GPUs stay free"
    assert lines[1] == (
        "What if (fsp,slack=0): 2 runs would start, 2 would be preempted (GPU time lost: 1 min); "
        "0 of 4 GPUs would stay free"
    )
    assert cells(output.out)[3:6] == [
        ["JOB", "GPUS", "NOW", "WHAT IF", "RUNS", "PENDING", "REASON"],
        ["job-1", "4", "4", "2", "-2", "4", "waits for job-2: 2 GPUs, fair share 2"],
        ["job-2", "0", "0", "2", "+2", "1", "waits for job-1: 2 GPUs, fair share 2"],
    ]
    view = shared("plan", "--policy", "fsp,slack=0", "-o", "json").json
    jobs = {job["job"]: job for job in view["what_if"]["jobs"]}
    assert [(j["held_gpus"], j["holds_gpus"], j["cut_tasks"]) for j in jobs.values()] == [
        (4, 2, 2), (0, 2, 0),
    ]  # fmt: skip
    assert jobs["job-1"]["lost_gpu_s"] == 60.0
    assert jobs["job-2"]["reason"]["code"] == "ShareLimit"
    assert [(s["job"], s["ordinal"]) for s in view["what_if"]["starts"]] == [
        ("job-2", 0), ("job-2", 1),
    ]  # fmt: skip
    assert view["today"]["starts"] == []


def test_plan_with_more_nodes_shows_starts_on_them(shared: Any) -> None:
    view = shared("plan", "--nodes", "2", "-o", "json").json
    assert view["new_nodes"] == ["new-1", "new-2"]
    assert (view["what_if"]["gpus"], view["what_if"]["free_gpus"]) == (8, 0)
    assert {s["node"] for s in view["what_if"]["starts"]} == {"new-1", "new-2"}
    output = shared("plan", "--nodes", "1", "--like", "n0").out
    assert "What if (fs, with 1 node more): 2 runs would start" in output


@pytest.mark.parametrize(
    ("arguments", "path", "problem", "hint"),
    [
        ("--policy fps", "policy", "there is no policy 'fps'", "did you mean"),
        ("--policy fs,alpha=2", "policy.alpha", "no parameter 'alpha'", "did you mean 'alpha"),
        ("--policy fs,alpha1=1", "policy.alpha1", "1.0 is not above 1", "default 3.0"),
        ("--policy fs,alpha1=x", "policy.alpha1", "'x' is not a finite number", ""),
        ("--policy fs,alpha1=nan", "policy.alpha1", "is not a finite number", ""),
        ("--policy fs,2", "policy", "'2' is not PARAMETER=VALUE", "fs,alpha1=2"),
        ("--policy fs,alpha1=2,alpha1=3", "policy", "'alpha1=3' is twice", ""),
        ("--nodes 0", "nodes", "0 is not between 1 and 10000", ""),
        ("--nodes -3", "nodes", "-3 is not between 1 and 10000", ""),
        ("--nodes 10001", "nodes", "10001 is not between 1 and 10000", ""),
        ("--nodes 1 --like n7", "like", "there is no node 'n7'", "known: n0, n1"),
        ("--like n0", "like", "no nodes are added", "nodes"),
        ("--nodes x", "--nodes", "is not a whole number", "--help"),
    ],
)
def test_plan_with_invalid_options_is_rejected_with_path_and_hint(
    shared: Any, arguments: str, path: str, problem: str, hint: str
) -> None:
    output = shared("plan", *arguments.split(), "-o", "json")
    assert output.code == 2
    (found,) = output.error["problems"]
    assert found["path"] == path
    assert problem in found["problem"]
    assert hint in found["hint"]


def test_why_and_plan_change_no_state(shared: Any, controller: Any) -> None:
    before, version = digest(controller.engine.state), controller.engine.state.version
    names = repr(controller.engine.state.names)
    for arguments in (
        ("plan", "--policy", "fsp,slack=0", "--nodes", "3"), ("plan",), ("why", "job-2"),
        ("why", "job-1/5"), ("plan", "--policy", "capacity"),
    ):  # fmt: skip
        assert shared(*arguments).code == 0
    assert digest(controller.engine.state) == before
    assert controller.engine.state.version == version
    assert repr(controller.engine.state.names) == names
