"""Stops on Ray: of a gang, of single tasks, of a program that ignores its notice, of a log."""

from __future__ import annotations

import json
import os
import pwd
import time
from pathlib import Path
from typing import Any

import pytest
from tests.live.notice import IGNORES, SAVES, program, seen
from tests.live.system import Gates, Headgate

pytestmark = pytest.mark.live

ME = pwd.getpwuid(os.geteuid()).pw_name
POLICY = "--policy=least-attained-service,threshold_gpu_s=5"


SYSTEM = {"nodes": 2, "gpus": 1, "up": (POLICY, "--log-limit=1MiB")}


def _stops(headgate: Headgate, job: str, task: int) -> list[dict[str, Any]]:
    (view,) = headgate.call("get", job, "--task", str(task))["task_list"]
    found: list[dict[str, Any]] = view["stops"]
    return found


def test_gang_that_is_preempted_and_then_cancelled_may_save_each_time(
    headgate: Headgate, tmp_path: Path
) -> None:
    script = program(tmp_path, SAVES, save_s="3")
    gang = headgate.submit(f"{{name: gang, num_nodes: 2, tasks: {{run: 'python {script}'}}}}")
    headgate.until(lambda: seen(tmp_path) == ["begun"] * 2, "the gang runs")
    time.sleep(4)  # it has attained more GPU time than the threshold
    short = headgate.submit("{name: short, run: 'true'}")
    headgate.ends(short)
    ended = [line for line in seen(tmp_path) if line != "begun"]  # by now it may run again
    assert sorted(ended) == ["notice"] * 2 + ["saved"] * 2, "its GPUs were held until then"
    for task in (0, 1):
        (stop,) = _stops(headgate, gang, task)
        assert (stop["kind"], stop["for_job"]) == ("preempted", short)
        assert stop["end"] == "it ended after the notice"
    assert f"preempted for {short}," in headgate.run("get", gang).stdout
    headgate.until(lambda: seen(tmp_path).count("begun") == 4, "the gang runs again")
    cancelled = headgate.call("cancel", gang)
    assert (cancelled["state"], cancelled["grace_s"]) == ("stopping", 30.0)
    headgate.kill_controller()
    headgate.up()
    headgate.ends(gang, "cancelled")
    assert seen(tmp_path).count("saved") == 4
    for task in (0, 1):
        _, stop = _stops(headgate, gang, task)
        assert (stop["attempt"], stop["kind"], stop["by_user"]) == (2, "cancelled", ME)
    assert f"cancelled by {ME}, on 20" in headgate.run("get", gang).stdout


def test_tasks_of_an_array_are_cancelled_and_its_others_complete(
    headgate: Headgate, tmp_path: Path
) -> None:
    gates = Gates(tmp_path / "gates")
    tasks = {"count": 5, "run": f"echo begun; {gates.command()}"}
    array = headgate.submit(json.dumps({"name": "array", "tasks": tasks}))
    later = headgate.submit(json.dumps({"name": "later", "run": "true", "after": [array]}))
    headgate.until(lambda: sorted(gates.seen("start")) == ["0", "1"], "two tasks run, three wait")
    refused = headgate.call("cancel", f"{array}/4", f"{array}/5", code=102)
    assert "it has tasks 0 to 4" in refused["problems"][0]["problem"]
    assert headgate.tasks_in(array, "cancelled") == []
    running, waiting = headgate.call("cancel", f"{array}/1", f"{array}/4")["jobs"]
    assert [running[key] for key in ("id", "was", "state")] == [f"{array}/1", "running", "stopping"]
    assert [waiting[key] for key in ("id", "was", "state")] == [
        f"{array}/4", "waiting", "cancelled",
    ]  # fmt: skip
    headgate.until(lambda: len(gates.seen("start")) == 3, "another task runs in its place")
    assert len(gates.alive()) == 2
    headgate.kill_controller()
    headgate.up()
    (stop,) = _stops(headgate, array, 1)
    assert (stop["kind"], stop["by_user"]) == ("cancelled", ME)
    assert headgate.run("logs", f"{array}/1").stdout == "begun\n"
    gates.open(0, 2, 3)
    ended = headgate.ends(array, "cancelled")
    assert ended["tasks"] == {"total": 5, "finished": 3, "cancelled": 2}
    assert headgate.result(array, 3) == b"3\n"
    assert headgate.ends(later, "cancelled")["message"].startswith(f"{array} was cancelled")
    assert headgate.call("cancel", f"{array}/1", code=2)["code"] == "already_ended"


def test_program_that_ignores_its_notice_is_killed_by_a_second_cancellation(
    headgate: Headgate, tmp_path: Path
) -> None:
    script = program(tmp_path, IGNORES)
    job = headgate.submit(f"{{run: 'exec python {script}', grace: 10min}}")
    headgate.until(lambda: seen(tmp_path), "it runs")
    assert "its runs have 10 min" in headgate.run("cancel", job).stdout
    assert headgate.call("cancel", job, code=2)["code"] == "already_ended"
    assert headgate.call("cancel", job, "--now")["was"] == "stopping"
    headgate.ends(job, "cancelled")
    (stop,) = _stops(headgate, job, 0)
    assert stop["end"] == "it was killed in its grace period"


def test_log_over_its_limit_shows_its_beginning_and_its_end(headgate: Headgate) -> None:
    job = headgate.submit("{run: 'echo first; seq 1000000; echo last'}")
    headgate.ends(job)
    text = headgate.run("logs", job).stdout
    assert text.startswith("first\n1\n2\n")
    assert text.endswith("\n999999\n1000000\nlast\n")
    assert "MiB dropped here, the log was over its limit]\n" in text
    assert len(text) < 1_100_000
