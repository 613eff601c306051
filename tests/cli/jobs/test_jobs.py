"""Jobs on the command line: submitted, watched, explained, followed, fetched, cancelled."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import PAIR
from tests.cli.program import ME, PROGRAM, cells, until

from headgate.api.client import Client
from headgate.app import POLICIES
from headgate.model import LogPiece
from headgate.ports import make_policy
from headgate.protocol import ResultsExpired


def test_submit_prints_the_job_id(up: Any, job_file: Any) -> None:
    output = up("submit", job_file(PAIR))
    assert (output.code, output.out, output.err) == (0, "submitted job-1\n", "")


def test_submit_after_other_jobs_shows_what_it_waits_for(
    up: Any, job_file: Any, pair: str, controller: Any
) -> None:
    later = up("submit", job_file("{run: x}"), "--after", pair, "-o", "json")
    view = up("get", later.json["id"], "-o", "json").json
    assert (view["state"], view["after"]) == ("queued", [pair])
    assert view["reason"].startswith(f"WaitsForJobs(depends on {pair} (RUNNING")
    text = up("get", later.json["id"]).out
    assert f"\nAfter: {pair}\n" in text
    assert f"depends on {pair} (RUNNING); starts when it has finished" in text
    for task in (0, 1):
        controller.end(pair, task, b"")
    assert up("get", later.json["id"], "-o", "json").json["state"] == "active"


def test_get_shows_the_limit_of_running_tasks_and_what_it_holds_back(
    up: Any, job_file: Any
) -> None:
    job = up("submit", job_file("{tasks: {run: x, count: 3, max_running: 1}}"), "-o", "json").json
    text = up("get", job["id"]).out
    assert "\nTasks: 3 (2 PENDING, 1 RUNNING), max_running 1\n" in text
    assert "\nReason: held back by max_running (1 of 1 running); starts as these finish\n" in text
    held = up("get", job["id"], "--task", "2", "-o", "json").json["task_list"][0]
    assert (held["state"], held["reason"][:11]) == ("held", "MaxRunning(")


def test_a_dry_run_submits_nothing(up: Any, job_file: Any) -> None:
    output = up("submit", job_file(PAIR), "--dry-run")
    assert (output.code, output.out) == (0, "would be submitted as job-1\n")
    assert up("jobs", "-o", "json").json == {"jobs": [], "next": None}


@pytest.mark.parametrize(
    ("outcome", "code", "ending"), [(b"", 0, "finished"), ("it broke", 100, "failed")]
)
def test_waiting_ends_with_the_exit_code_of_the_job(
    up: Any, job_file: Any, controller: Any, outcome: bytes | str, code: int, ending: str
) -> None:
    controller.on_launch = lambda launch: outcome
    output = up("submit", job_file(PAIR), "--wait", "-o", "json")
    assert output.code == code
    assert output.json["state"] == ending
    assert output.err == ""
    if code:
        text = up("submit", job_file(PAIR), "--wait")
        assert text.out == "job-2 FAILED: task 0 failed once: it broke\n"


def test_waiting_for_a_cancelled_job_has_exit_code_103(
    up: Any, job_file: Any, controller: Any
) -> None:
    def cancel() -> None:
        until(lambda: controller.engine.state.names.jobs)
        controller.cancel("job-1", user=ME)

    canceller = threading.Thread(target=cancel)
    canceller.start()
    output = up("submit", job_file(PAIR), "--wait")
    canceller.join()
    assert (output.code, output.out) == (103, f"job-1 CANCELLED: cancelled by {ME}\n")


@pytest.mark.parametrize(
    ("text", "code", "name"),
    [
        ("{tasks: {run: x, count: -1}}", 2, "bad_spec"),
        ("[", 2, "bad_spec"),
        ("{run: x, resources: {gpus: 9}}", 105, "infeasible"),
    ],
)
def test_an_invalid_or_infeasible_job_is_rejected(
    up: Any, job_file: Any, text: str, code: int, name: str
) -> None:
    output = up("submit", job_file(text), "-o", "json")
    assert (output.code, output.error["code"]) == (code, name)


def test_problems_of_a_file_are_reported_without_a_controller(headgate: Any, job_file: Any) -> None:
    output = headgate("submit", job_file("nam: x\nrun: y\n"), "-o", "json")
    assert output.code == 2
    (problem,) = output.error["problems"]
    assert (problem["path"], problem["line"]) == ("nam", 1)
    assert headgate("submit", "no-such-file", "-o", "json").error["problems"][0]["path"] == (
        "no-such-file"
    )


ODD = """
tasks:
  count: 2
  run: "cp {shardd} {outputt} ${output} {index} {shards_dir}x; awk '{print}' {}"
  resources: {gpu_memory: 16MiB}
reduce:
  run: "cat {shards} > {output}"
"""


def test_submit_warns_of_values_that_are_probably_unintended(up: Any, job_file: Any) -> None:
    paths = ["tasks.run", "tasks.run", "tasks.run"]
    for more in (["--dry-run"], []):
        output = up("submit", job_file(ODD), *more)
        assert output.code == 0
        lines = output.err.splitlines()
        assert [line.split(": ")[:2] for line in lines[::2]] == [["warning", p] for p in paths]
        assert lines[0].endswith("{shardd} is no placeholder and is left unchanged")
        assert lines[1] == "  did you mean {shard}?"
        shown = up("submit", job_file(ODD), *more, "-o", "json")
        assert shown.err == ""
        assert [warning["path"] for warning in shown.json["warnings"]] == paths
    plain = up("submit", job_file("{run: x}"), "-o", "json")
    assert plain.json == {
        "id": "job-3",
        "job": "job-3",
        "state": "active",
        "dry_run": False,
        "warnings": [],
    }


def test_submit_reads_a_job_file_from_a_pipe(up: Any, controller: Any) -> None:
    done = subprocess.run(
        [*PROGRAM, "submit", "/dev/stdin"], input="{name: piped, run: x}", text=True, check=False
    )
    assert done.returncode == 0
    assert controller.engine.state.job(0).name == "piped"


def test_jobs_notes_an_unknown_user_or_queue(up: Any, pair: str) -> None:
    assert "no job of user 'unknown9' is known" in up("jobs", "--user", "unknown9").err
    assert up("jobs", "--queue", "narow").err == (
        "there is no queue 'narow'; did you mean 'narrow'?\n"
    )
    assert up("jobs", "--user", ME, "--state", "failed").err == ""
    assert up("jobs", "--queue", "narrow").err == ""
    quiet = up("jobs", "--user", "unknown9", "-o", "json")
    assert (quiet.json, quiet.err) == ({"jobs": [], "next": None}, "")


def test_jobs_prints_a_table(up: Any, job_file: Any, controller: Any) -> None:
    up("submit", job_file(PAIR))
    up("submit", job_file("{name: gang, gang: true, tasks: {run: x, count: 3}}"))
    controller.clock += 90
    assert cells(up("jobs").out) == [
        ["JOB", "USER", "STATE", "TASKS", "GPUS", "TIME", "REASON"],
        ["job-2", ME, "PENDING", "0/3", "0", "1m30s", "2 of 3 needed GPUs are free"],
        ["job-1", ME, "RUNNING", "0/2", "2", "1m30s", "-"],
    ]  # fmt: skip
    assert cells(up("jobs", "-o", "wide").out) == [
        ["JOB", "NAME", "USER", "QUEUE", "PRIORITY", "STATE", "TASKS", "GPUS", "PEAK", "NODES",
         "WAITED", "RAN", "REASON"],
        ["job-2", "gang", ME, "default", "0", "PENDING", "0/3", "0", "0", "-", "1 min 30 s", "-",
         "2 of 3 needed GPUs are free; starts when all its tasks fit together"],
        ["job-1", "pair", ME, "default", "0", "RUNNING", "0/2", "2", "2", "n0", "0.0 s",
         "1 min 30 s", "-"],
    ]  # fmt: skip


def test_jobs_are_filtered_and_limited(up: Any, job_file: Any) -> None:
    for _ in range(3):
        up("submit", job_file("{run: x, queue: narrow}"))
    found = up("jobs", "--state", "queued", "-o", "json").json["jobs"]
    assert [job["id"] for job in found] == ["job-3", "job-2"]
    assert found[0]["reason"].startswith("JobsInFlightLimit(queue narrow: 1 of at most 1 jobs")
    output = up("jobs", "--limit", "1")
    assert output.out.splitlines()[1].startswith("job-3")
    assert "--limit" in output.err
    assert up("jobs", "--state", "quued").code == 2


def test_get_shows_copies_and_expiry_of_results(
    up: Any, job_file: Any, controller: Any, tmp_path: Path
) -> None:
    text = "{run: 'true', results: {replicas: 2, path: /shared}, keep: 2d}"
    job = up("submit", job_file(text), "-o", "json").json["id"]

    def line() -> str:
        (found,) = [t for t in up("get", job).out.splitlines() if t.startswith("Results")]
        return str(found)

    assert line() == (
        "Results: 2 copies on nodes (none yet); one below /shared (not complete);"
        " kept for 2 d after its end"
    )
    controller.end(job, 0, b"result")
    controller.clock += 86400
    assert line() == (
        "Results: 2 copies on nodes (1 exist); one below /shared (not complete); expire in 1 d"
    )
    controller.clock += 86400
    controller.handle(ResultsExpired(at=controller.clock, job=job))
    assert line() == "Results: expired on 1970-01-14 at 13:46:41 UTC"
    output = up("get", job, "--output", str(tmp_path / "result"))
    assert output.code == 102
    assert "expired on 1970-01-14 at 13:46:41 UTC, 2 d after its end" in output.err
    assert not (tmp_path / "result").exists()


def test_results_are_fetched_after_the_task_has_finished(
    up: Any, pair: str, controller: Any, tmp_path: Path
) -> None:
    target = tmp_path / "result"
    assert up("get", pair, "--task", "0", "--output", str(target)).code == 101
    assert not target.exists()
    controller.end(pair, 0, b"first")
    assert up("get", pair, "--task", "0", "--output", str(target)).code == 0
    assert target.read_bytes() == b"first"
    controller.end(pair, 1, b"second, longer")
    output = up("get", pair, "--task", "1", "--output", str(target), "-o", "json")
    assert output.json["size_bytes"] == 14
    assert target.read_bytes() == b"second, longer"
    assert [p.name for p in tmp_path.iterdir() if "part" in p.name] == []
    nowhere = str(tmp_path / "no" / "where")
    output = up("get", pair, "--task", "1", "--output", nowhere, "-o", "json")
    assert (output.code, output.error["code"]) == (2, "bad_spec")


def test_get_shows_what_a_job_declares_of_its_run_times(up: Any, job_file: Any) -> None:
    for text, shown in (
        ("estimated_runtime: 90min, time_limit: 2h", ["Run time: estimated 1 h 30 min, limit 2 h"]),
        ("time_limit: 90s", ["Run time: limit 1 min 30 s"]),
        ("priority: 1", []),
    ):
        job = up("submit", job_file(f"{{run: 'true', {text}}}"), "-o", "json").json["id"]
        lines = up("get", job).out.splitlines()
        assert [line for line in lines if line.startswith("Run time")] == shown


def test_get_shows_why_when_and_for_whom_runs_were_stopped(up: Any, pair: str) -> None:
    assert up("cancel", pair).out == f"{pair} cancelled\n"
    lines = up("get", pair).out.splitlines()
    why = f": cancelled by {ME}, on 1970-01-12 at 13:46:40 UTC"
    assert f"Stopped: task 0, run 1{why}" in lines
    assert f"  task 1, run 1{why}" in lines
    (task,) = up("get", pair, "--task", "1", "-o", "json").json["task_list"]
    (stop,) = task["stops"]
    assert (stop["kind"], stop["attempt"], stop["by_user"]) == ("cancelled", 1, ME)
    assert "Last stop" in up("why", f"{pair}/1").out


def test_cancel_without_notice_says_so(up: Any, pair: str) -> None:
    output = up("cancel", pair, "--now", "-o", "json")
    assert (output.json["was"], output.json["grace_s"]) == ("active", 0.0)


def test_get_output_writes_through_links_and_into_devices(
    up: Any, pair: str, controller: Any, tmp_path: Path
) -> None:
    controller.end(pair, 0, b"first")
    (tmp_path / "link").symlink_to("result")
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "full").symlink_to("/dev/full")
    for name in ("link", "null"):
        assert up("get", pair, "--task", "0", "--output", str(tmp_path / name)).code == 0
    assert (tmp_path / "result").read_bytes() == b"first"
    for name, why in (("full", "No space left on device"), (".", "Is a directory")):
        output = up("get", pair, "--task", "0", "--output", str(tmp_path / name), "-o", "json")
        assert (output.code, why in output.error["problems"][0]["problem"]) == (2, True)
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_symlink()) == ["full", "link", "null"]
    assert Path("/dev/full").is_char_device()
    assert [p.name for p in tmp_path.iterdir() if "part" in p.name] == []


@pytest.mark.parametrize(("outcome", "code"), [("it broke", 100), (None, 103)])
def test_result_of_a_failed_or_cancelled_job_is_an_error(
    up: Any, pair: str, controller: Any, outcome: str | None, code: int
) -> None:
    if outcome is None:
        controller.cancel(pair, user=ME)
    else:
        controller.on_launch = lambda launch: outcome
        controller.end(pair, 0, outcome)
    assert up("get", pair, "--output", "x").code == code


def test_why_shows_the_reason_with_numbers(up: Any, pair: str, job_file: Any) -> None:
    up("submit", job_file("{gang: true, tasks: {run: x, count: 3}}"))
    output = up("why", "job-2")
    assert output.out.startswith(
        "job-2: PENDING (3 tasks)\n"
        "Submitted: 0.0 s ago\n"
        "Reason: 2 of 3 needed GPUs are free; starts when all its tasks fit together\n"
    )
    shown = up("why", "job-2", "-o", "json").json
    assert shown["reason"]["numbers"]["free_gpus"] == 2
    assert up("why", pair).out == "job-1: RUNNING (2 tasks)\n"
    assert up("why", "job-9").code == 102


def test_cancelling_an_own_job_needs_no_confirmation(up: Any, pair: str) -> None:
    assert up("cancel", pair, "--dry-run").out.startswith("job-1 would be cancelled")
    assert up("cancel", pair).out == "job-1 cancelled\n"
    again = up("cancel", pair, "-o", "json")
    assert (again.code, again.error["code"]) == (2, "already_ended")


def test_several_jobs_are_cancelled_or_none_of_them(
    up: Any, pair: str, job_file: Any, controller: Any
) -> None:
    other = up("submit", job_file(PAIR), "-o", "json").json["id"]
    theirs = controller.submit(PAIR, user="ann", key=None)
    refused = up("cancel", pair, "none-7", other, "none-8", "-o", "json")
    assert (refused.code, refused.error["code"]) == (102, "not_found")
    assert [problem["path"] for problem in refused.error["problems"]] == ["none-7", "none-8"]
    asked = up("cancel", pair, theirs, "-o", "json")
    assert f"{theirs} is ann's job; cancel it?" in asked.error["problems"][0]["problem"]
    states = controller.engine.state.jobs.state
    assert [states[row] for row in range(3)] == [1, 1, 1]
    assert up("cancel", pair, pair, other).out == f"{pair} cancelled\n{other} cancelled\n"
    ended = up("cancel", pair, "none-7", "-o", "json")
    assert (ended.code, ended.error["code"]) == (102, "not_found"), "the worse one"
    assert len(ended.error["problems"]) == 2


def test_cancelling_a_job_of_another_user_requires_a_confirmation(up: Any, controller: Any) -> None:
    controller.submit(PAIR, user="ann", key=None)
    output = up("cancel", "job-1", "-o", "json")
    assert (output.code, output.error["code"]) == (2, "needs_confirmation")
    assert controller.engine.state.jobs.state[0] == 1
    assert up("cancel", "job-1", "-y").code == 0


@pytest.mark.parametrize("option", [[], ["-y"], ["--dry-run"]])
def test_cancelling_a_job_without_the_right_is_forbidden_without_a_question(
    up: Any, controller: Any, option: list[str]
) -> None:
    controller.admins = {"admin"}
    controller.submit(PAIR, user="ann", key=None)
    output = up("cancel", "job-1", "-o", "json", *option)
    assert (output.code, output.error["code"]) == (2, "forbidden")
    assert controller.engine.state.jobs.state[0] == 1


def test_logs_shows_a_running_task_by_default(up: Any, pair: str, controller: Any) -> None:
    controller.logs |= {(pair, 0, 1): "zero\n", (pair, 1, 1): "one\n"}
    output = up("logs", pair)
    assert (output.out, output.err) == ("zero\n", "task 0 of 2; see others with --task\n")
    controller.end(pair, 0, b"")
    assert up("logs", pair).out == "one\n"
    assert up("logs", pair, "--task", "0").out == "zero\n"
    assert up("logs", pair, "--task", "2").code == 102
    shown = up("logs", pair, "-o", "json").json
    assert shown == {"job": pair, "task": 1, "attempt": 1, "text": "one\n"}


def test_a_task_that_has_not_run_has_no_log(up: Any, job_file: Any) -> None:
    up("submit", job_file("{tasks: {run: x, count: 9}}"))
    assert up("logs", "job-1", "--task", "8").code == 101


def test_logs_shows_the_first_task_of_a_gang_that_has_ended(
    up: Any, job_file: Any, controller: Any
) -> None:
    for gang, shown in (("true", "zero\n"), ("false", "one\n")):
        text = f"{{gang: {gang}, tasks: {{count: 2, run: x}}}}"
        job = up("submit", job_file(text), "-o", "json").json["id"]
        controller.logs |= {(job, 0, 1): "zero\n", (job, 1, 1): "one\n"}
        for task in (0, 1):
            controller.end(job, task, b"")
        assert up("logs", job).out == shown


@pytest.mark.parametrize("verb", ["get", "logs", "logs -f"])
def test_one_task_is_shown_without_a_list_of_all(
    up: Any, pair: str, controller: Any, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    controller.logs[pair, 1, 1] = "one\n"
    controller.end(pair, 1, b"")
    monkeypatch.setattr(Client, "tasks", lambda *_: pytest.fail("all tasks were listed"))
    output = up(*verb.split(), pair, "--task", "1")
    assert (output.code, output.err) == (0, "")
    assert output.out.endswith("one\n" if verb != "get" else "1         0  1.0 s\n")
    unknown = up(*verb.split(), pair, "--task", "2", "-o", "json")
    assert (unknown.code, unknown.error["code"]) == (102, "not_found")


def test_following_a_log_continues_through_a_retry(
    up: Any, job_file: Any, controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    up("submit", job_file("{tasks: {run: x, count: 1, retries: 1}}"))
    controller.logs["job-1", 0, 1] = "first\n" * 400
    controller.logs["job-1", 0, 2] = "second\n"
    log, read = controller.log, {1: threading.Event(), 2: threading.Event()}

    def observed(job: str, ordinal: int, *, attempt: int, offset: int) -> LogPiece:
        piece: LogPiece = log(job, ordinal, attempt=attempt, offset=offset)
        if not piece.text:  # the follower has all that there is, and waits for more
            read[attempt].set()
        return piece

    monkeypatch.setattr(controller, "log", observed)

    def script() -> None:
        assert read[1].wait(60)
        controller.end("job-1", 0, "it broke")
        assert read[2].wait(60)
        controller.end("job-1", 0, b"")

    writer = threading.Thread(target=script)
    writer.start()
    output = up("logs", "-f", "job-1")
    writer.join()
    assert output.out == "first\n" * 400 + "second\n"


def test_ctrl_c_while_waiting_does_not_cancel_the_job(
    up: Any, job_file: Any, controller: Any
) -> None:
    waiting = subprocess.Popen(
        [*PROGRAM, "submit", job_file(PAIR), "--wait", "-o", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(lambda: controller.engine.state.names.jobs)
    time.sleep(0.5)
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=30)
    assert (waiting.returncode, out) == (130, "")
    assert json.loads(err)["code"] == "interrupted"
    assert "headgate cancel job-1" in json.loads(err)["problems"][0]["hint"]
    assert controller.engine.state.jobs.state[0] == 1


def test_watching_shows_every_change_until_ctrl_c(up: Any, controller: Any) -> None:
    watching = subprocess.Popen(
        [*PROGRAM, "jobs", "--watch", "-o", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline())["jobs"] == []
    controller.submit(PAIR, user="ann", key=None)
    assert json.loads(watching.stdout.readline())["jobs"][0]["id"] == "job-1"
    watching.send_signal(signal.SIGINT)
    assert watching.wait(30) == 0
    watching.communicate()


def test_nodes_and_queues_print_tables(up: Any, pair: str) -> None:
    assert up("nodes").out == (
        "NODE  RACK  STATE  GPUS  GPU MEM  CPUS  MEMORY  RUNS\n"
        "n0    r0    UP      2/2  4 GiB     0/4  -       job-1/0, job-1/1\n"
        "n1    r1    UP      0/2  4 GiB     0/4  -       -\n"
        "GPUS, CPUS, MEMORY: allocated/total\n"
        "Bandwidth: 476.8 MiB/s disk, 119.2 MiB/s in a rack, 29.8 MiB/s across racks\n"
    )
    wide = cells(up("nodes", "-o", "wide").out)
    assert wide[0][-3:] == ["GPU MODEL", "CPUS USED", "MEMORY USED"]
    assert (wide[1][-2], wide[2][-2:]) == ("0.5", ["-", "-"])
    assert up("nodes", "-o", "json").json["bandwidth"] == {
        "disk_bytes_per_s": 5e8, "rack_bytes_per_s": 1.25e8, "cluster_bytes_per_s": 3.125e7,
    }  # fmt: skip
    queues = up("queues", "-o", "json").json["queues"]
    assert [(q["name"], q["weight"], q["held_gpus"]) for q in queues] == [
        ("default", 1.0, 2), ("narrow", 2.0, 0),
    ]  # fmt: skip
    assert up("queues").out.splitlines()[2].split() == [
        *("narrow", "open", "2", "0", "-", "-", "0", "0")
    ]


def test_nodes_and_why_say_that_another_policy_decides_in_place_of_one_that_hung(
    up: Any, pair: str, controller: Any
) -> None:
    assert "decides in place" not in up("nodes").out + up("why", pair).out
    controller.policy_name, controller.stand_in = "headgate", "fifo"
    line = "Policy: fifo decides in place of headgate, which made no plan in time, several times"
    for verb in (("nodes",), ("why", pair)):
        assert line in " ".join(up(*verb).out.split())
        found = up(*verb, "-o", "json").json
        assert (found["policy"], found["stand_in"]) == ("headgate", "fifo")


def test_archived_jobs_are_listed_with_all_and_shown_by_every_verb(
    up: Any, job_file: Any, controller: Any, tmp_path: Path
) -> None:
    jobs = [up("submit", job_file(PAIR), "-o", "json").json["id"] for _ in range(3)]
    for job in jobs[:2]:
        controller.logs[job, 1, 1] = "its output\n"
        controller.end(job, 0, b"0")
        controller.end(job, 1, b"the end")
    controller.move_to_archive(*jobs[:2])
    assert [row[0] for row in cells(up("jobs").out)[1:]] == [jobs[2]]
    assert [row[0] for row in cells(up("jobs", "--all").out)[1:]] == jobs[::-1]
    output = up("jobs", "--all", "--limit", "2")
    cursor = up("jobs", "--all", "--limit", "2", "-o", "json").json["next"]
    assert output.err == f"there are more than 2 jobs; see --limit or --cursor {cursor}\n"
    rest = up("jobs", "--all", "--cursor", cursor, "-o", "json").json
    assert [job["id"] for job in rest["jobs"]] == jobs[:1]
    assert rest["jobs"][0]["archived"]
    assert "State: COMPLETED, archived" in up("get", jobs[0]).out
    target = tmp_path / "result"
    assert up("get", jobs[0], "--output", str(target)).code == 0
    assert (target / "1").read_bytes() == b"the end"
    assert up("logs", jobs[0]).out == "its output\n"
    assert up("why", jobs[0]).out.startswith(f"{jobs[0]}: COMPLETED, archived (2 tasks)\n")
    assert up("why", f"{jobs[0]}/1").out.startswith(
        f"{jobs[0]}/1: COMPLETED (job: COMPLETED, archived)\n"
    )
    refused = up("cancel", jobs[0], "-y", "-o", "json")
    assert refused.error["code"] == "already_ended"


GANG_OF_3 = "{gang: true, tasks: {run: train, count: 3}}"


@pytest.mark.parametrize("more", [["--dry-run"], []])
def test_submit_warns_of_a_number_of_gpus_that_the_placer_rounds_up(
    up: Any, controller: Any, job_file: Any, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    for setting, code in (({}, 0), ({"sizes": "refuse"}, 105)):
        policy = make_policy(POLICIES, "fifo", {"place": "best-fit-subtree", **setting})
        monkeypatch.setattr(controller, "policy", lambda _, policy=policy: policy)
        output = up("submit", job_file(GANG_OF_3), *more)
        assert output.code == code
        if code:
            assert "3 GPUs with sizes=refuse, as that is no power of two" in output.err
        else:
            assert output.err.startswith("warning: resources: 3 GPUs are no power of two: they")
            (warning,) = up("submit", job_file(GANG_OF_3), *more, "-o", "json").json["warnings"]
            assert "where 4 are free" in warning["problem"]
    monkeypatch.setattr(controller, "policy", lambda _: make_policy(POLICIES, "fifo", {}))
    assert up("submit", job_file(GANG_OF_3), *more).err == ""
